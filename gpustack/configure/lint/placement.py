"""Checks of PCI in Placement: all compute hosts must report before the other services schedule by it."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.lint.registry import check
from gpustack.configure.lint.subject import REPORT, SCHEDULE, LintSubject
from gpustack.nova_options.options import TRUE

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
                Code.PLACEMENT_REPORTS_DIFFER,
                place=place,
                severity=Severity.WARNING,
                other=on.label,
                doubt=doubt,
            )


@check(_TITLE)
def switched_off(subject: LintSubject) -> Iterator[Finding]:
    """report_in_placement on in one file and off in a later one."""
    for source in subject.serving("compute"):
        setting = source.configuration.last(REPORT)
        if not REPORT.known_to(subject.release) or not setting or subject.on(REPORT, source):
            continue
        before = [s for s in source.configuration.all(REPORT) if s.value.lower() in TRUE]
        if before:
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
