"""Putting back what a journal tells of, row by row, last change first, if nothing has used the rows since."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gpustack.cleanup.apply import whole_row, writing
from gpustack.cleanup.connect import Cell
from gpustack.cleanup.journal import Entry
from gpustack.cleanup.unset import put_back
from gpustack.errors import JournalError

if TYPE_CHECKING:
    from openstack.connection import Connection


class Undone(enum.StrEnum):
    """How the undoing of one repair ended."""

    RESTORED = "restored"
    NOT_DONE = "not done"
    """The repair was never committed, or is undone already: the rows are as they were before it."""
    USED = "used since"
    """Something has written the rows since: they are left alone."""


@dataclass(frozen=True, kw_only=True)
class Undoing:
    """One repair of a journal and how its undoing ended."""

    entry: Entry
    result: Undone
    detail: str


def undo(entries: Sequence[Entry], cells: Sequence[Cell], cloud: Connection | None = None) -> Iterator[Undoing]:
    """Undo the repairs of a journal, the last one first; each in one transaction, wholly or not at all.

    :param cloud: whose Placement was written, where it was.
    :raises CloudError: when Placement can't be asked.
    :raises JournalError: when a repair was made in a cell that is not among ``cells``.
    """
    for entry in sorted(entries, key=lambda entry: -entry.number):
        if entry.outcome in ("skipped", "failed"):
            continue
        if entry.allocation is not None:
            yield _undo_allocation(entry, cloud)
        else:
            yield _undo_one(entry, _cell_of(entry, cells))


def _undo_allocation(entry: Entry, cloud: Connection | None) -> Undoing:
    if cloud is None:
        raise JournalError(f"repair {entry.number} was made in Placement", remedy="name its cloud with --os-cloud")
    done, detail = put_back(cloud, entry)
    result = {True: Undone.RESTORED, None: Undone.NOT_DONE, False: Undone.USED}[done]
    return Undoing(entry=entry, result=result, detail=detail)


def _cell_of(entry: Entry, cells: Sequence[Cell]) -> Cell:
    for cell in cells:
        if (cell.uuid, cell.name) == (entry.database, entry.cell):
            return cell
    raise JournalError(
        f"repair {entry.number} was made in cell {entry.cell}, which is not among the named databases",
        remedy="name the same --config-file or --db-url that the repair was made with",
    )


def _undo_one(entry: Entry, cell: Cell) -> Undoing:
    with writing(cell.database) as connection:
        if all(_as_before(connection, entry, index) for index in range(len(entry.changes))):
            return Undoing(entry=entry, result=Undone.NOT_DONE, detail="the rows are as they were before the repair")
        gone = [change for change in entry.changes if whole_row(connection, change) is None]
        if gone:
            detail = f"{gone[0].table} {gone[0].id} is gone since (archived, perhaps); nothing was put back"
            return Undoing(entry=entry, result=Undone.USED, detail=detail)
        pairs = list(zip(entry.changes, entry.before, strict=True))
        for change, before in reversed(pairs):
            try:
                written = connection.execute(change.reversal(before)).rowcount
            except IntegrityError:  # a new row has taken the place of one that was soft-deleted
                written = 0
            if written != 1:
                connection.rollback()
                detail = f"{change.table} {change.id} was written since; nothing of this repair was put back"
                return Undoing(entry=entry, result=Undone.USED, detail=detail)
        connection.commit()
    return Undoing(entry=entry, result=Undone.RESTORED, detail="the rows are as they were before the repair")


def _as_before(connection: sa.Connection, entry: Entry, index: int) -> bool:
    change, before = entry.changes[index], entry.before[index]
    now = whole_row(connection, change)
    return now is not None and all(now[name] == before[name] for name in change.new)
