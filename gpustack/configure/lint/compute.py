"""Checks of nova-compute's processors, memory and machine type against the spec's flavors.

Only the configurations of hosts with GPUs are checked. An option that no file sets is judged only if nova.conf itself
is among the files: a drop-in alone leaves it open.
"""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import listed
from gpustack.configure.instance_shapes import InstanceShape
from gpustack.configure.lint.subject import LintSubject, check
from gpustack.configure.packing import number
from gpustack.configure.sources import Source
from gpustack.nova_options import cpu_sets, releases
from gpustack.nova_options.config import Setting
from gpustack.nova_options.options import TRUE, Option
from gpustack.spec.memory_pages import fit, matching, needs_huge_pages, size_kib

_TITLE = "Resources of GPU hosts"

DEDICATED = releases.option("compute/cpu_dedicated_set")
SHARED = releases.option("compute/cpu_shared_set")
PIN = releases.option("DEFAULT/vcpu_pin_set")
RATIO = releases.option("DEFAULT/ram_allocation_ratio")
INITIAL_RATIO = releases.option("DEFAULT/initial_ram_allocation_ratio")
RESERVED_PAGES = releases.option("DEFAULT/reserved_huge_pages")
MACHINE = releases.option("libvirt/hw_machine_type")
SWTPM = releases.option("libvirt/swtpm_enabled")
PORTS = releases.option("libvirt/num_pcie_ports")
_TRAIN, _YOGA = 20, 25
_OVERCOMMIT = 1.5
"""The default of the ratio up to Yoga (nova/conf/compute.py)."""
_OWN_PORTS = 6
"""PCIe ports of an instance for its disk, network port, USB controller, RNG, balloon and serial port."""


@check(_TITLE)
def processors(subject: LintSubject) -> Iterator[Finding]:
    """Pinned flavors need dedicated processors, the others shared ones (PCPU and VCPU since Train)."""
    pinned = [shape for shape in subject.shapes if shape.cpu_policy in ("dedicated", "mixed")]
    floating = [shape for shape in subject.shapes if shape.cpu_policy != "dedicated"]
    sets: list[tuple[int, Setting]] = []
    for source in _gpu_hosts(subject) if subject.release.major >= _TRAIN else ():
        dedicated, shared, pin = (_setting(source, option) for option in (DEDICATED, SHARED, PIN))
        if pin or any(setting and setting.unknown for setting in (dedicated, shared)):
            continue
        if pinned and not dedicated and shared:
            yield finding(Code.NO_DEDICATED_CPUS, place=shared.place, flavors=_names(pinned))
        elif pinned and not dedicated and source.configuration.complete:
            yield finding(Code.PINNED_ON_ALL_CPUS, place=source.label, flavors=_names(pinned))
        if floating and dedicated and not shared:
            yield finding(Code.NO_SHARED_CPUS, place=dedicated.place, flavors=_names(floating))
        if dedicated and (cpus := _cpus(dedicated.value)):
            sets.append((len(cpus), dedicated))
    most, largest = max(sets, key=lambda entry: entry[0], default=(0, None))
    too_large = [shape for shape in pinned if shape.cpu_policy == "dedicated" and (shape.vcpus or 0) > most]
    if largest is not None and too_large:
        yield finding(Code.DEDICATED_CPUS_TOO_FEW, place=largest.place, flavors=_names(too_large), most=most)


@check(_TITLE)
def overcommit(subject: LintSubject) -> Iterator[Finding]:
    """RAM that is promised twice: vfio pins all RAM of an instance."""
    for source in _gpu_hosts(subject):
        setting = _setting(source, RATIO)
        if setting is None or number(setting.value) == 0:
            setting = _setting(source, INITIAL_RATIO)
        if setting is None:
            if source.configuration.complete and subject.release.major <= _YOGA:
                state = f"the default of Nova {subject.release}: ram_allocation_ratio = {_OVERCOMMIT}"
                yield finding(Code.RAM_OVERCOMMITTED, place=source.label, state=state)
        elif not setting.unknown and (number(setting.value) or 0) > 1:
            yield finding(Code.RAM_OVERCOMMITTED, place=setting.place, state=f"{setting.name} = {setting.value}")


@check(_TITLE)
def machine_type(subject: LintSubject) -> Iterator[Finding]:
    """On x86, Nova's default machine type has no PCI Express."""
    for source in _gpu_hosts(subject) if subject.shapes else ():
        setting, hosts = _setting(source, MACHINE), subject.hosts_of(source)
        if setting.unknown if setting else not source.configuration.complete:
            continue
        if hosts and not any(host.architecture in (None, "x86_64") for host in hosts):
            continue
        types = dict(entry.strip().partition("=")[::2] for entry in (setting.value if setting else "").split(","))
        machine = types.get("x86_64") or "pc"
        if machine.startswith("pc") and "q35" not in machine:
            yield finding(Code.MACHINE_WITHOUT_PCIE, place=source.place(setting), machine=machine)


@check(_TITLE)
def virtual_tpm(subject: LintSubject) -> Iterator[Finding]:
    """Instances with a virtual TPM start only on hosts with swtpm."""
    requesting = [shape for shape in subject.shapes if shape.tpm]
    for source in _gpu_hosts(subject) if requesting else ():
        setting = _setting(source, SWTPM)
        if setting.unknown if setting else not source.configuration.complete:
            continue
        if setting is None or setting.value.strip().lower() not in TRUE:
            value = f"is {setting.value!r}" if setting else "is not set"
            state = f"[libvirt] swtpm_enabled {value}, but {_names(requesting)} request a virtual TPM"
            place = source.place(setting)
            yield finding(Code.TPM_PREREQUISITES, place=place, severity=Severity.WARNING, state=state)


@check(_TITLE)
def pcie_ports(subject: LintSubject) -> Iterator[Finding]:
    """GPUs take PCIe ports that the operator wanted to keep free for volumes and network ports."""
    largest = max(subject.shapes, key=lambda shape: shape.gpus, default=None)
    for source in _gpu_hosts(subject) if largest is not None else ():
        setting = _setting(source, PORTS)
        ports = number(setting.value) if setting is not None and not setting.unknown else None
        if largest and setting and ports and ports <= largest.gpus + _OWN_PORTS:
            yield finding(
                Code.PCIE_PORTS_TOO_FEW,
                place=setting.place,
                ports=setting.value,
                flavor=largest.flavor,
                gpus=largest.gpus,
                own=_OWN_PORTS,
            )


@check(_TITLE)
def reserved_pages(subject: LintSubject) -> Iterator[Finding]:
    """Huge pages that the host keeps for itself, and that a flavor would need."""
    for source in _gpu_hosts(subject):
        settings = source.configuration.effective(RESERVED_PAGES)
        reserved = [_reserved(setting.value) for setting in settings if not setting.unknown]
        for shape in subject.shapes if reserved else ():
            if needs_huge_pages(shape.page_size) and shape.ram_mib and shape.nodes:
                yield from _reserved_too_many(subject, source, shape, [entry for entry in reserved if entry])


def _reserved_too_many(
    subject: LintSubject, source: Source, shape: InstanceShape, reserved: list[tuple[int, int, int]]
) -> Iterator[Finding]:
    """A finding if an instance fits into a host's huge pages, and into no host's without the reserved ones."""
    request, ram, count = shape.page_size or "", shape.ram_mib or 0, shape.nodes or 1
    most: dict[str, str] = {}
    for host in subject.hosts_of(source):
        if any(node.huge_pages is None for node in host.numa_nodes):
            return
        nodes = {
            n.node: {pool.size_kib: pool.total or 0 for pool in n.huge_pages or ()}
            for n in host.numa_nodes
            if n.cpus != ""
        }
        if not fit(request, ram_mib=ram, nodes=count, host=list(nodes.values())):
            continue
        for node, size, number_of_pages in reserved:
            if size in nodes.get(node, {}):
                nodes[node][size] -= number_of_pages
        if fit(request, ram_mib=ram, nodes=count, host=list(nodes.values())):
            return
        left = (f"{pages} x {size} KiB" for node in nodes.values() for size, pages in matching(request, node).items())
        most[host.hostname] = f"{', '.join(left) or 'none'} without those of reserved_huge_pages"
    for hostname, pages in list(most.items())[:1]:
        yield finding(
            Code.HUGE_PAGES_TOO_FEW,
            place=source.configuration.effective(RESERVED_PAGES)[-1].place,
            ram=f"{-(-ram // count)} MiB",
            size=request,
            nodes=count,
            host=hostname,
            most=pages,
        )


def _reserved(value: str) -> tuple[int, int, int] | None:
    """NUMA node, page size in KiB and number of ``node:0,size:1GB,count:4``."""
    entry = dict(part.strip().partition(":")[::2] for part in value.split(","))
    size = size_kib(entry.get("size", ""))
    if size is None or not entry.get("node", "").isdecimal() or not entry.get("count", "").isdecimal():
        return None
    return int(entry["node"]), size, int(entry["count"])


def _gpu_hosts(subject: LintSubject) -> Iterator[Source]:
    """The configurations of nova-compute that offer devices."""
    return (source for source in subject.serving("compute") if subject.devices_of(source))


def _setting(source: Source, option: Option) -> Setting | None:
    """The effective assignment; None if there is none, or an empty one."""
    setting = source.configuration.last(option)
    return setting if setting and setting.value.strip() else None


def _names(shapes: list[InstanceShape]) -> str:
    return listed([shape.flavor for shape in shapes], 3)


def _cpus(text: str) -> set[int]:
    """The processors of a list; empty if Nova refuses it."""
    try:
        return cpu_sets.cpus(text)
    except cpu_sets.CpuSpecError:
        return set()
