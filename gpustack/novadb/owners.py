"""Find the owner of a row: an instance in any cell, or the proof that none exists.

An owner that is not in the row's cell is looked up through the instance mappings of the API database. If a database
cannot be read, the owner is unknown. An instance counts as absent only if every cell where it could be was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.novadb import databases, schema, tables
from gpustack.novadb.cells import Cell
from gpustack.novadb.databases import Database
from gpustack.novadb.model import Instance
from gpustack.novadb.values import UNREADABLE

# Few round trips, and below every database's limit of parameters (SQLite before 3.32: 999).
BATCH = 500

Item = TypeVar("Item")


def batches(items: Iterable[Item]) -> Iterator[Sequence[Item]]:
    """Yield items in batches for one ``IN (…)`` each."""
    ordered = list(items)
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]


def read_instances(connection: sa.Connection, uuids: Iterable[str], cell: str) -> dict[str, Instance]:
    """Return the instances with these uuids in one cell, including deleted ones."""
    columns = instance_columns(connection)
    instances: dict[str, Instance] = {}
    # Only MySQL ignores case.
    for batch in batches(written for uuid in uuids for written in {uuid, uuid.upper()}):
        query = sa.select(*columns).where(tables.instances.c.uuid.in_(batch))
        for row in connection.execute(query):
            known = instance(row, cell)
            instances[known.uuid] = known
    return instances


INSTANCE = (
    *("uuid", "host", "node", "vm_state", "task_state", "deleted", "hidden", "display_name"),
    *("updated_at", "deleted_at"),
)


def instance_columns(connection: sa.Connection) -> list[sa.ColumnElement[Any]]:
    """Return the columns of ``instances`` in the order of :data:`INSTANCE`; NULL for missing ones."""
    present = {column.name: column for column in tables.columns(connection, tables.instances)}
    return [present.get(name, sa.null().label(name)) for name in INSTANCE]


def instance(row: Sequence[Any], cell: str) -> Instance:
    """Convert a row of ``instances``, with its columns in the order of :data:`INSTANCE`."""
    uuid, host, node, vm_state, task_state, deleted, hidden, display_name, updated_at, deleted_at = row
    return Instance(
        uuid=uuid.lower(),
        host=host,
        node=node,
        vm_state=vm_state,
        task_state=task_state,
        deleted=deleted or 0,
        hidden=bool(hidden),
        display_name=display_name,
        cell=cell,
        updated_at=_later(updated_at, deleted_at),
    )


def _later(moment: datetime | None, other: datetime | None) -> datetime | None:
    if UNREADABLE in (moment, other):
        return UNREADABLE
    return max(moment, other) if moment and other else moment or other


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a look-up in other cells.

    :ivar instance: the instance, if it is in another cell.
    :ivar unknown_because: why a database could not be read; None if all needed were.
    """

    instance: Instance | None = None
    unknown_because: str | None = None


@dataclass(kw_only=True)
class OtherCells:
    """The API database and all known cells; connections are opened on first use."""

    api: Database | None = None
    cells: tuple[Cell, ...] = ()
    _stack: ExitStack = field(default_factory=ExitStack)
    _connections: dict[str, sa.Connection | DatabaseError] = field(default_factory=dict)
    _names: dict[int, tuple[str, str]] | None = None

    def close(self) -> None:
        self._stack.close()

    def look_up(self, uuids: Iterable[str], own_cell: str) -> dict[str, Found]:
        """Look up instances outside one cell.

        :param own_cell: the uuid of the cell to leave out.
        """
        wanted = list(uuids)
        if self.api is None:
            reason = "without the API database it is not known whether another cell has it (--config-file reads it)"
            return {uuid: Found(unknown_because=f"instance {uuid} is not in this cell; {reason}") for uuid in wanted}
        try:
            mapped = self._mappings(self.api, wanted)
        except DatabaseError as error:
            return {
                uuid: Found(unknown_because=f"the API database could not be asked: {error.what}") for uuid in wanted
            }
        by_cell: dict[tuple[str, str], list[str]] = {}
        by_uuid = {uuid: Found() for uuid in wanted}
        unmapped = [uuid for uuid in wanted if uuid not in mapped]
        if unmapped:
            by_uuid.update(self._anywhere(unmapped, own_cell))
        for uuid, cell in mapped.items():
            if cell is None:
                by_uuid[uuid] = Found(
                    unknown_because=f"instance {uuid} is being scheduled: its mapping names no cell yet"
                )
            elif cell[0] != own_cell:
                by_cell.setdefault(cell, []).append(uuid)
        for (cell_uuid, name), members in by_cell.items():
            by_uuid.update(self._in_cell(cell_uuid, name, members))
        return by_uuid

    def _in_cell(self, cell_uuid: str, name: str, uuids: Sequence[str]) -> dict[str, Found]:
        connection = self._connection(cell_uuid)
        if isinstance(connection, DatabaseError):
            reason = f"it may be in cell {name}, which could not be asked: {connection.what}"
            return {uuid: Found(unknown_because=f"instance {uuid}: {reason}") for uuid in uuids}
        instances = read_instances(connection, uuids, name)
        return {uuid: Found(instance=instances.get(uuid)) for uuid in uuids}

    def _anywhere(self, uuids: Sequence[str], own_cell: str) -> dict[str, Found]:
        """Look up instances without a mapping: in every cell."""
        by_uuid = {uuid: Found() for uuid in uuids}
        for cell in self.cells:
            if cell.uuid == own_cell:
                continue
            for uuid, in_cell in self._in_cell(cell.uuid, cell.name, uuids).items():
                alive = in_cell.instance is not None and not in_cell.instance.deleted
                if alive or (in_cell.unknown_because and by_uuid[uuid].instance is None):
                    by_uuid[uuid] = in_cell
        return by_uuid

    def _connection(self, cell_uuid: str) -> sa.Connection | DatabaseError:
        if cell_uuid not in self._connections:
            cell = next((cell for cell in self.cells if cell.uuid == cell_uuid), None)
            if cell is None:
                self._connections[cell_uuid] = DatabaseError("there is no such cell mapping")
            else:
                self._connections[cell_uuid] = self._open(cell.database, "cell")
        return self._connections[cell_uuid]

    def _open(self, database: Database, kind: schema.Kind) -> sa.Connection | DatabaseError:
        try:
            connection = self._stack.enter_context(databases.snapshot(database))
            schema.read(connection, kind, database.where)
        except DatabaseError as error:
            return error
        return connection

    def _mappings(self, api: Database, uuids: Sequence[str]) -> dict[str, tuple[str, str] | None]:
        """Return the cell of each mapped instance (uuid and name); None for one that has no cell yet."""
        connection = self._connections.get("api")
        if connection is None:
            connection = self._connections["api"] = self._open(api, "api")
        if isinstance(connection, DatabaseError):
            raise connection
        if self._names is None:
            cells = connection.execute(sa.select(*tables.cell_mappings.columns)).all()
            self._names = {id_: (uuid, name or uuid) for id_, uuid, name in cells}
        cell_by_uuid: dict[str, tuple[str, str] | None] = {}
        for batch in batches(uuids):
            mapping = tables.instance_mappings.c
            query = sa.select(mapping.instance_uuid, mapping.cell_id).where(mapping.instance_uuid.in_(batch))
            for uuid, cell_id in connection.execute(query):
                cell_by_uuid[uuid.lower()] = (
                    None if cell_id is None else self._names.get(cell_id, ("", f"with id {cell_id}"))
                )
        return cell_by_uuid
