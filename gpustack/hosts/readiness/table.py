"""The rows of `gpustack scan`: the facts and readiness of each GPU, as plain data and as text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.findings import Finding
from gpustack.hosts.facts.gpus import Gpu, gpus
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.readiness.assessment import Readiness, assess
from gpustack.hosts.readiness.host import host_reasons, size
from gpustack.pci import catalogue, classes
from gpustack.pci.catalogue import requirement_of

COLUMNS = {
    "host": "Host",
    "address": "Address",
    "name": "Card",
    "driver": "Driver",
    "iommu_group": "IOMMU group",
    "numa_node": "NUMA",
    "ready": "Ready",
}
"""The default columns: keys of :func:`describe` and their titles."""

FIELDS = (
    *("host", "address", "vendor_id", "product_id", "name", "class", "driver", "iommu_group", "numa_node"),
    *("dev_type", "companions", "ready", "reasons", "notes", "family", "memory", "subsystem_vendor_id"),
    *("subsystem_product_id", "revision", "modules", "driver_override", "boot_vga", "sriov_totalvfs"),
    *("sriov_numvfs", "reset_methods", "link", "slot", "serial", "bars", "bridges", "claims", "neighbours"),
    *("virtual_functions", "mig", "state"),
)
"""All columns: the keys of :func:`describe`, in its order."""

_MEMBERS: Mapping[str, Callable[[Gpu], tuple[Function, ...]]] = {
    "companions": lambda gpu: gpu.companions,
    "neighbours": lambda gpu: gpu.neighbours,
    "virtual_functions": lambda gpu: gpu.virtual,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One GPU of a host, with its readiness."""

    host: Host
    gpu: Gpu
    readiness: Readiness


@dataclass(frozen=True, kw_only=True)
class HostRows:
    """The GPUs of a host by address, and the findings about the host itself."""

    host: Host
    reasons: tuple[Finding, ...]
    rows: tuple[Row, ...]


def by_host(hosts: Sequence[Host]) -> tuple[HostRows, ...]:
    """The rows of each host, in the order of ``hosts``."""
    table = []
    for host in hosts:
        of_host = host_reasons(host)
        rows = tuple(Row(host=host, gpu=gpu, readiness=assess(host, gpu, of_host=of_host)) for gpu in gpus(host))
        table.append(HostRows(host=host, reasons=of_host, rows=rows))
    return tuple(table)


def describe(row: Row) -> dict[str, object]:
    """All fields of a GPU as plain data, in the order of output; unknown values are None."""
    main, readiness = row.gpu.main, row.readiness
    card = catalogue.lookup(main.vendor, main.product, main.subsystem_vendor, main.subsystem_product)
    return {
        "host": row.host.hostname,
        "address": main.address,
        "vendor_id": main.vendor,
        "product_id": main.product,
        "name": row.gpu.name,
        "class": main.pci_class,
        "driver": main.driver,
        "iommu_group": main.iommu_group,
        "numa_node": main.numa_node,
        "dev_type": row.gpu.dev_type,
        "companions": [_member(row.gpu, function) for function in row.gpu.companions],
        "ready": readiness.ready,
        "reasons": [reason.to_dict() for reason in readiness.reasons],
        "notes": [reason.to_dict() for reason in readiness.notes],
        "family": card.family if card else None,
        "memory": card.memory if card else None,
        "subsystem_vendor_id": main.subsystem_vendor,
        "subsystem_product_id": main.subsystem_product,
        "revision": main.revision,
        "modules": list(main.modules),
        "driver_override": main.driver_override,
        "boot_vga": main.boot_vga,
        "sriov_totalvfs": main.sriov_totalvfs,
        "sriov_numvfs": main.sriov_numvfs,
        "reset_methods": list(main.reset_methods),
        "link": main.link.model_dump() if main.link else None,
        "slot": main.slot,
        "serial": main.serial,
        "bars": [bar.model_dump() for bar in main.bars],
        "bridges": [bridge.address for bridge in row.gpu.bridges],
        "claims": list(main.claims),
        "neighbours": [_member(row.gpu, function) for function in row.gpu.neighbours],
        "virtual_functions": [_member(row.gpu, function) for function in row.gpu.virtual],
        "mig": requirement_of(card).mig if card else None,
        "state": readiness.state.value,
    }


def _member(gpu: Gpu, function: Function) -> dict[str, object]:
    return {
        "address": function.address,
        "vendor_id": function.vendor,
        "product_id": function.product,
        "class": function.pci_class,
        "driver": function.driver,
        "same_slot": function.bdf.slot == gpu.main.bdf.slot,
    }


def text(row: Row, key: str, value: object) -> str:
    """Format a field of :func:`describe` for the table; ``-`` if it is unknown or empty."""
    if key == "iommu_group":
        return _group(row.gpu)
    if key == "ready":
        codes = dict.fromkeys(reason.code for reason in row.readiness.reasons)
        return " ".join(codes) or "yes"
    if key == "driver":
        return ", ".join(dict.fromkeys(f.driver or "-" for f in row.gpu.functions))
    if key in ("reasons", "notes"):
        findings = row.readiness.reasons if key == "reasons" else row.readiness.notes
        return "; ".join(f"{f.code} {f.message}" for f in findings) or "-"
    if key in _MEMBERS:
        return ", ".join(f.address for f in _MEMBERS[key](row.gpu)) or "-"
    if key == "bars":
        return ", ".join(f"{bar.index}: {size(bar.size)}" for bar in row.gpu.main.bars) or "-"
    if key == "link":
        link = row.gpu.main.link
        return f"{link.speed or '?'} x{link.width or '?'}" if link else "-"
    if key == "numa_node":
        return "-" if value in (None, -1) else str(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _is_own(gpu: Gpu, function: Function) -> bool:
    return function.bdf.slot == gpu.main.bdf.slot


def _group(gpu: Gpu) -> str:
    """The group and its other members: ``40 with .1 audio``."""
    if gpu.main.iommu_group is None:
        return "-"
    others = list(_others(gpu))
    return f"{gpu.main.iommu_group} with {', '.join(others)}" if others else str(gpu.main.iommu_group)


def _others(gpu: Gpu) -> Iterator[str]:
    """The other members of the group: function number and kind, with the complete address in other slots."""
    for function in sorted((*gpu.companions, *gpu.neighbours), key=lambda f: f.bdf):
        if function.iommu_group != gpu.main.iommu_group:
            continue
        kind = classes.word(function.pci_class).removesuffix(" device").removesuffix(" controller")
        if _is_own(gpu, function):
            yield f".{function.bdf.function:x} {kind}"
        else:
            yield f"{function.address} {kind}"
