"""Open a cell for reading: one read-only snapshot, with access to the other cells."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from gpustack.base.errors import DatabaseError
from gpustack.novadb import databases, read, schema
from gpustack.novadb.model import DAMAGE
from gpustack.novadb.other_cells import OtherCells
from gpustack.novadb.sources import Cell, Sources
from gpustack.novadb.view import Clock


class Scope(Protocol):
    """What is read of a cell, and what counts as recent."""

    @property
    def hosts(self) -> frozenset[str] | None:
        """The chosen hosts; None for all."""

    def clock(self, now: datetime, reports: Mapping[str, datetime]) -> Clock:
        """The clock of a cell, from the database's current time and the last report of any service, by binary."""


@contextmanager
def reading(sources: Sources, cell: Cell, scope: Scope) -> Iterator[tuple[read.CellReader, Clock]]:
    """Open a read-only snapshot of a cell, with access to the other cells.

    :raises DatabaseError: if the cell cannot be read, or has an unknown schema.
    """
    others = OtherCells(api=sources.api, cells=sources.all_cells, services=sources.services)
    try:
        with databases.snapshot(cell.database) as connection:
            reader = read.CellReader(
                connection=connection,
                schema=schema.read(connection, "cell", cell.database.where),
                cell=cell.name,
                cell_uuid=cell.uuid,
                others=others,
                identity=others.identity(connection, cell, scope.hosts),
            )
            yield reader, scope.clock(read.now(connection), read.reports(connection))
    except DAMAGE as error:
        raise DatabaseError(
            f"a value can't be read: {type(error).__name__}: {error}",
            where=cell.database.where,
            remedy="look at services and migrations for values that Nova does not write; other cells are judged",
        ) from error
    finally:
        others.close()
