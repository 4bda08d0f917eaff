"""What repairs and their undo are carried out with, what they end with, and how two repairs are compared."""

from dataclasses import dataclass, field
from typing import Any

from gpustack.changes.change import ChangeResult, Ended
from gpustack.cloud import Connection
from gpustack.novadb.sources import Sources
from gpustack.repair.hypervisor import Ask, Usage
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import PlannedVerdict, Status, Verdict


@dataclass(frozen=True, kw_only=True)
class Repairing:
    """The databases, hosts and cloud of a run.

    :ivar ask: asks a host which devices its domains use.
    :ivar cloud: the cloud whose Placement is written, for classes Q and S.
    """

    sources: Sources
    selection: Selection = field(default_factory=Selection)
    ask: Ask = lambda host: Usage(gap="no host is asked")
    cloud: Connection | None = None


GONE = Ended(ChangeResult.UNCHANGED, "nothing is wrong any more")
"""The end of a repair that is not needed any more."""


def skipped(detail: str) -> Ended:
    """Return the end of a repair or an undo that is not carried out: nothing was written."""
    return Ended(ChangeResult.SKIPPED, detail)


def refused(settled: Verdict) -> Ended | None:
    """Return the end of a repair if the hosts' answers do not permit it; None if they do."""
    if settled.status is Status.STALE:
        return None
    return skipped(f"{settled.status}: {settled.because}; {settled.advice}")


def key(verdict: PlannedVerdict) -> tuple[Any, ...]:
    """Return a key that is equal for two verdicts (as plain data) if both mean the same repair of the same rows."""
    return (
        *(verdict["cell"], verdict["class"], verdict["host"], verdict["node"], verdict["instance"]),
        *(verdict["repair"], tuple(verdict["migrations"])),
        tuple(device["id"] for device in verdict["devices"]),
        tuple(sorted((verdict.get("allocation") or {}).items())),
    )


def about(verdict: PlannedVerdict) -> tuple[Any, ...]:
    """Return a key for the subject of a verdict without rows, whatever its status."""
    return (
        *(verdict["cell"], verdict["class"], verdict["host"], verdict["node"], verdict["instance"]),
        bool(verdict["devices"]),
    )
