"""The rows of `gpustack scan`: the facts and readiness of each GPU, as plain data and as text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gpustack.base.columns import Column
from gpustack.base.findings import Finding
from gpustack.hosts.facts.gpus import Gpu, card_of, gpus
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.twins import decided
from gpustack.hosts.readiness.assessment import Readiness, assess
from gpustack.hosts.readiness.host import host_reasons, size
from gpustack.pci import classes
from gpustack.pci.catalogue import requirement_of


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
    return tuple(decided(host, _rows, _rows) for host in hosts)


def _rows(host: Host) -> HostRows:
    of_host = host_reasons(host)
    rows = tuple(Row(host=host, gpu=gpu, readiness=assess(host, gpu, of_host=of_host)) for gpu in gpus(host))
    return HostRows(host=host, reasons=of_host, rows=rows)


def _ready(row: Row) -> str:
    return " ".join(dict.fromkeys(reason.code for reason in row.readiness.reasons)) or "yes"


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
        if function.bdf.slot == gpu.main.bdf.slot:
            yield f".{function.bdf.function:x} {kind}"
        else:
            yield f"{function.address} {kind}"


def _members(row: Row, functions: Iterable[Function]) -> list[dict[str, object]]:
    return [
        {
            "address": function.address,
            "vendor_id": function.vendor,
            "product_id": function.product,
            "class": function.pci_class,
            "driver": function.driver,
            "same_slot": function.bdf.slot == row.gpu.main.bdf.slot,
        }
        for function in functions
    ]


def _listed(findings: Iterable[Finding]) -> str:
    return "; ".join(f"{f.code} {f.message}" for f in findings)


def _functions(key: str, of: Callable[[Gpu], Sequence[Function]]) -> Column[Row]:
    return Column(key, lambda row: _members(row, of(row.gpu)), "", lambda row: [f.address for f in of(row.gpu)])


def _findings(key: str) -> Column[Row]:
    of = attrgetter(f"readiness.{key}")
    return Column(key, lambda row: [entry.to_dict() for entry in of(row)], "", lambda row: _listed(of(row)))


_PLAIN = ("driver_override", "boot_vga", "sriov_totalvfs", "sriov_numvfs")
COLUMNS: tuple[Column[Row], ...] = (
    Column("host", lambda row: row.host.hostname, "Host"),
    Column("address", lambda row: row.gpu.main.address, "Address"),
    Column("vendor_id", lambda row: row.gpu.main.vendor),
    Column("product_id", lambda row: row.gpu.main.product),
    Column("name", lambda row: row.gpu.name, "Card"),
    Column("class", lambda row: row.gpu.main.pci_class),
    Column(
        "driver",
        lambda row: row.gpu.main.driver,
        "Driver",
        lambda row: ", ".join(dict.fromkeys(f.driver or "-" for f in row.gpu.functions)),
    ),
    Column("iommu_group", lambda row: row.gpu.main.iommu_group, "IOMMU group", lambda row: _group(row.gpu)),
    Column(
        "numa_node",
        lambda row: row.gpu.main.numa_node,
        "NUMA",
        lambda row: None if row.gpu.main.numa_node in (None, -1) else str(row.gpu.main.numa_node),
    ),
    Column("dev_type", lambda row: row.gpu.dev_type),
    _functions("companions", lambda gpu: gpu.companions),
    Column("ready", lambda row: row.readiness.ready, "Ready", _ready),
    _findings("reasons"),
    _findings("notes"),
    Column("family", lambda row: card.family if (card := card_of(row.gpu.main)) else None),
    Column("memory", lambda row: card.memory if (card := card_of(row.gpu.main)) else None),
    Column("subsystem_vendor_id", lambda row: row.gpu.main.subsystem_vendor),
    Column("subsystem_product_id", lambda row: row.gpu.main.subsystem_product),
    Column("revision", lambda row: row.gpu.main.revision),
    Column("modules", lambda row: list(row.gpu.main.modules)),
    *(Column(key, attrgetter(f"gpu.main.{key}")) for key in _PLAIN),
    Column("reset_methods", lambda row: list(row.gpu.main.reset_methods)),
    Column("link", lambda row: (link := row.gpu.main.link) and link.model_dump(), "", lambda row: row.gpu.main.link),
    Column("slot", lambda row: row.gpu.main.slot),
    Column("serial", lambda row: row.gpu.main.serial),
    Column(
        "bars",
        lambda row: [bar.model_dump() for bar in row.gpu.main.bars],
        "",
        lambda row: ", ".join(f"{bar.index}: {size(bar.size)}" for bar in row.gpu.main.bars),
    ),
    Column("bridges", lambda row: [bridge.address for bridge in row.gpu.bridges]),
    Column("claims", lambda row: list(row.gpu.main.claims)),
    _functions("neighbours", lambda gpu: gpu.neighbours),
    _functions("virtual_functions", lambda gpu: gpu.virtual),
    Column("mig", lambda row: requirement_of(card).mig if (card := card_of(row.gpu.main)) else None),
    Column("state", lambda row: row.readiness.state.value),
)
"""The columns of `gpustack scan`."""
