"""The extra specs of Nova's flavors that gpustack writes or reads, by name, and the request for GPUs among them."""

from __future__ import annotations

from collections.abc import Mapping

ALIAS = "pci_passthrough:alias"
AFFINITY = "hw:pci_numa_affinity_policy"
NUMA_NODES = "hw:numa_nodes"
CPU_POLICY = "hw:cpu_policy"
PAGE_SIZE = "hw:mem_page_size"
MAXPHYSADDR = "hw:maxphysaddr_mode"
HIDE = "hw:hide_hypervisor_id"
OLD_HIDE = "hide_hypervisor_id"
NAMESPACE = "gpustack:"
"""What the names of gpustack's own extra specs begin with."""


def alias_value(gpus: Mapping[str, int]) -> str:
    """``K4200:2``, or ``K4200:1,P100:2``."""
    return ",".join(f"{alias}:{count}" for alias, count in gpus.items())


def parse_alias(value: str) -> dict[str, int]:
    """``K4200:1,P100:2`` as Nova reads it (``nova/pci/request.py``); what is no request is left out."""
    counts: dict[str, int] = {}
    for part in value.split(","):
        name, _, count = part.partition(":")
        if name.strip() and count.strip().isdecimal():
            counts[name.strip()] = counts.get(name.strip(), 0) + int(count)
    return counts


def alias_names(value: str) -> tuple[str, ...]:
    """Every alias that a value names, those of malformed requests too."""
    return tuple(name for part in value.split(",") if (name := part.partition(":")[0].strip()))
