"""Checks of PCI in Placement, and of the options that keep requests for several GPUs possible."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.lint.subject import REPORT, SCHEDULE, LintSubject, check
from gpustack.configure.packing import MULTIPLIER, Advised, number
from gpustack.configure.sources import PLACEMENT
from gpustack.nova_options.config import Setting
from gpustack.nova_options.options import TRUE

_SEVERAL = "Requests for several GPUs"
_SPREADS = 1.0
"""Nova's default of the multiplier. Instances are spread with it, and with any lower value."""


@check(_SEVERAL)
def multiplier(subject: LintSubject) -> Iterator[Finding]:
    """PCIWeigher must outvote the other weighers if flavors request a model in several counts."""
    for source in subject.schedulers if MULTIPLIER in subject.advised else ():
        setting = source.configuration.last(MULTIPLIER.option)
        if setting is not None and setting.unknown:
            continue
        weight = number(setting.value) if setting is not None else None
        if setting is None or weight is None or weight <= _SPREADS:
            state = f"= {setting.value!r}" if setting else "is not set"
            yield finding(Code.INSTANCES_SPREAD, place=source.place(setting), state=state, value=MULTIPLIER.value)


@check(_SEVERAL)
def candidates(subject: LintSubject) -> Iterator[Finding]:
    """Placement must limit its candidates if flavors request many GPUs."""
    needed = [advice for advice in subject.advised if PLACEMENT in advice.option.services]
    sources = subject.serving(PLACEMENT)
    for source in sources if needed else ():
        missing = [advice for advice in needed if not _is_fulfilled(source.configuration.last(advice.option), advice)]
        if missing:
            options = ", ".join(f"[{a.option.group}] {a.option.name}" for a in missing)
            lines = ", ".join(f"[{a.option.group}] {a.option.name} = {a.value}" for a in missing)
            yield finding(Code.CANDIDATES_UNLIMITED, place=source.label, options=options, lines=lines)
    if needed and not sources:
        yield finding(Code.PLACEMENT_NOT_CHECKED, place="placement.conf")


def _is_fulfilled(setting: Setting | None, advice: Advised) -> bool:
    """Whether an option has the advised value, or another limit of the operator."""
    if setting is None:
        return False
    limit = number(setting.value) if advice.option.kind == "number" else None
    return bool(setting.unknown) or advice.means(setting.value) or (limit is not None and limit > 0)


_TITLE = "PCI in Placement"


@check(_TITLE)
def reports(subject: LintSubject) -> Iterator[Finding]:
    """Compute hosts that do not report although others do, or although the scheduler relies on it."""
    computes = subject.serving("compute")
    on = next((source for source in computes if subject.on(REPORT, source)), None)
    scheduled = subject.scheduled_by_placement
    for source in computes:
        if subject.on(REPORT, source):
            continue
        place = source.place(source.configuration.last(REPORT))
        if scheduled is not None:
            yield finding(
                Code.PCI_IN_PLACEMENT_WITHOUT_REPORT, place=place, other=scheduled.label, **subject.doubt(source)
            )
        elif on is not None:
            doubt = subject.doubt(source)["doubt"]
            yield finding(
                Code.PLACEMENT_REPORTS_DIFFER, place=place, severity=Severity.WARNING, other=on.label, doubt=doubt
            )


@check(_TITLE)
def switched_off(subject: LintSubject) -> Iterator[Finding]:
    """report_in_placement on in one file and off in a later one."""
    for source in subject.serving("compute"):
        setting = source.configuration.last(REPORT)
        if not REPORT.known_to(subject.release) or not setting or subject.on(REPORT, source):
            continue
        if before := [s for s in source.configuration.all(REPORT) if s.value.lower() in TRUE]:
            yield finding(Code.PLACEMENT_REPORT_OFF_AGAIN, place=setting.place, other=before[0].place)


@check(_TITLE)
def everywhere(subject: LintSubject) -> Iterator[Finding]:
    """pci_in_placement on for some of API, scheduler and conductor, and off for others."""
    scheduled = subject.scheduled_by_placement
    for source in subject.serving("api", "scheduler", "conductor"):
        if scheduled is not None and not subject.on(SCHEDULE, source):
            services = [f"nova-{s}" for s in source.services if s != "compute"]
            place, doubt = source.place(source.configuration.last(SCHEDULE)), subject.doubt(source)
            yield finding(
                Code.PCI_IN_PLACEMENT_DIFFERS, place=place, other=scheduled.label, services=", ".join(services), **doubt
            )
