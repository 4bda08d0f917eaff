"""The runs of this user, newest first, with what became of each. Pure but for reading the journals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpustack.changes.change import ChangeResult
from gpustack.changes.journal import RunRecord


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """A run in the history.

    :ivar state: ``done``, ``failed``, ``unfinished``, ``undone`` or ``partly undone``.
    :ivar done: the number of changes that were made.
    """

    record: RunRecord
    state: str
    done: int


def history(records: Iterable[RunRecord]) -> list[HistoryEntry]:
    """The entries of runs, in the order of ``records``."""
    known = list(records)
    undos = {record.head.undoes: record for record in reversed(known) if record.head.undoes}
    return [
        HistoryEntry(record=record, state=_state(record, undos), done=_count(record, ChangeResult.DONE))
        for record in known
    ]


def _state(record: RunRecord, undos: Mapping[str, RunRecord]) -> str:
    undo = undos.get(record.head.id)
    if undo is None or not _count(undo, ChangeResult.DONE):
        return record.state
    return "undone" if undo.state == "done" else "partly undone"


def _count(record: RunRecord, result: ChangeResult) -> int:
    return sum(of is result for of in record.results.values())
