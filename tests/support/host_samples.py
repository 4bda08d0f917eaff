"""Hosts for tests as plain data: snapshots with changes, and minimal hosts."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from gpustack.hosts.facts.gpus import Gpu, gpus
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host

SNAPSHOTS = Path(__file__).parents[1] / "unit" / "data" / "snapshots"

Raw = dict[str, Any]


def snapshot(name: str) -> Raw:
    """The plain data of a snapshot's only host."""
    raw: dict[str, Any]
    (raw,) = json.loads((SNAPSHOTS / f"{name}.json").read_text(encoding="utf-8"))["hosts"]
    return raw


def changed(raw: Raw, changes: Raw) -> Raw:
    """A host with changes in the notation of the test cases.

    :param changes: ``set`` (dotted path to value), ``pci`` (address to changed fields; null removes the function,
        an unknown address adds one), ``files`` (path to text; null removes the file), ``kernels`` (modules by
        release, null removes a kernel), ``vfio_aliases`` (by release, each a pattern and a module),
        ``arguments`` (of every ordinary menu entry and the running kernel).
    """
    raw = copy.deepcopy(raw)
    for path, value in changes.get("set", {}).items():
        *parents, last = path.split(".")
        place: Any = raw
        for parent in parents:
            place = place[int(parent)] if isinstance(place, list) else place[parent]
        place[int(last) if isinstance(place, list) else last] = value
    functions = {entry["address"]: entry for entry in raw["pci"]}
    for address, fields in changes.get("pci", {}).items():
        if fields is None:
            functions.pop(address)
        else:
            functions[address] = {**functions.get(address, {"address": address}), **fields}
    raw["pci"] = list(functions.values())
    for path, text in changes.get("files", {}).items():
        if text is None:
            raw["files"].pop(path)
        else:
            raw["files"][path] = {"mode": "0644", "mtime_ns": 1_763_600_000_000_000_000, "text": text}
    kernels = {kernel["release"]: kernel for kernel in raw["boot"]["kernels"]}
    for release, modules in changes.get("kernels", {}).items():
        if modules is None:
            kernels.pop(release)
        else:
            base = next(iter(kernels.values()))
            image = {
                "release": release,
                "image": f"/boot/vmlinuz-{release}",
                "initramfs": f"/boot/initrd.img-{release}",
            }
            kernel = kernels.setdefault(release, {**base, **image})
            merged = {**kernel["modules"], **modules}
            kernel["modules"] = {name: kind for name, kind in merged.items() if kind is not None}
    raw["boot"]["kernels"] = list(kernels.values())
    for release, lines in changes.get("vfio_aliases", {}).items():
        pairs = (line.split() for line in lines)
        kernels[release]["vfio_aliases"] = [{"pattern": pattern, "module": module} for pattern, module in pairs]
    if "arguments" in changes:
        for entry in raw["boot"]["entries"]:
            if not entry["recovery"]:
                entry["arguments"] = changes["arguments"]
        raw["kernel"]["command_line"] = changes["arguments"]
    return raw


def function(address: str, *, ids: str = "10de:15f8", pci_class: str = "030200", **more: Any) -> Raw:
    """One function; by default a Tesla P100 without companions, bound to vfio-pci."""
    vendor, _, product = ids.partition(":")
    bars = [{"index": 1, "start": 1 << 40, "size": 16 << 30, "bits": 64, "prefetchable": True}]
    defaults = {"driver": "vfio-pci", "iommu_group": 1, "reset_methods": ["bus"], "bars": bars}
    return {"address": address, "vendor": vendor, "product": product, "class": pci_class, **defaults, **more}


def raw_host(*functions: Raw, **more: Any) -> Raw:
    """A host whose IOMMU is active."""
    iommu = {"acpi_tables": ["DMAR"], "units": ["dmar0"], "group_count": 9, "interrupt_remapping": True}
    defaults = {"version": 1, "hostname": "gpu01", "architecture": "x86_64", "privileged": True, "iommu": iommu}
    return {**defaults, **more, "pci": list(functions)}


def host(*functions: Raw, **more: Any) -> Host:
    """:func:`raw_host`, parsed."""
    return parse_host(raw_host(*functions, **more), "test")


def first_gpu(host: Host) -> Gpu:
    """The GPU with the lowest address."""
    return gpus(host)[0]
