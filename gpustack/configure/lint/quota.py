"""Check that Nova enforces the limits that the spec sets (quotas), and that hosts have their markers."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.lint.registry import check
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.nova_options.markers import DROP_IN
from gpustack.nova_options.scheduler import DRIVER, UNIFIED

_ENDPOINTS = frozenset(f"oslo_limit/endpoint_{name}" for name in ("id", "service_type", "service_name"))
"""Options of oslo.limit, each of which leads to the limits of Nova."""
_TITLE = "Limits of projects"


def _checking(subject: LintSubject) -> Iterator[Source]:
    """The configurations of services that check limits; without rendered files, which lack the operator's settings."""
    for source in subject.serving("api", "conductor") if subject.limited else ():
        if not all(PurePosixPath(file).name == DROP_IN for file in source.configuration.files):
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
                yield finding(
                    Code.MARKER_TOTAL_DIFFERS,
                    place=hosts[0].hostname,
                    total=total,
                    marker=name,
                    where="provider.yaml",
                    gpus=gpus,
                )
