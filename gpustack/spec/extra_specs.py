"""The names of flavor extra specs that gpustack writes or reads, and the values of ``pci_passthrough:alias``."""

from collections.abc import Mapping

ALIAS = "pci_passthrough:alias"
AFFINITY = "hw:pci_numa_affinity_policy"
NUMA_NODES = "hw:numa_nodes"
CPU_POLICY = "hw:cpu_policy"
PAGE_SIZE = "hw:mem_page_size"
MAXPHYSADDR = "hw:maxphysaddr_mode"
MAXPHYSADDR_BITS = "hw:maxphysaddr_bits"
PMEM = "hw:pmem"
HIDE = "hw:hide_hypervisor_id"
OLD_HIDE = "hide_hypervisor_id"
SECURE_BOOT = "os:secure_boot"
TPM_VERSION = "hw:tpm_version"
TPM_MODEL = "hw:tpm_model"
NAMESPACE = "gpustack:"
"""The prefix of gpustack's own extra specs."""
TRAIT, REQUIRED = "trait:", "required"
"""``trait:NAME = required``: the host must have the trait."""


def alias_value(gpus: Mapping[str, int]) -> str:
    """The value of ``pci_passthrough:alias``: ``K4200:2``, or ``K4200:1,P100:2``."""
    return ",".join(f"{alias}:{count}" for alias, count in gpus.items())


def parse_alias(value: str) -> dict[str, int]:
    """The number of GPUs by alias in ``K4200:1,P100:2``, as Nova reads it (``nova/pci/request.py``).

    Malformed parts are ignored.
    """
    counts: dict[str, int] = {}
    for part in value.split(","):
        name, _, count = part.partition(":")
        if name.strip() and count.strip().isdecimal():
            counts[name.strip()] = counts.get(name.strip(), 0) + int(count)
    return counts


def alias_names(value: str) -> tuple[str, ...]:
    """Every alias in a value, including those of malformed parts."""
    return tuple(name for part in value.split(",") if (name := part.partition(":")[0].strip()))


def has_numa_nodes(specs: Mapping[str, str]) -> bool:
    """Whether Nova gives an instance of these extra specs NUMA nodes (nova/virt/hardware.py, numa_get_constraints)."""
    return specs.get(CPU_POLICY) in ("dedicated", "mixed") or not specs.keys().isdisjoint({NUMA_NODES, PAGE_SIZE, PMEM})


def required_traits(specs: Mapping[str, str]) -> frozenset[str]:
    """The traits that the host must have."""
    return _traits(specs, REQUIRED)


def forbidden_traits(specs: Mapping[str, str]) -> frozenset[str]:
    """The traits that the host must not have."""
    return _traits(specs, "forbidden")


def _traits(specs: Mapping[str, str], wanted: str) -> frozenset[str]:
    names = (name for name, value in specs.items() if name.startswith(TRAIT) and value == wanted)
    return frozenset(name.removeprefix(TRAIT) for name in names)
