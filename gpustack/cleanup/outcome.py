"""How the repairs of a plan end."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from gpustack.cleanup.clock import HostState
from gpustack.cleanup.verdict import PlannedVerdict, Status, Verdict


class Result(enum.StrEnum):
    """How one repair ended."""

    REPAIRED = "repaired"
    WAITING = "waiting"
    """Written, and Nova has not freed the device yet."""
    SKIPPED = "skipped"
    """Something speaks against it: nothing was written."""
    UNDECIDED = "undecided"
    """A host that must answer first did not: nothing was written."""
    FAILED = "failed"
    """The database would not: nothing was written."""
    GONE = "in order"
    """Nothing is left to do: it was repaired, or healed, meanwhile."""
    RESTART = "restart"
    """Nothing is written: nova-compute of the host must be restarted."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One repair and how it ended."""

    verdict: Verdict
    result: Result
    detail: str


def key(verdict: PlannedVerdict) -> tuple[Any, ...]:
    """What makes two verdicts (as plain data) the same one."""
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
    """What a verdict without rows is about, whatever it says."""
    return (
        *(verdict["cell"], verdict["class"], verdict["host"], verdict["node"], verdict["instance"]),
        bool(verdict["devices"]),
    )


def stub(wanted: PlannedVerdict) -> Verdict:
    """A planned verdict of which nothing is left to see."""
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
