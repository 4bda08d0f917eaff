"""The columns of `gpustack health`: GPUs, and signs of a log.

The signs of a saved kernel log, without facts of its host: the log itself lists GPUs and the ports above them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from gpustack.base.columns import Column, codes, described
from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.collector.signs import MOST_EVENTS, Event, is_of_absent
from gpustack.hosts.health.check import Health, is_outdated, sign_findings
from gpustack.hosts.health.kernel_log import on_host, table
from gpustack.pci import catalogue

SIGNS: tuple[Column[Event], ...] = (
    Column("id", lambda event: event.sign, "Id"),
    Column("address", lambda event: event.address, "Address"),
    Column("code", lambda event: event.code, "Code"),
    Column("severity", lambda event: event.severity, "Severity"),
    Column("count", lambda event: event.count, "Count", lambda event: str(event.count)),
    Column("first", lambda event: event.first, "First"),
    Column("last", lambda event: event.last, "Last"),
    Column("earlier_boot", lambda event: event.earlier, "Earlier boot"),
    Column("message", lambda event: event.message, "Message"),
)
"""The columns of the signs in a kernel log."""


_USE: tuple[Column[Health], ...] = (
    Column("units", lambda health: health.use.get("units")),
    Column("used", lambda health: health.use.get("used"), "In Nova", lambda health: health.use.get("state")),
    Column("holders", lambda health: health.use.get("holders"), "Instances", lambda h: h.use.get("instances")),
)
_COLUMNS: tuple[Column[Health], ...] = (
    Column("host", lambda health: health.host.hostname, "Host"),
    Column("address", lambda health: health.gpu.main.address, "Address"),
    Column("model", lambda health: health.gpu.name, "Model"),
    Column(
        "findings",
        lambda h: [entry.to_dict() for entry in h.findings],
        "Health",
        lambda h: codes(h.findings, h.without_findings),
    ),
    Column("responds", lambda health: health.gpu.main.responds),
    Column("fatal", lambda health: health.errors.fatal if health.errors else None, "Fatal"),
    Column("nonfatal", lambda health: health.errors.nonfatal if health.errors else None, "Nonfatal"),
    Column("correctable", lambda health: health.errors.correctable if health.errors else None, "Corrected"),
    Column("link_width", lambda h: h.gpu.main.link.width if h.gpu.main.link else None, "Link", lambda h: _width(h)),
    Column("power_state", lambda health: health.gpu.main.power_state, "Power"),
    Column("max_link_width", lambda health: health.gpu.main.link.max_width if health.gpu.main.link else None),
    Column("reset_methods", lambda health: list(health.gpu.main.reset_methods)),
    Column("signs", lambda h: [described(SIGNS, event) for event in h.signs], "", lambda h: [e.sign for e in h.signs]),
)


def columns(*, use: bool) -> tuple[Column[Health], ...]:
    """The columns of GPUs.

    :param use: whether tables show their instances.
    """
    return (*_COLUMNS[:4], *(_USE if use else (replace(column, title="") for column in _USE)), *_COLUMNS[4:])


def _width(health: Health) -> str:
    link = health.gpu.main.link
    return f"x{link.lanes}" if link and link.lanes else ""


_GPUS = ("03", "12")
_FUNCTION = itemgetter("vendor", "product", "class")


def check_log(lines: Iterable[str], place: str) -> tuple[list[Event], list[Finding]]:
    """Judge a log: its signs of GPUs, of ports above them, and of the host, and the findings.

    The signs of earlier boots are no findings.

    :param place: its name, for findings.
    """
    found = [on_host(event) for event in table().events(lines) if not event.is_of_other()]
    current = [event for event in found if not event.earlier]
    functions = [event for event in current if event.kind == "function"]
    gpus = {event.address for event in functions if _is_gpu(event)}
    fabric = {event.address for event in functions if catalogue.is_nvswitch(*_FUNCTION(event.values))}
    started = any(event.kind == "boot" for event in current)
    # Without its start, a log need not list each GPU, nor the ports above it.
    concerned = {*gpus, *fabric, *_ports(current, gpus)} if functions and started else None
    drivers = {event.address: event.values["driver"] for event in current if event.kind == "initialized"}
    signs = [event for event in found if event.code and _concerns(event, concerned)]
    vendors = {event.values["vendor"] for event in functions if event.address in gpus | fabric}
    signs = [e for e in signs if e.earlier or concerned is None or not is_of_absent(e.sign, e.message, vendors)]
    # A probe that failed before was ended by the driver's start.
    signs = [e for e in signs if e.earlier or e.kind == "probe-failed" or not is_outdated(e, drivers, current)]
    last = [event for event in signs if not event.earlier]
    findings = list(sign_findings(last, place))
    missing = [] if started else ["the log has no start of a kernel"]
    missing += [] if gpus else ["the log lists no GPU"]
    missing += [f"it has {MOST_EVENTS} different signs, and more are not read"] if len(signs) >= MOST_EVENTS else []
    if missing:
        findings.append(finding(Code.KERNEL_LOG_INCOMPLETE, place=place, missing="; ".join(missing)))
    return signs, findings


def _is_gpu(event: Event) -> bool:
    return event.values["class"].startswith(_GPUS) and not catalogue.is_console(*_FUNCTION(event.values)[:2])


def _concerns(event: Event, concerned: set[str | None] | None) -> bool:
    """Whether a message is the host's, or of a GPU, an NVSwitch or a port; later boots can renumber."""
    if concerned is None:  # the driver that speaks decides
        return not event.is_of_other(speaker=True)
    slots = {str(address).rpartition(".")[0] for address in concerned}
    return event.address is None or event.earlier or event.address.rpartition(".")[0] in slots


def _ports(events: Sequence[Event], gpus: set[str | None]) -> Iterator[str | None]:
    """The ports above the GPUs, by the buses that the kernel printed for them."""
    for event in events:
        if event.kind == "bridge" and event.address is not None:
            first, _, last = event.values["bus"].partition("-")
            domain, buses = event.address.partition(":")[0], range(int(first, 16), int(last or first, 16) + 1)
            if any(str(gpu).split(":")[0] == domain and int(str(gpu).split(":")[1], 16) in buses for gpu in gpus):
                yield event.address
