"""Checks of the scheduler's filters."""

from collections.abc import Iterator
from pathlib import PurePath

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.deployed_filters import AVAILABLE, FILTERS, makes_available, values
from gpustack.configure.desired import PCI_FILTER
from gpustack.configure.lint.registry import check
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sections import with_filters
from gpustack.configure.sources import Source
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting
from gpustack.nova_options.filters import DOTTED, Fault, FilterFault, faults, not_importable, startable

_TITLE = "Scheduler filters"
_WEIGHERS = releases.option("filter_scheduler/weight_classes")


@check(_TITLE)
def enabled(subject: LintSubject) -> Iterator[Finding]:
    """PciPassthroughFilter must be in the effective list."""
    for source in subject.serving("scheduler"):
        settings = source.configuration.effective(FILTERS.of(subject.release))
        if settings and settings[-1].unknown:
            continue
        current = values(settings[-1].value) if settings else releases.default_filters(subject.release)
        if PCI_FILTER in current or not (settings or subject.aliases or source.services == ("scheduler",)):
            continue
        supposed = not settings and not source.named
        if supposed and any(other.named for other in subject.serving("scheduler")):
            continue
        misspelled = [name for name in current if name.lower() == PCI_FILTER.lower()]
        problem = "enabled_filters has no PciPassthroughFilter"
        if misspelled:
            problem += f": it is spelled {misspelled[0]}, and nova-scheduler does not start with a filter that is none"
        if not settings:
            problem = (
                f"enabled_filters is not set, and the default of Nova {subject.release} has no PciPassthroughFilter"
            )
            problem += subject.doubt(source)["doubt"]
        place = settings[-1].place if settings else source.label
        lines = [line.value for line in source.configuration.effective(AVAILABLE.of(subject.release))]
        better = ",".join(with_filters(startable(current, lines, subject.release)))
        grave = Severity.WARNING if supposed else None
        yield finding(Code.PCI_FILTER_DISABLED, place=place, severity=grave, what=problem, filters=better)


@check(_TITLE)
def available(subject: LintSubject) -> Iterator[Finding]:
    """PciPassthroughFilter must be among the available filters."""
    for source in subject.serving("scheduler"):
        settings = source.configuration.effective(AVAILABLE.of(subject.release))
        if settings and not makes_available([s.value for s in settings], subject.release):
            yield finding(Code.AVAILABLE_FILTERS_WITHOUT_PCI, place=settings[-1].place)


@check(_TITLE)
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
    # The class may be named in another file, unless these files include nova.conf itself.
    complete = any(PurePath(file).name == "nova.conf" for file in source.configuration.files)
    use = f"write {fault.instead}" if fault.instead else f"take {fault.name} out of enabled_filters"
    if fault.fault is Fault.NOT_IMPORTABLE:
        use = f"write available_filters = {fault.instead or 'MODULE.CLASS, in one line for each class'}"
    elif not fault.name:
        use = "remove the superfluous comma"
    elif fault.fault is Fault.UNKNOWN:
        use = f"add a line available_filters = MODULE.{fault.name}, or {use}"
    return finding(
        Code.FILTER_UNKNOWN,
        place=line.place,
        severity=Severity.WARNING if fault.name and fault.fault is Fault.UNKNOWN and not complete else None,
        filter=fault.name or "''",
        release=subject.release,
        hint=fault.hint,
        use=use,
    )


@check(_TITLE)
def weighers(subject: LintSubject) -> Iterator[Finding]:
    """Entries of weight_classes that nova-scheduler can't import; those of other packages are not known."""
    for source in subject.serving("scheduler"):
        setting = subject.last(source, _WEIGHERS)
        if setting is None or setting.unknown:
            continue
        known = {"nova.scheduler.weights.all_weighers", *releases.weighers(subject.release)}
        for name in values(setting.value):
            if name not in known and (name.startswith("nova.scheduler.weights.") or not DOTTED.fullmatch(name)):
                yield finding(Code.WEIGHER_UNKNOWN, place=setting.place, release=subject.release, name=name or "''")


@check(_TITLE)
def replaced(subject: LintSubject) -> Iterator[Finding]:
    """Lists that a later list replaces, losing filters."""
    for source in subject.serving("scheduler"):
        settings = source.configuration.effective(FILTERS.of(subject.release))
        for setting in source.configuration.all(FILTERS.of(subject.release)) if settings else ():
            lost = [f for f in values(setting.value) if f not in values(settings[-1].value)]
            if setting != settings[-1] and lost:
                loss = f", which lacks {', '.join(lost)}"
                yield finding(Code.FILTERS_REPLACED, place=setting.place, other=settings[-1].place, lost=loss)
