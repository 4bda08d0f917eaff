"""The names of flavor extra specs that gpustack writes or reads, and the values of ``pci_passthrough:alias``."""

from collections.abc import Mapping

from gpustack.base.by_key import sums

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
TRAIT_VALUES = (REQUIRED, "forbidden")


def alias_value(gpus: Mapping[str, int]) -> str:
    """The value of ``pci_passthrough:alias``: ``K4200:2``, or ``K4200:1,P100:2``."""
    return ",".join(f"{alias}:{count}" for alias, count in gpus.items())


def parse_alias(value: str) -> dict[str, int]:
    """The number of GPUs by alias in ``K4200:1,P100:2``, as Nova reads it (``nova/pci/request.py``).

    Malformed parts are ignored.
    """
    return sums((name, max(count, 0)) for name, count in alias_parts(value) if name and count is not None)


def alias_parts(value: str) -> list[tuple[str, int | None]]:
    """Each alias with its number; None for a malformed one, with which Nova boots no instance."""
    return [(name.strip(), as_number(count)) for name, _, count in (part.partition(":") for part in value.split(","))]


def as_number(text: object) -> int | None:
    """A number as Nova reads it, such as 1 of ``+1``; None if it is none."""
    try:
        return int(str(text))
    except ValueError:
        return None


def alias_names(value: str) -> tuple[str, ...]:
    """Every alias in a value, including those of malformed parts."""
    return tuple(name for name, _ in alias_parts(value) if name)


def has_numa_nodes(specs: Mapping[str, str]) -> bool:
    """Whether Nova gives an instance of these extra specs NUMA nodes (nova/virt/hardware.py, numa_get_constraints)."""
    return specs.get(CPU_POLICY) in ("dedicated", "mixed") or not specs.keys().isdisjoint({NUMA_NODES, PAGE_SIZE, PMEM})


def required_traits(specs: Mapping[str, str], value: str = REQUIRED) -> frozenset[str]:
    """The traits that the host must have, or those with another value."""
    names = (name for name, given in specs.items() if name.startswith(TRAIT) and given == value)
    return frozenset(name.removeprefix(TRAIT) for name in names)


def forbidden_traits(specs: Mapping[str, str]) -> frozenset[str]:
    """The traits that the host must not have."""
    return required_traits(specs, "forbidden")
