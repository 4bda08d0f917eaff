"""What the instances of a spec's flavors ask of their host's nova-compute: processors, memory pages, PCIe ports."""

from dataclasses import dataclass

from gpustack.spec.extra_specs import CPU_POLICY, PAGE_SIZE, TPM_VERSION
from gpustack.spec.model import Spec
from gpustack.spec.requests import Entry, entries


@dataclass(frozen=True, kw_only=True)
class InstanceShape:
    """The instances of one flavor. A size is None if it is derived from the facts of hosts (``auto``).

    :ivar cpu_policy: ``hw:cpu_policy``; shared by default.
    :ivar page_size: ``hw:mem_page_size``.
    :ivar nodes: the number of NUMA nodes.
    :ivar tpm: whether they have a virtual TPM.
    """

    flavor: str
    gpus: int
    vcpus: int | None = None
    ram_mib: int | None = None
    cpu_policy: str = "shared"
    page_size: str | None = None
    nodes: int | None = 1
    tpm: bool = False


def shapes(spec: Spec) -> tuple[InstanceShape, ...]:
    """The shapes of all flavors of a spec."""
    return tuple(map(_shape, entries(spec)))


def _shape(entry: Entry) -> InstanceShape:
    flavor = entry.flavor
    return InstanceShape(
        flavor=entry.name,
        gpus=entry.count,
        vcpus=entry.size("vcpus"),
        ram_mib=entry.size("ram"),
        cpu_policy=flavor.cpu_policy or flavor.extra_specs.get(CPU_POLICY, "shared"),
        page_size=flavor.mem_page_size or flavor.extra_specs.get(PAGE_SIZE),
        tpm=flavor.tpm or TPM_VERSION in flavor.extra_specs,
        nodes=None if flavor.numa.nodes == "auto" else flavor.numa.nodes or 1,
    )
