"""Checks that nova-scheduler reads the aggregates with which the spec reserves GPU hosts (``tenancy``)."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.deployed_filters import FILTERS, values
from gpustack.configure.desired import ISOLATION
from gpustack.configure.lint.registry import check
from gpustack.configure.lint.subject import LintSubject
from gpustack.nova_options.aggregates import BY_PROJECT
from gpustack.nova_options.scheduler import CONFINED

_TITLE = "Reserved GPU hosts"


@check(_TITLE)
def isolation(subject: LintSubject) -> Iterator[Finding]:
    """The option must be on if a host is isolated."""
    for source in subject.schedulers if subject.tenancy and subject.tenancy.isolates else ():
        setting = source.configuration.last(ISOLATION.option)
        if not (setting and setting.unknown) and not source.configuration.enabled(ISOLATION.option):
            state = f"= {setting.value}" if setting else "is not set"
            yield finding(Code.ISOLATION_OFF, place=source.place(setting), state=state)


@check(_TITLE)
def projects(subject: LintSubject) -> Iterator[Finding]:
    """The filter must be enabled if a host is reserved for projects."""
    for source in subject.schedulers if subject.tenancy and subject.tenancy.restricts else ():
        setting = subject.last(source, FILTERS)
        if not (setting and (setting.unknown or BY_PROJECT in values(setting.value))):
            yield finding(Code.PROJECT_FILTER_OFF, place=source.place(setting))


@check(_TITLE)
def confined(subject: LintSubject) -> Iterator[Finding]:
    """A project must not be confined to hosts that refuse its ordinary instances."""
    aggregates = subject.tenancy.aggregates.values() if subject.tenancy else ()
    alone = sorted({entry.projects[0] for entry in aggregates if entry.isolated and len(entry.projects) == 1})
    for source in subject.schedulers if alone else ():
        if subject.on(CONFINED, source):
            place = source.place(source.configuration.last(CONFINED))
            yield finding(Code.PROJECTS_CONFINED, place=place, projects=", ".join(alone))
