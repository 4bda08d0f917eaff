"""The repairs as guarded statements: what was seen must still be so, or nothing changes.

Each repair is one transaction of few statements, and each statement must change exactly one row. The guards are in the
statements, so the database itself decides at the moment of writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpustack.cleanup import tables
from gpustack.cleanup.model import ERROR, PciRow
from gpustack.cleanup.verdict import Repair, Verdict

_FREED = {"status": "available", "instance_uuid": None, "request_id": None}
WRITTEN = {
    "pci_devices": frozenset({"status", "instance_uuid", "request_id", "updated_at", "deleted", "deleted_at"}),
    "migrations": frozenset({"status", "updated_at"}),
}
"""All that repairs write, and so all that undoing one may: a journal is a file, which others can have written."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row of one table: which, what must still be seen, and what is written."""

    table: str
    id: int
    seen: Mapping[str, Any]
    new: Mapping[str, Any]

    def __post_init__(self) -> None:
        """:raises ValueError: for a table or column that no repair writes, or one to compare that is not known."""
        if self.table not in WRITTEN or not self.new.keys() <= WRITTEN[self.table]:
            raise ValueError(f"no repair writes {self.table}: {', '.join(self.new)}")
        if not self.seen.keys() <= set(tables.metadata.tables[self.table].columns.keys()):
            raise ValueError(f"{self.table} has no such columns: {', '.join(self.seen)}")

    def statement(self, facts: Sequence[sa.ColumnElement[bool]]) -> sa.Update:
        """The guarded UPDATE.

        :param facts: what else must still be so (:mod:`gpustack.cleanup.guards`).
        """
        table = tables.metadata.tables[self.table]
        unchanged = [table.c.id == self.id, *(_same(table.c[name], value) for name, value in self.seen.items())]
        return sa.update(table).where(*unchanged, *facts).values(**self.new)

    def reversal(self, before: Mapping[str, Any], facts: Sequence[sa.ColumnElement[bool]]) -> sa.Update:
        """The UPDATE that restores the row, if it still is as this change left it, and the facts are as they were."""
        table = tables.metadata.tables[self.table]
        as_written = [_same(table.c[name], value) for name, value in self.new.items()]
        return (
            sa.update(table)
            .where(table.c.id == self.id, *as_written, *facts)
            .values({name: before[name] for name in self.new})
        )


def changes(verdict: Verdict, relatives: Mapping[str, PciRow], now: datetime) -> tuple[Change, ...]:
    """What a repair writes, in the order in which it is written.

    :param relatives: the live rows of the compute node by address, for physical and virtual functions.
    :param now: the time to write as ``updated_at``; whole seconds, which every database keeps.
    """
    written: list[Change] = []
    if verdict.repair in (Repair.FREE, Repair.RETIRE, Repair.CLEAR_DELETED):
        for row in verdict.rows:
            new: dict[str, object] = {**_FREED, "updated_at": now}
            if verdict.repair is Repair.RETIRE:
                new |= {"deleted": row.id, "deleted_at": now}
            written.append(_row_change(row, new))
            if verdict.repair is Repair.FREE:
                written += _mirrors(row, relatives, {other.id for other in verdict.rows}, now)
    elif verdict.repair is Repair.UNBLOCK:
        written += [_row_change(row, {"status": "available", "updated_at": now}) for row in verdict.rows]
    elif verdict.repair is Repair.BLOCK_PARENT:
        written += [_row_change(row, {"status": "unavailable", "updated_at": now}) for row in verdict.rows]
    elif verdict.repair is Repair.CLEAR_OWNER:
        cleared = {"instance_uuid": None, "request_id": None, "updated_at": now}
        written += [_row_change(row, cleared) for row in verdict.rows]
    written += [
        Change(
            table="migrations",
            id=migration,
            seen={"status": verdict.lingering.status if verdict.lingering else ERROR, "deleted": 0},
            new={"status": "failed", "updated_at": now},
        )
        for migration in verdict.migrations
    ]
    return tuple(written)


def _row_change(row: PciRow, new: Mapping[str, Any]) -> Change:
    columns = {
        name: getattr(row, name)
        for name in ("compute_node_id", "address", "status", "instance_uuid", "request_id", "deleted", "updated_at")
    }
    return Change(table="pci_devices", id=row.id, seen=columns, new=new)


def _mirrors(row: PciRow, relatives: Mapping[str, PciRow], freed: set[int], now: datetime) -> Iterator[Change]:
    """What freeing a function does to its relatives (``nova/objects/pci_device.py``, ``free``)."""
    new = {"status": "available", "updated_at": now}
    blocked = ("unavailable", "unclaimable")
    for child in relatives.values():
        if child.parent_addr == row.address and child.status in blocked and child.instance_uuid is None:
            yield _row_change(child, new)
    parent = relatives.get(row.parent_addr or "")
    if parent is not None and parent.status in blocked and parent.instance_uuid is None:
        siblings = [other for other in relatives.values() if other.parent_addr == parent.address]
        last = max((other.id for other in siblings if other.id in freed), default=None)
        if last == row.id and not any(other.taken and other.id not in freed for other in siblings):
            yield _row_change(parent, new)


def _same(column: sa.ColumnElement[Any], value: object) -> sa.ColumnElement[bool]:
    return column.is_(None) if value is None else column == value
