"""Judge the health of a host's GPUs by its facts. Pure.

Counters of errors and the kernel's messages count since boot. Against a baseline of the same boot, only what is new
counts; a baseline of another boot still has the cards.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import counted
from gpustack.hosts.facts.collector.signs import CAUSES, CONSEQUENCES, LOST, STARTS, Event, effects, is_of_absent
from gpustack.hosts.facts.gpus import Gpu, gpus, nvswitches
from gpustack.hosts.facts.model import ErrorCounters, Function, Host
from gpustack.hosts.facts.vgpus import framework, type_named
from gpustack.hosts.health.kernel_log import events, on_host
from gpustack.hosts.readiness.assessment import assess, place_of, skipped_at_boot, wanted_at_boot
from gpustack.hosts.readiness.host import host_reasons, is_virtual_machine
from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.check import narrow_links

_OVERWRITTEN = "the kernel has overwritten its oldest messages since boot, so earlier signs are not counted"
MANY_CORRECTED = 100
"""Corrected errors up to this number are normal for a link under load."""
_OF_BINDING = ("nouveau", "probe-failed", "firmware", "force-probe", "legacy", "no-gsp", "open-required", "unsupported")
"""The kinds of signs that another driver serves a GPU, or none."""
_UNNAMED = dict.fromkeys(("driver", "card", "branch", "file", "error", "client", "module", "product"), "unknown")


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health of one GPU.

    :ivar errors: the errors since the baseline, or since boot: of the card and of the port above it together.
    :ivar signs: the signs in the kernel log: of the card, of ports above it, of the physical function of a virtual one.
    :ivar use: its use as Nova and Placement have it; empty if they were not asked, or do not have the GPU. ``units`` is
        the number of instances that it can serve, of which ``used`` are taken; ``state`` and ``instances`` are texts.
    """

    host: Host
    gpu: Gpu
    errors: ErrorCounters | None = None
    findings: tuple[Finding, ...] = ()
    signs: tuple[Event, ...] = ()
    use: Mapping[str, object] = field(default_factory=dict)

    @property
    def without_findings(self) -> str:
        """What no finding means: nothing, if the facts lack the messages or whether the GPU answers."""
        return "unknown" if self.host.kernel.log is None or self.gpu.main.responds is None else "ok"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The health of a host: its GPUs, and findings that concern none of them, such as a missing one.

    :ivar signs: the signs that concern the host as such: without a device, of an NVSwitch, on which all GPUs of the
        board depend, and of a device that is no longer on the bus.
    """

    gpus: tuple[Health, ...] = ()
    others: tuple[Finding, ...] = field(default=())
    signs: tuple[Event, ...] = ()


def check(host: Host, baseline: Host | None = None) -> Report:
    """Judge a host.

    :param baseline: its facts at an earlier time.
    """
    links = {entry.place: entry for entry in narrow_links(topology(host))}
    booted = host.kernel.booted_at
    earlier = baseline if baseline and booted is not None and booted == baseline.kernel.booted_at else None
    new = _new_events(host, earlier)
    reasons = host_reasons(host)
    judged = tuple(_judged(host, gpu, earlier, new, links.values(), reasons) for gpu in gpus(host))
    fabric = {function.address for function in nvswitches(host)}
    of_host = tuple(event for event in new if event.address in fabric or event.address not in host.functions)
    is_bound = any(function.driver == "nouveau" for function in host.functions.values())
    of_host = tuple(event for event in of_host if is_bound or event.kind != "nouveau")  # it is vfio-pci otherwise
    others = (*_cards(host, baseline), *sign_findings(of_host, host.hostname, host.hostname), *_unknown(host, earlier))
    return Report(gpus=judged, others=others, signs=of_host)


def _judged(
    host: Host,
    gpu: Gpu,
    earlier: Host | None,
    new: Iterable[Event],
    links: Iterable[Finding],
    reasons: Sequence[Finding],
) -> Health:
    errors = {f.address: _since(f, earlier) for f in _counted(host, gpu)}
    concerned = _concerned(host, gpu)
    readiness = assess(host, gpu, of_host=reasons)
    assessed = (*readiness.reasons, *readiness.notes)
    bound: dict[str | None, str | None] = {f.address: f.driver for f in (*gpu.functions, *gpu.virtual)}
    # The facts have the addresses of its BARs.
    of_gpu = [event for event in new if event.address in concerned and event.kind != "bar-unplaced"]
    signs = tuple(event for event in of_gpu if not is_outdated(event, bound, of_gpu))
    findings = [
        *(f for f in assessed if f.code in (Code.DEVICE_NOT_RESPONDING, Code.BAR_UNASSIGNED)),
        *_errors(host, gpu, errors),
        *(found for found in links if found.place in {f"{host.hostname} {f.address}" for f in gpu.functions}),
        *(f for f in assessed if f.code in (Code.NO_RESET_METHOD, Code.ACS_SWITCHED_OFF)),
        *sign_findings(signs, place_of(host, gpu), host.hostname, gpu.main.address),
        *_vgpus(host, gpu),
    ]
    return Health(host=host, gpu=gpu, errors=_sum(errors.values()), findings=tuple(findings), signs=signs)


def is_outdated(event: Event, drivers: Mapping[str | None, str | None], events: Iterable[Event]) -> bool:
    """Whether the driver that serves a function now has outdated a message; one that failed needs its firmware.

    :param events: all messages.
    """
    if event.kind == "firmware" and any((e.kind, e.address) == ("init-failed", event.address) for e in events):
        return False
    served = drivers.get(event.address) not in (None, event.kind)  # NVIDIA's starts some GPUs without its firmware
    return event.kind in _OF_BINDING and (served or (event.kind, event.values.get("driver")) == ("firmware", "nvidia"))


def _counted(host: Host, gpu: Gpu) -> list[Function]:
    """The functions whose counters concern a card: its own, and the port above it, where its errors may count."""
    port = host.functions.get(gpu.main.parent or "")
    return [*gpu.functions, *([port] if port is not None else [])]


def _since(function: Function, earlier: Host | None) -> ErrorCounters | None:
    """The errors since the baseline, else since boot."""
    now = function.aer
    before = earlier.functions.get(function.address) if earlier else None
    if now is None or before is None or before.aer is None or before.ids != function.ids:
        return now
    then = dict(before.aer)
    return ErrorCounters(**{kind: _difference(count, then[kind]) for kind, count in now})


def _difference(now: int | None, before: int | None) -> int | None:
    """The increase; a counter that is lower than before began again (the device was removed and found again)."""
    return now if now is None or before is None or now < before else now - before


def _sum(counters: Iterable[ErrorCounters | None]) -> ErrorCounters | None:
    known = [entry for entry in counters if entry is not None]
    sums = {kind: sum(getattr(entry, kind) or 0 for entry in known) for kind in ErrorCounters.model_fields}
    return ErrorCounters(**sums) if known else None


def _errors(host: Host, gpu: Gpu, errors: dict[str, ErrorCounters | None]) -> Iterator[Finding]:
    known = {address: entry for address, entry in errors.items() if entry is not None}
    uncorrected = [
        f"{count} {kind} at {address}"
        for address, entry in known.items()
        for kind in ("fatal", "nonfatal")
        if (count := getattr(entry, kind))
    ]
    place, text = place_of(host, gpu), ", ".join(uncorrected)
    if uncorrected:
        address = gpu.main.address
        yield finding(Code.UNCORRECTED_ERRORS, place=place, errors=text, host=host.hostname, address=address)
    corrected = [f"{n} at {address}" for address, e in known.items() if (n := e.correctable or 0) > MANY_CORRECTED]
    if corrected:
        yield finding(Code.CORRECTED_ERRORS, place=place, errors=", ".join(corrected))


def _vgpus(host: Host, gpu: Gpu) -> Iterator[Finding]:
    """A card that lacks vGPUs of the type that the unit prepares at boot; the record of the unit has the type."""
    for number, name in wanted_at_boot(host, gpu.main):
        kind = type_named(host, gpu.main, name)
        typed = sum(not isinstance(kind, str) and f.vgpu_type == kind.number for f in gpu.virtual)
        if isinstance(kind, str) or (framework(host, gpu.main) != "mdev" and typed < number):
            present = kind if isinstance(kind, str) else f"virtual functions with the type: {typed} of {number}"
            reason = skipped_at_boot(host).get(gpu.main.address, present)
            yield finding(Code.VGPU_CARD_LEFT_OUT, place=place_of(host, gpu), wanted=f"vGPU type {name}", reason=reason)


def _new_events(host: Host, earlier: Host | None) -> list[Event]:
    """The events since the baseline: without its messages, each as often as it has it."""
    known = Counter((earlier.kernel.log or ()) if earlier else ())
    new = []
    for message in host.kernel.log or ():
        if known[message] > 0:
            known[message] -= 1
        else:
            new.append(message)
    vendors = {function.vendor for function in (*(gpu.main for gpu in gpus(host)), *nvswitches(host))}
    found = (event for event in events(new) if not is_of_absent(event.sign, event.message, vendors))
    return [on_host(event) for event in found if not event.is_of_other()]


def _concerned(host: Host, gpu: Gpu) -> frozenset[str]:
    """The addresses whose messages concern a GPU: its own, of the ports above it, of its physical function."""
    addresses = set(gpu.addresses)
    function: Function | None = gpu.main
    while function is not None and (above := function.parent or function.root_parent) and above not in addresses:
        addresses.add(above)
        function = host.functions.get(above)
    if gpu.main.physical_function:
        addresses.add(gpu.main.physical_function)
    return frozenset(addresses)


def sign_findings(signs: Sequence[Event], place: str, host: str = "HOST", gpu: str | None = None) -> Iterator[Finding]:
    """One finding for each code and place, with the last message; none for what follows from another sign.

    :param gpu: the address of the GPU that all signs concern; None if each concerns the function in its message.
    """
    caused = {e.address for e in signs if e.kind in CAUSES or (e.severity == "error" and e.sign.startswith(LOST))}
    first = (e for e in signs if e.name not in STARTS or not caused or e.address not in {None, *caused})
    failed = any(event.severity == "error" and event.sign not in CONSEQUENCES for event in signs)
    first = (event for event in first if not (failed and event.sign in CONSEQUENCES))
    later = effects((event.address, event.name, event.severity) for event in signs)
    first = (event for event in first if (event.address, event.name) not in later)
    by_place = by_key(((event.code or "", None if gpu else event.address), event) for event in first)
    for (code, address), of_place in by_place.items():
        last = of_place[0 if of_place[0].name in STARTS else -1]
        values = {**_UNNAMED, "text": last.message, "bars": f"BAR {last.values.get('bar')}", **last.values}
        yield finding(
            Code(code),
            place=f"{place} {address}" if address else place,
            severity=max((Severity(event.severity or "info") for event in of_place), key=lambda each: each.rank),
            **{**values, "count": sum(event.count for event in of_place), "message": last.message},
            host=host,
            address=gpu or address or "ADDRESS",
        )


def _cards(host: Host, baseline: Host | None) -> Iterator[Finding]:
    """GPUs that the baseline has and the host lacks, and the reverse."""
    if baseline is None:
        return
    now, before = ({gpu.main.address: gpu for gpu in gpus(each)} for each in (host, baseline))
    for address, gpu in before.items():
        if address not in now:  # another card in its place is a new one
            yield finding(
                Code.GPU_MISSING, place=place_of(host, gpu), card=gpu.name, host=host.hostname, address=address
            )
    for address, gpu in now.items():
        if address not in before or before[address].main.ids != gpu.main.ids:
            yield finding(Code.GPU_NEW, place=f"{host.hostname} {address}", card=gpu.name, host=host.hostname)


def _unknown(host: Host, earlier: Host | None) -> Iterator[Finding]:
    """What the facts do not contain, so that its absence proves nothing.

    :param earlier: the baseline of the same boot: what the kernel overwrote before it is in it.
    """
    cards = gpus(host)
    lacking = {
        "the kernel log": bool(cards) and host.kernel.log is None,
        "AER counters": bool(cards) and not is_virtual_machine(host) and all(gpu.main.aer is None for gpu in cards),
        "whether each GPU answers": any(gpu.main.responds is None for gpu in cards),
    }
    if unknown := [name for name, is_lacking in lacking.items() if is_lacking]:
        yield finding(Code.HEALTH_UNKNOWN, place=host.hostname, missing=", ".join(unknown))
    oldest = (host.kernel.booted_at or 0) + (host.kernel.log_since or 0)
    read_at = earlier.read_at.replace(tzinfo=UTC).timestamp() if earlier and earlier.read_at else 0
    dropped = (host.kernel.log_dropped or 0) - ((earlier.kernel.log_dropped or 0) if earlier else 0)
    lost = [_OVERWRITTEN] if host.kernel.log_since and oldest > read_at else []
    lost += [f"the facts lack {counted(dropped, 'older message')} of the same devices and kinds"] if dropped > 0 else []
    if cards and lost:
        yield finding(Code.KERNEL_LOG_INCOMPLETE, place=host.hostname, missing="; ".join(lost))
