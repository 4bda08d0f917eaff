"""The sources of a plan: cells with their databases, the API database, the hardware of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError, UsageError
from gpustack.novadb import cells, databases, hardware, tables
from gpustack.novadb.cells import Cell
from gpustack.novadb.databases import Database


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The databases and facts from which a plan is made.

    :ivar cells: the cells to judge.
    :ivar api: the API database; None if unknown.
    :ivar all_cells: all known cells. Owners may be in cells that are not judged.
    """

    cells: tuple[Cell, ...]
    api: Database | None = None
    all_cells: tuple[Cell, ...] = ()
    service_down_time: timedelta = timedelta(seconds=60)
    hardware: Mapping[str, hardware.Hardware] = field(default_factory=dict)
    """The hardware of hosts by name, from their facts."""

    @classmethod
    def from_nova_conf(cls, paths: list[Path]) -> Sources:
        """Return the API database of a nova configuration and all its cells.

        :raises NovaConfigError: if a file cannot be read, or the files name no API database.
        :raises DatabaseError: if the API database cannot be read, or has no cell with hosts.
        """
        api, main, service_down_time = cells.from_nova_conf(paths)
        known = cells.cells(api, main)
        sources = cls(api=api, cells=known, all_cells=known, service_down_time=service_down_time)
        if not sources.with_hosts:
            remedy = "check [api_database] connection; nova-manage cell_v2 list_cells shows the cells"
            raise DatabaseError("the API database has no cell with hosts", where=api.where, remedy=remedy)
        return sources

    @classmethod
    def from_url(cls, url: str) -> Sources:
        """Return a single cell without API database.

        :raises DatabaseError: if the URL is invalid.
        """
        cell = Cell(uuid="", name="cell", disabled=False, database=databases.database("cell database", url))
        return cls(cells=(cell,))

    @property
    def with_hosts(self) -> tuple[Cell, ...]:
        """The cells to judge without cell0, which has no compute host."""
        return tuple(cell for cell in self.cells if cell.uuid != cells.CELL0)

    def named(self, names: Iterable[str]) -> Sources:
        """Return the sources with only the cells of these names or uuids; all cells if ``names`` is empty.

        :raises UsageError: if no cell has one of the names.
        """
        wanted = set(names)
        chosen = tuple(cell for cell in self.cells if not wanted or cell.name in wanted or cell.uuid in wanted)
        missing = wanted - {name for cell in chosen for name in (cell.name, cell.uuid)}
        if missing:
            raise UsageError(
                f"there is no cell {sorted(missing)[0]!r}",
                remedy=f"known: {', '.join(cell.name for cell in self.cells)}",
            )
        return replace(self, cells=chosen)


def unknown_hosts(sources: Sources, hosts: Iterable[str]) -> set[str]:
    """Return those of these hosts of which no cell has a compute node, not even a deleted one.

    :raises DatabaseError: if a cell cannot be read.
    """
    missing = set(hosts)
    for cell in sources.with_hosts:
        if missing:
            with databases.snapshot(cell.database) as connection:
                host = tables.compute_nodes.c.host
                missing -= set(connection.scalars(sa.select(host).where(host.in_(sorted(missing)))))
    return missing
