"""Small hosts for the tests of this directory, made of as little as each test is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpustack.facts.gpus import Gpu, gpus
from gpustack.facts.model import Host
from gpustack.facts.store import parse_host

SNAPSHOTS = Path(__file__).parents[1] / "unit" / "data" / "snapshots"


def snapshot(name: str) -> dict[str, Any]:
    """The plain data of the only host of a snapshot."""
    raw: dict[str, Any]
    (raw,) = json.loads((SNAPSHOTS / f"{name}.json").read_text(encoding="utf-8"))["hosts"]
    return raw


def function(address: str, *, ids: str = "10de:15f8", pci_class: str = "030200", **more: Any) -> dict[str, Any]:
    """One function; a bare Tesla P100, ready for a guest, unless said otherwise."""
    vendor, _, product = ids.partition(":")
    bars = [{"index": 1, "start": 1 << 40, "size": 16 << 30, "bits": 64, "prefetchable": True}]
    said = {"driver": "vfio-pci", "iommu_group": 1, "reset_methods": ["bus"], "bars": bars}
    return {"address": address, "vendor": vendor, "product": product, "class": pci_class, **said, **more}


def raw_host(*functions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A host whose IOMMU is active."""
    iommu = {"acpi_tables": ["DMAR"], "units": ["dmar0"], "group_count": 9, "interrupt_remapping": True}
    said = {"version": 1, "hostname": "gpu01", "architecture": "x86_64", "privileged": True, "iommu": iommu}
    return {**said, **more, "pci": list(functions)}


def host(*functions: dict[str, Any], **more: Any) -> Host:
    """:func:`raw_host`, checked."""
    return parse_host(raw_host(*functions, **more), "test")


def first_gpu(found: Host) -> Gpu:
    """The GPU with the lowest address."""
    return gpus(found)[0]
