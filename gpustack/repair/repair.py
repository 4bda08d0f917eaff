"""The repairs as guarded statements, which change nothing unless the rows are as they were read.

Each repair is one transaction of few statements, each of which must change exactly one row. The conditions are part of
the statements, so the database checks them at the moment of writing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.model import ERROR, PciRow
from gpustack.repair.verdict import Repair, Verdict

_FREED = {"status": "available", "instance_uuid": None, "request_id": None}
WRITTEN = {
    "pci_devices": frozenset({"status", "instance_uuid", "request_id", "updated_at", "deleted", "deleted_at"}),
    "migrations": frozenset({"status", "updated_at"}),
}
"""All columns that repairs write. Undo writes no others: a journal is a file that others can edit."""
IDENTITY = {
    "pci_devices": (
        *("uuid", "deleted", "created_at", "compute_node_id", "address"),
        *("vendor_id", "product_id", "dev_type", "parent_addr"),
    ),
    "migrations": (
        *("uuid", "deleted", "created_at", "instance_uuid"),
        *("source_compute", "source_node", "dest_compute", "dest_node"),
    ),
}
"""The columns by which a row is still the one that was repaired. Nova's soft delete keeps ``updated_at``."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one row.

    :ivar table: the name of the table.
    :ivar id: the row's id.
    :ivar seen: the values that the row must still have.
    :ivar new: the values to write.
    """

    table: str
    id: int
    seen: Mapping[str, Any]
    new: Mapping[str, Any]

    def __post_init__(self) -> None:
        """:raises ValueError: for a table or column that no repair writes, or for an unknown column in ``seen``."""
        if self.table not in WRITTEN or not self.new.keys() <= WRITTEN[self.table]:
            raise ValueError(f"no repair writes {self.table}: {', '.join(self.new)}")
        if not self.seen.keys() <= set(tables.metadata.tables[self.table].columns.keys()):
            raise ValueError(f"{self.table} has no such columns: {', '.join(self.seen)}")

    def statement(self, facts: Sequence[sa.ColumnElement[bool]]) -> sa.Update:
        """Return the guarded UPDATE.

        :param facts: further conditions (:mod:`gpustack.repair.guards`).
        """
        table = tables.metadata.tables[self.table]
        unchanged = [table.c.id == self.id, *(_same(table.c[name], value) for name, value in self.seen.items())]
        return sa.update(table).where(*unchanged, *facts).values(**self.new)

    def other_row(self, before: Mapping[str, Any], current: Mapping[str, Any]) -> str:
        """Return why a row is not the one that this change was made to; empty if it is.

        :param before: the complete row before the change.
        :param current: the complete row now; empty if it does not exist.
        """
        if not current:
            return f"{self.table} {self.id} is gone since (archived?)"
        for name in IDENTITY[self.table]:
            was, now = (self.new if name in self.new else before).get(name), current.get(name)
            if name == "deleted" and now and now != was:
                return f"{self.table} {self.id} was soft-deleted since"
            if now != was:
                return f"{self.table} {self.id} is of another {name} since ({now}, was {was})"
        return ""

    def as_left(
        self, before: Mapping[str, Any], facts: Sequence[sa.ColumnElement[bool]]
    ) -> list[sa.ColumnElement[bool]]:
        """Return the conditions under which the row may be restored: as this change left it, and the facts hold."""
        table = tables.metadata.tables[self.table]
        left = {name: before[name] for name in IDENTITY[self.table] if name in before} | dict(self.new)
        return [table.c.id == self.id, *(_same(table.c[name], value) for name, value in left.items()), *facts]

    def reversal(self, before: Mapping[str, Any], facts: Sequence[sa.ColumnElement[bool]]) -> sa.Update:
        """Return the UPDATE that restores the row, if it is :meth:`as_left`."""
        table = tables.metadata.tables[self.table]
        return sa.update(table).where(*self.as_left(before, facts)).values({name: before[name] for name in self.new})


def changes(verdict: Verdict, relatives: Mapping[str, PciRow], now: datetime) -> tuple[Change, ...]:
    """Return the changes of a repair in the order of writing.

    :param relatives: the live rows of the compute node by address, for physical and virtual functions.
    :param now: the value for ``updated_at``, in whole seconds, which every database stores.
    """
    written: list[Change] = []
    freed = {row.id for row in verdict.rows}
    kept = [other for other in relatives.values() if other.taken and other.id not in freed]
    if verdict.repair in (Repair.FREE, Repair.RETIRE, Repair.CLEAR_DELETED):
        for row in verdict.rows:
            new: dict[str, object] = {**_FREED, "updated_at": now}
            if verdict.repair is Repair.RETIRE:
                new |= {"deleted": row.id, "deleted_at": now}
            written.append(_row_change(row, new))
            if verdict.repair is Repair.FREE:
                if any(row.address == other.parent_addr or row.parent_addr == other.address for other in kept):
                    new["status"] = "unavailable"  # as Nova has it while another uses a related function
                written += _mirrors(row, relatives, freed, now)
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
    """Yield the changes that Nova makes to relatives of a freed function (``nova/objects/pci_device.py``, ``free``)."""
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
