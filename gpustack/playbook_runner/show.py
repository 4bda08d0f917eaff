"""Records as text for people, and as an exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpustack.errors import ApplyError, GpustackError, HostError, PlanError, VerifyError
from gpustack.playbook_runner.record import HostRecord, RunOutcome

_GRAVEST: tuple[tuple[RunOutcome, type[GpustackError], str], ...] = (
    (RunOutcome.FAILED, ApplyError, "failed"),
    (RunOutcome.NOT_READY, VerifyError, "not ready"),
    (RunOutcome.REFUSED, PlanError, "refused"),
    (RunOutcome.UNREACHABLE, HostError, "could not be reached or read"),
)


def line(one: HostRecord, *, checked: bool = False) -> str:
    """One host in one line."""
    outcome = one.outcome or _running(one)
    if checked and outcome == RunOutcome.DONE and one.changed:
        outcome = "would change"
    details = ", ".join(one.notes())
    return f"{one.host}: {outcome}" + (f" ({details})" if details else "")


def _running(one: HostRecord) -> str:
    if one.todo and not one.begun:
        return "planned"
    return str(RunOutcome.DONE if one.changed or one.verified else RunOutcome.NOTHING)


def problems(one: HostRecord) -> str:
    """What stands against a host, at length; nothing when it is well."""
    if not one.problem:
        return ""
    told = [f"{one.host}: {one.problem}"]
    remedies = dict.fromkeys(found.get("remedy", "") for found in one.findings if found.get("severity") == "error")
    return "\n".join([*told, *(f"  → {remedy}" for remedy in remedies)])


def summary(records: Iterable[HostRecord], *, checked: bool = False) -> str:
    """All hosts, one line each, the troubled ones last."""
    ordered = sorted(records, key=lambda one: (bool(one.problem), one.host))
    return "\n".join(line(one, checked=checked) for one in ordered)


def verdict(records: Sequence[HostRecord], log: str) -> GpustackError | None:
    """The error that a run ends with: that of the host where it went worst.

    :param log: where all of it can be read.
    """
    for outcome, error, word in _GRAVEST:
        hosts = [one.host for one in records if one.outcome is outcome]
        if hosts:
            names = ", ".join(hosts[:8]) + (", …" if len(hosts) > 8 else "")
            return error(f"{len(hosts)} of {len(records)} hosts {word}: {names}", remedy=f"the whole log is {log}")
    if left := [one.host for one in records if one.outcome is RunOutcome.NOT_BEGUN]:
        return ApplyError(f"{len(left)} of {len(records)} hosts were not begun", remedy=f"the whole log is {log}")
    return None
