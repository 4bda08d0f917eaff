"""The pointers of the API database: the cell to which an instance or a host is mapped.

Nova follows a pointer to a record; a wrong one hides the record from Nova, but its host still uses the device. So a
pointer may add a doubt, and never removes one: whatever it names, every cell is read.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key
from gpustack.novadb import tables
from gpustack.novadb.cells import CELL0
from gpustack.novadb.owners import batches, spellings


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """The cell that a mapping names.

    :ivar cell: the cell's uuid; None if the mapping names no cell, or one that ``cell_mappings`` does not have.
    :ivar name: the name of the cell for messages.
    """

    cell: str | None
    name: str


class Mappings:
    """The mappings of an API database."""

    def __init__(self, connection: sa.Connection) -> None:
        """:param connection: a snapshot of the API database."""
        self._connection = connection
        self._has_hosts = sa.inspect(connection).has_table(tables.host_mappings.name)
        cells = connection.execute(sa.select(*tables.cell_mappings.columns)).all()
        self._cells = {number: Pointer(cell=uuid, name=name or uuid) for number, uuid, name in cells}

    def of_instances(self, uuids: Iterable[str]) -> dict[str, Pointer]:
        """Return the cells of those instances that have a mapping, by uuid."""
        mapping = tables.instance_mappings.c
        query = sa.select(mapping.instance_uuid, mapping.cell_id)
        return {
            uuid.lower(): self._pointer(number)
            for batch in batches(spellings(uuids))
            for uuid, number in self._connection.execute(query.where(mapping.instance_uuid.in_(batch)))
        }

    def of_hosts(self, hosts: Collection[str] | None) -> dict[str, Pointer]:
        """Return the cells of mapped hosts, by the key of the host's name.

        :param hosts: only these hosts; None for all.
        """
        mapping = tables.host_mappings.c
        query = sa.select(mapping.host, mapping.cell_id)
        names = [None] if hosts is None else batches(map(key, hosts))
        if not self._has_hosts:
            return {}
        return {
            key(host): self._pointer(number)
            for batch in names
            for host, number in self._connection.execute(
                query if batch is None else query.where(sa.func.lower(mapping.host).in_(batch))
            )
            if host
        }

    def lost_cells(self) -> list[int]:
        """Return the ids of cells that ``host_mappings`` names and ``cell_mappings`` does not have."""
        if not self._has_hosts:
            return []
        number = tables.host_mappings.c.cell_id
        return list(self._connection.scalars(sa.select(number).distinct().where(number.not_in(list(self._cells)))))

    def _pointer(self, number: int | None) -> Pointer:
        absent = "no cell" if number is None else f"an unknown cell (id {number})"
        return self._cells.get(number or 0, Pointer(cell=None, name=absent))


def contradiction(
    uuid: str, pointer: Pointer | None, records: Mapping[str, bool], names: Mapping[str, str]
) -> Finding | None:
    """Return what is wrong with the mapping of an instance; None if it agrees with the cells, or if there is none.

    :param records: whether the instance is alive, by the uuid of each cell that has a record of it.
    :param names: the name of each cell, by uuid. Only cells that were read.
    """
    if pointer is None:
        return None
    if pointer.cell in (None, CELL0):
        return finding(Code.INSTANCE_MAPPED_TO_NO_CELL, place=f"instance {uuid}", uuid=uuid, mapped=pointer.name)
    alive = [cell for cell, lives in records.items() if lives]
    if pointer.cell not in names or pointer.cell in (alive or records):
        return None
    actual = ", ".join(sorted(names.get(cell, cell) for cell in alive or records)) or "no cell"
    return finding(
        Code.INSTANCE_MAPPED_TO_OTHER_CELL,
        place=f"instance {uuid}",
        uuid=uuid,
        mapped=f"{pointer.name} ({pointer.cell})",
        actual=actual,
    )
