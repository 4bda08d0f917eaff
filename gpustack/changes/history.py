"""The runs of this user, newest first, with what became of each. Pure but for reading the journals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpustack.base.errors import JournalError
from gpustack.changes.change import ChangeResult, Value
from gpustack.changes.journal import PlannedChange, RunHead, RunRecord, read_lines


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """A run in the history.

    :ivar state: ``done``, ``failed``, ``unfinished``, ``undone``, ``partly undone``; ``unknown`` in records of 0.1.0.
    :ivar done: the number of changes that were made.
    :ivar planned: the number of changes of its plan.
    """

    record: RunRecord
    state: str
    done: int
    planned: int

    @property
    def summary(self) -> HistoryEntry:
        """The entry without the changes, of which thousands of runs have too many for the memory."""
        head = self.record.head.model_copy(update={"changes": []})
        return replace(self, record=RunRecord(path=self.record.path, head=head))


def history(records: Iterable[RunRecord]) -> Iterator[HistoryEntry]:
    """The entries of runs, one at a time.

    :param records: newest first, so that an undo comes before its run; one that does not, of edited records, counts
        for nothing.
    """
    undone: dict[str, str] = {}
    for record in records:
        head, done = record.head, sum(result is ChangeResult.DONE for result in record.results.values())
        state = undone.get(head.id) or record.state
        if head.undoes and done:
            effect = "undone" if record.state == "done" else "partly undone"
            undone.setdefault(head.undoes, "" if state == "undone" else effect)
        yield HistoryEntry(record=record, state=state, done=done, planned=len(head.changes))


def former_gpus(path: Path) -> list[HistoryEntry]:
    """The changes in the record of ``gpu disable`` and ``gpu enable`` of 0.1.0, newest first; it has no results.

    :raises JournalError: if it cannot be read.
    """
    entries = []
    for number, line in enumerate(read_lines(path) if path.exists() else (), start=1):
        try:
            planned = PlannedChange(
                key="gpu", kind="gpu", id="", name=line["gpu"], why=line["why"], seen=line.get("before"),
                wanted=line.get("after"), needs=[], about={},
            )  # fmt: skip
            command = f"gpu {'enable' if line.get('enabled') else 'disable'}" if "enabled" in line else "gpu"
            head = RunHead(id=f"gpus-{number}", command=command, at=line["at"], changes=[planned])
        except (LookupError, TypeError, ValueError) as error:
            raise JournalError(f"line {number} is no change of a GPU", where=str(path)) from error
        entries.append(HistoryEntry(record=RunRecord(path=path, head=head), state="unknown", done=0, planned=1))
    return entries[::-1]


@dataclass(frozen=True, kw_only=True)
class LastChange:
    """The change that gave an object its value."""

    head: RunHead
    change: PlannedChange

    def __str__(self) -> str:
        why = self.change.about.get("reason", self.change.why)  # an undo names its run instead
        return f"{self.head.user} at {self.head.at} ({why})"


def last_change(
    records: Iterable[RunRecord | JournalError], cloud: str, kind: str, object_id: str, value: Value
) -> LastChange | None:
    """The newest change of an object, if it made the present value; else somebody else did.

    :param records: newest first.
    :param cloud: the key of the cloud.
    """
    for record in records:
        if isinstance(record, JournalError) or record.head.cloud.key != cloud:
            continue
        for change in record.made:
            end = record.ends.get(change.key)
            if change.kind == kind and object_id == ((end and end.id) or change.id):
                return LastChange(head=record.head, change=change) if change.wanted == value else None
    return None
