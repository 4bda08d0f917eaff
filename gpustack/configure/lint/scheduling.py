"""Checks of scheduling: the scheduler's filters, requests for several GPUs, and PCI in Placement."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.desired import PCI_FILTER
from gpustack.configure.lint.subject import LintSubject, check
from gpustack.configure.packing import MULTIPLIER, Advised, number
from gpustack.configure.sections import with_filters
from gpustack.configure.sources import AVAILABLE, FILTERS, PLACEMENT, Source, makes_available, values
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting
from gpustack.nova_options.filters import DOTTED, Fault, FilterFault, faults, not_importable, startable
from gpustack.nova_options.mediated import list_option
from gpustack.nova_options.options import TRUE
from gpustack.nova_options.scheduler import REPORT, SCHEDULE, beyond, wanted_stage

_FILTERS, _SEVERAL, _TITLE = "Scheduler filters", "Requests for several GPUs", "PCI in Placement"
_WEIGHERS = releases.option("filter_scheduler/weight_classes")
_SPREADS = 1.0
"""Nova's default of the multiplier. Instances are spread with it, and with any lower value."""


@check(_FILTERS)
def enabled(subject: LintSubject) -> Iterator[Finding]:
    """PciPassthroughFilter must be in the effective list."""
    for source in subject.serving("scheduler"):
        setting = subject.last(source, FILTERS)
        if setting and setting.unknown:
            continue
        current = values(setting.value) if setting else (*releases.default_filters(subject.release), *source.filters)
        if PCI_FILTER in current or not (setting or subject.aliases or source.services == ("scheduler",)):
            continue
        supposed = not setting and not source.named
        misspelled = [name for name in current if name.lower() == PCI_FILTER.lower()]
        if _mediated(subject) and not misspelled:
            continue
        if supposed and any(other.named for other in subject.serving("scheduler")):
            continue
        fault = "enabled_filters has no PciPassthroughFilter"
        if misspelled:
            fault += f": it is spelled {misspelled[0]}, and nova-scheduler does not start with a filter that is none"
        if not setting:
            fault = f"enabled_filters is not set, and the default of Nova {subject.release} has no PciPassthroughFilter"
            fault += subject.doubt(source)["doubt"]
        lines = [line.value for line in source.configuration.effective(AVAILABLE.of(subject.release))]
        better = ",".join(with_filters(startable(current, lines, subject.release)))
        grave = Severity.WARNING if supposed else None
        yield finding(Code.PCI_FILTER_DISABLED, place=source.place(setting), severity=grave, what=fault, filters=better)


def _mediated(subject: LintSubject) -> bool:
    """Whether the hosts offer mediated devices alone: no request for them needs the filter."""
    options = {option.path for _, option, _ in subject.effective()}
    of_pci = any(path.startswith("pci/") for path in options)
    return list_option(subject.release).path in options and not (of_pci or subject.expected)


@check(_FILTERS)
def available(subject: LintSubject) -> Iterator[Finding]:
    """PciPassthroughFilter must be among the available filters."""
    for source in subject.serving("scheduler"):
        settings = source.configuration.effective(AVAILABLE.of(subject.release))
        if settings and not makes_available([s.value for s in settings], subject.release):
            yield finding(Code.AVAILABLE_FILTERS_WITHOUT_PCI, place=settings[-1].place)


@check(_FILTERS)
def known(subject: LintSubject) -> Iterator[Finding]:
    """Filters that can't be enabled: nova-scheduler does not start with them."""
    for source in subject.serving("scheduler"):
        enabled = source.configuration.effective(FILTERS.of(subject.release))[-1:]
        lines = source.configuration.effective(AVAILABLE.of(subject.release))
        if any(setting.unknown for setting in (*enabled, *lines)) or not (enabled or lines):
            continue
        for line in lines:
            for fault in not_importable([line.value], subject.release):
                yield _fault(subject, source, line, fault)
        names = values(enabled[0].value) if enabled else releases.default_filters(subject.release)
        for fault in faults(names, [line.value for line in lines], subject.release):
            if fault.name.lower() != PCI_FILTER.lower():
                yield _fault(subject, source, (*enabled, *lines)[0], fault)


def _fault(subject: LintSubject, source: Source, line: Setting, fault: FilterFault) -> Finding:
    if fault.fault is Fault.UNAVAILABLE:
        return finding(Code.FILTER_UNAVAILABLE, place=line.place, filter=fault.name)
    use = f"write {fault.instead}" if fault.instead else f"take {fault.name} out of enabled_filters"
    if fault.fault is Fault.NOT_IMPORTABLE and not fault.instead and DOTTED.fullmatch(fault.name):
        use = "remove the line"
    elif fault.fault is Fault.NOT_IMPORTABLE:
        use = f"write available_filters = {fault.instead or 'MODULE.CLASS, in one line for each class'}"
    elif not fault.name:
        use = "remove the superfluous comma"
    elif fault.fault is Fault.UNKNOWN:
        use = f"add a line available_filters = MODULE.{fault.name}, or {use}"
    # The class may be named in another file, unless these files include nova.conf itself.
    elsewhere = fault.name.isidentifier() and fault.fault is Fault.UNKNOWN and not source.configuration.complete
    return finding(
        Code.FILTER_UNKNOWN,
        place=line.place,
        severity=Severity.WARNING if elsewhere else None,
        filter=fault.name or "''",
        release=subject.release,
        hint=fault.hint,
        use=use,
    )


@check(_FILTERS)
def weighers(subject: LintSubject) -> Iterator[Finding]:
    """Entries of weight_classes that nova-scheduler can't import; those of other packages are not known."""
    for source in subject.serving("scheduler"):
        setting = subject.last(source, _WEIGHERS)
        if setting is None or setting.unknown:
            continue
        known = {"nova.scheduler.weights.all_weighers", *releases.classes("weighers", subject.release)}
        for name in values(setting.value):
            if name not in known and (name.startswith("nova.scheduler.weights.") or not DOTTED.fullmatch(name)):
                yield finding(Code.WEIGHER_UNKNOWN, place=setting.place, release=subject.release, name=name or "''")


@check(_FILTERS)
def replaced(subject: LintSubject) -> Iterator[Finding]:
    """Lists that a later list replaces, losing filters."""
    for source in subject.serving("scheduler"):
        if (last := subject.last(source, FILTERS)) is None:
            continue
        for setting in source.configuration.all(FILTERS.of(subject.release)):
            lost = [f for f in values(setting.value) if f not in values(last.value)]
            if setting != last and lost:
                loss = f", which lacks {', '.join(lost)}"
                yield finding(Code.FILTERS_REPLACED, place=setting.place, other=last.place, lost=loss)


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
def beyond_the_spec(subject: LintSubject) -> Iterator[Finding]:
    """Switches that are on beyond the stage of the spec."""
    stage = wanted_stage(subject.spec) if subject.spec and subject.spec.nova else "schedule"
    for later, option in beyond(stage).items():
        for source in subject.serving(*option.services):
            if (setting := source.configuration.last(option)) and subject.on(option, source):
                line = f"[{option.group}] {option.name}"
                yield finding(Code.PLACEMENT_STAGE_DIFFERS, place=setting.place, line=line, wanted=stage, stage=later)


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
