"""Read the records of one GPU or one instance as they are stored, including soft-deleted ones."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from gpustack.novadb import databases, schema, tables
from gpustack.novadb.owners import batches, spellings
from gpustack.novadb.sources import Cell

Record = Mapping[str, Any]
"""A row by column, without the columns that the database lacks."""


@dataclass(frozen=True, kw_only=True)
class StoredRecords:
    """The records of a cell, through one snapshot."""

    connection: sa.Connection

    def devices_at(self, host: str, address: str) -> list[Record]:
        """The rows of a GPU and its relatives, with ``host`` and ``node_deleted`` of their compute nodes."""
        rows, nodes = tables.pci_devices.c, tables.compute_nodes.c
        own = sa.or_(sa.func.lower(rows.address) == address, sa.func.lower(rows.parent_addr) == address)
        matching = self._devices(nodes.host == host, own)
        parents = sorted({row["parent_addr"] for row in matching if row["parent_addr"]} - {address})
        return [*matching, *(self._devices(nodes.host == host, rows.address.in_(parents)) if parents else ())]

    def devices_of(self, instances: Iterable[str]) -> list[Record]:
        """The rows that name one of these instances, with the same columns."""
        return self._devices(tables.pci_devices.c.instance_uuid.in_(sorted(spellings(instances))))

    def of(self, table: sa.Table, column: str, values: Iterable[str]) -> Iterator[Record]:
        """The records of a table of :mod:`gpustack.novadb.tables` with one of these values in a column."""
        wanted = sorted(spellings(values)) if "uuid" in column else sorted(set(values))
        for batch in batches(wanted):
            query = sa.select(*tables.columns(self.connection, table)).where(table.c[column].in_(batch))
            yield from map(dict, self.connection.execute(query.order_by(table.c.id)).mappings())

    def _devices(self, *conditions: sa.ColumnElement[bool]) -> list[Record]:
        rows, nodes = tables.pci_devices.c, tables.compute_nodes.c
        columns = tables.columns(self.connection, tables.pci_devices)
        query = sa.select(*columns, nodes.host, nodes.deleted.label("node_deleted"))
        joined = tables.pci_devices.join(tables.compute_nodes, nodes.id == rows.compute_node_id, isouter=True)
        query = query.select_from(joined).where(*conditions).order_by(rows.address, rows.id)
        return list(map(dict, self.connection.execute(query).mappings()))


@contextmanager
def stored_records(cell: Cell) -> Iterator[StoredRecords]:
    """Open a snapshot of a cell.

    :raises DatabaseError: if the cell cannot be read, or has an unknown schema.
    """
    with databases.snapshot(cell.database) as connection:
        schema.read(connection, "cell", cell.database.where)
        yield StoredRecords(connection=connection)
