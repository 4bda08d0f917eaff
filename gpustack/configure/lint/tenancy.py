"""Checks that nova-scheduler reads the aggregates with which the spec reserves GPU hosts (``tenancy``)."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.deployed_filters import FILTERS, values
from gpustack.configure.lint.registry import check
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.configure.tenancy import ISOLATION
from gpustack.nova_options import releases
from gpustack.nova_options.aggregates import BY_PROJECT

_TITLE = "Reserved GPU hosts"
_CONFINED = releases.option("scheduler/limit_tenants_to_placement_aggregate")


def _schedulers(subject: LintSubject) -> Iterator[Source]:
    """The configurations of nova-scheduler, without files that are probably those of a compute host."""
    for source in subject.serving("scheduler") if subject.tenancy else ():
        if source.named or source.configuration.effective(FILTERS.of(subject.release)):
            yield source


@check(_TITLE)
def isolation(subject: LintSubject) -> Iterator[Finding]:
    """The option must be on if a host is isolated."""
    for source in _schedulers(subject) if subject.tenancy and subject.tenancy.isolates else ():
        settings = source.configuration.effective(ISOLATION.option)
        if not (settings and settings[-1].unknown) and not source.configuration.enabled(ISOLATION.option):
            state = f"= {settings[-1].value}" if settings else "is not set"
            yield finding(Code.ISOLATION_OFF, place=settings[-1].place if settings else source.label, state=state)


@check(_TITLE)
def projects(subject: LintSubject) -> Iterator[Finding]:
    """The filter must be enabled if a host is reserved for projects."""
    for source in _schedulers(subject) if subject.tenancy and subject.tenancy.restricts else ():
        settings = source.configuration.effective(FILTERS.of(subject.release))
        if not (settings and (settings[-1].unknown or BY_PROJECT in values(settings[-1].value))):
            yield finding(Code.PROJECT_FILTER_OFF, place=settings[-1].place if settings else source.label)


@check(_TITLE)
def confined(subject: LintSubject) -> Iterator[Finding]:
    """A project must not be confined to hosts that refuse its ordinary instances."""
    aggregates = subject.tenancy.aggregates.values() if subject.tenancy else ()
    alone = sorted({entry.projects[0] for entry in aggregates if entry.isolated and len(entry.projects) == 1})
    for source in _schedulers(subject) if alone else ():
        if subject.on(_CONFINED, source):
            place = source.configuration.effective(_CONFINED)[-1].place
            yield finding(Code.PROJECTS_CONFINED, place=place, projects=", ".join(alone))
