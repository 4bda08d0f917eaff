"""The outcomes of repairs."""

import enum
from dataclasses import dataclass
from typing import Any

from gpustack.base.errors import GpustackError
from gpustack.novadb.clock import HostState
from gpustack.repair.verdict import PlannedVerdict, Status, Verdict


class Result(enum.StrEnum):
    """The result of one repair."""

    REPAIRED = "repaired"
    """Written and committed, or removed in Placement."""
    WAITING = "waiting"
    """Written, but Nova has not freed the device yet."""
    SKIPPED = "skipped"
    """Not permitted any more, or not possible: nothing was written."""
    UNDECIDED = "undecided"
    """A host whose answer is required did not answer: nothing was written."""
    FAILED = "failed"
    """The database refused: nothing was written."""
    UNKNOWN = "unknown"
    """The answer to COMMIT, or Placement's, was lost, and reading back did not show whether it was carried out."""
    GONE = "in order"
    """Nothing is left to do: it was repaired meanwhile, or Nova repairs it."""
    RESTART = "restart"
    """gpustack writes nothing: nova-compute of the host must be restarted."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One repair and its result.

    :ivar lost: the error that ends the run, if the result is *unknown*.
    """

    verdict: Verdict
    result: Result
    detail: str
    lost: GpustackError | None = None


def key(verdict: PlannedVerdict) -> tuple[Any, ...]:
    """Return a key that is equal for two verdicts (as plain data) if both mean the same repair of the same rows."""
    return (
        verdict["cell"],
        verdict["class"],
        verdict["host"],
        verdict["node"],
        tuple(device["id"] for device in verdict["devices"]),
        verdict["instance"],
        verdict["repair"],
        tuple(verdict["migrations"]),
        tuple(sorted((verdict.get("allocation") or {}).items())),
    )


def about(verdict: PlannedVerdict) -> tuple[Any, ...]:
    """Return a key for the subject of a verdict without rows, whatever its status."""
    return (
        *(verdict["cell"], verdict["class"], verdict["host"], verdict["node"], verdict["instance"]),
        bool(verdict["devices"]),
    )


def stub(wanted: PlannedVerdict) -> Verdict:
    """Return a verdict from a planned one whose rows were not read again."""
    return Verdict(
        klass=wanted["class"],
        title=wanted["title"],
        status=Status.STALE,
        cell=wanted["cell"],
        host=wanted["host"],
        node=wanted["node"],
        host_state=HostState(wanted["host_state"]),
        rows=(),
        owner=wanted["instance"],
        evidence=(),
        because="",
    )


def skipped(wanted: PlannedVerdict, detail: str) -> Outcome:
    """Return the outcome of a planned repair that is not carried out."""
    return Outcome(verdict=stub(wanted), result=Result.SKIPPED, detail=detail)


def gone(wanted: PlannedVerdict) -> Outcome:
    """Return the outcome of a planned repair that is not needed any more."""
    return Outcome(verdict=stub(wanted), result=Result.GONE, detail="nothing is wrong any more")


def refused(settled: Verdict) -> Outcome | None:
    """Return the outcome if the hosts' answers do not permit the repair; None if they do."""
    if settled.status is Status.STALE:
        return None
    result = Result.UNDECIDED if settled.status is Status.UNDECIDED else Result.SKIPPED
    return Outcome(verdict=settled, result=result, detail=f"{settled.because}; {settled.advice}")
