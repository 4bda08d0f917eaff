"""Checks that Nova enforces the limits of the spec, that hosts have their markers, and that hosts are reserved."""

from collections.abc import Iterator
from typing import Any

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.desired import ISOLATION
from gpustack.configure.lint.subject import LintSubject, check
from gpustack.configure.sources import FILTERS, Source, values
from gpustack.nova_options.aggregates import BY_PROJECT
from gpustack.nova_options.scheduler import CONFINED, DRIVER, UNIFIED

_ENDPOINTS = frozenset(f"oslo_limit/endpoint_{name}" for name in ("id", "service_type", "service_name"))
"""Options of oslo.limit, each of which leads to the limits of Nova."""
_TITLE = "Limits of projects"


def _checking(subject: LintSubject) -> Iterator[Source]:
    """The configurations of services that check limits; without rendered files, which lack the operator's settings."""
    for source in subject.serving("api", "conductor") if subject.limited else ():
        if not source.is_rendered:
            yield source


@check(_TITLE)
def driver(subject: LintSubject) -> Iterator[Finding]:
    """Only one quota driver reads limits from Keystone."""
    for source in _checking(subject):
        setting = source.configuration.last(DRIVER)
        if setting and (setting.unknown or setting.value.strip() == UNIFIED):
            continue
        state = f"= {setting.value!r}" if setting else "is not set"
        yield finding(Code.UNIFIED_LIMITS_OFF, place=source.place(setting), state=state)


@check(_TITLE)
def endpoint(subject: LintSubject) -> Iterator[Finding]:
    """Limits belong to a service and a region, which oslo.limit reads from an endpoint."""
    for source in _checking(subject):
        unified = (source.configuration.value(DRIVER) or "").strip() == UNIFIED
        present = {setting.path for setting in source.configuration.settings if setting.value or setting.unknown}
        if unified and not _ENDPOINTS & present:
            yield finding(Code.LIMIT_ENDPOINT_MISSING, place=source.label)


@check(_TITLE)
def markers(subject: LintSubject) -> Iterator[Finding]:
    """nova-compute reports the markers of provider.yaml; it reports no other number after a change of the GPUs."""
    for source in subject.serving("compute"):
        hosts = subject.hosts_of(source)
        provided = subject.provided.get(source.label)
        if provided is None or provided.faults or len(hosts) != 1:
            continue
        wanted = subject.marked.get(hosts[0].hostname, {})
        for name in sorted({*wanted, *(subject.markers & provided.totals.keys())}):
            total, gpus = provided.totals.get(name, 0), wanted.get(name, 0)
            if total != gpus:
                about: dict[str, Any] = {"total": total, "marker": name, "where": "provider.yaml", "gpus": gpus}
                yield finding(Code.MARKER_TOTAL_DIFFERS, place=hosts[0].hostname, **about)


_RESERVED = "Reserved GPU hosts"


@check(_RESERVED)
def isolation(subject: LintSubject) -> Iterator[Finding]:
    """The option must be on if a host is isolated."""
    for source in subject.schedulers if subject.tenancy and subject.tenancy.isolates else ():
        setting = source.configuration.last(ISOLATION.option)
        if not (setting and setting.unknown) and not source.configuration.enabled(ISOLATION.option):
            state = f"= {setting.value}" if setting else "is not set"
            yield finding(Code.ISOLATION_OFF, place=source.place(setting), state=state)


@check(_RESERVED)
def projects(subject: LintSubject) -> Iterator[Finding]:
    """The filter must be enabled if a host is reserved for projects."""
    for source in subject.schedulers if subject.tenancy and subject.tenancy.restricts else ():
        setting = subject.last(source, FILTERS)
        if not (setting and (setting.unknown or BY_PROJECT in values(setting.value))):
            yield finding(Code.PROJECT_FILTER_OFF, place=source.place(setting))


@check(_RESERVED)
def confined(subject: LintSubject) -> Iterator[Finding]:
    """A project must not be confined to hosts that refuse its ordinary instances."""
    aggregates = subject.tenancy.aggregates.values() if subject.tenancy else ()
    alone = sorted({entry.projects[0] for entry in aggregates if entry.isolated and len(entry.projects) == 1})
    for source in subject.schedulers if alone else ():
        if subject.on(CONFINED, source):
            place = source.place(source.configuration.last(CONFINED))
            yield finding(Code.PROJECTS_CONFINED, place=place, projects=", ".join(alone))
