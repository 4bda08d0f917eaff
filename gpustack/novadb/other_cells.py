"""Find owners outside the cell of their row, or prove that no other cell has them.

The API database has pointers: the cell to which an instance or a host is mapped. Nova follows a pointer to a record; a
wrong one hides the record from Nova, but its host still uses the device. So a pointer may add a doubt, and never
removes one: whatever it names, every cell is read. If one is unreadable, the owner is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key
from gpustack.novadb import databases, moves, schema, tables
from gpustack.novadb.databases import Database
from gpustack.novadb.model import DAMAGE, Instance, Migration
from gpustack.novadb.nodes import displaced
from gpustack.novadb.owners import BATCH, batches, read_instances, spellings
from gpustack.novadb.requests import Asked, read_requests
from gpustack.novadb.sources import CELL0, Cell, Records, Sources


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
        query, name = sa.select(mapping.host, mapping.cell_id), sa.func.lower(mapping.host)
        queries = [query] if hosts is None else [query.where(name.in_(batch)) for batch in batches(map(key, hosts))]
        rows = (row for each in queries if self._has_hosts for row in self._connection.execute(each))
        return {key(host): self._pointer(number) for host, number in rows if host}

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
    place, mapped = f"instance {uuid}", f"{pointer.name} ({pointer.cell})"
    return finding(Code.INSTANCE_MAPPED_TO_OTHER_CELL, place=place, uuid=uuid, mapped=mapped, actual=actual)


_NO_API = "without the API database it is not known whether another cell has it (--config-file reads it)"
_MANY_OWNERS = 10_000


@dataclass(kw_only=True)
class Elsewhere:
    """What the other cells have of an instance.

    :ivar alive: its live records.
    :ivar migrations: its migrations there, including finished ones.
    :ivar asked: its PCI requests in the cell of the first live record; None without one.
    :ivar doubts: why it is not known where the instance is.
    :ivar unread: those of them that are cells that can't be read, and that its mapping does not name.
    """

    alive: list[Instance] = field(default_factory=list)
    migrations: list[Migration] = field(default_factory=list)
    asked: Asked | None = None
    doubts: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class OtherCells:
    """The API database and all known cells; connections are opened on first use."""

    sources: Sources
    _stack: ExitStack = field(default_factory=ExitStack)
    _connections: dict[str, sa.Connection | DatabaseError] = field(default_factory=dict)
    _mappings: Mappings | None = None

    def close(self) -> None:
        self._stack.close()

    def look_up(self, here: Mapping[str, Instance | None], own_cell: str) -> dict[str, Elsewhere]:
        """Look up instances in all cells but one, including disabled cells and cell0.

        :param here: the instances by uuid, each with its record in the cell that is left out, if there is one.
        :param own_cell: the uuid of that cell.
        """
        found = {uuid: Elsewhere() for uuid in here}
        if self.sources.api is None or not here:
            for uuid in here:
                if (record := here[uuid]) is None or record.deleted:
                    found[uuid].doubts.append(f"instance {uuid} is not in this cell; {_NO_API}")
            return found
        records = {uuid: {own_cell: not record.deleted} if record else {} for uuid, record in here.items()}
        names = {cell.uuid: cell.name for cell in self.sources.all_cells if cell.uuid == own_cell}
        unread: dict[str, str] = {}
        for cell in self.sources.all_cells:
            if cell.uuid == own_cell:
                continue
            try:
                of_cell = self._in_cell(cell, found.keys())
            except DatabaseError as error:
                unread[cell.uuid] = f"it may be in cell {cell.name}, which could not be asked: {error.what}"
                continue
            names[cell.uuid] = cell.name
            for uuid, elsewhere in found.items():
                elsewhere.migrations += of_cell.moves.get(uuid, ())
                if (record := of_cell.instances.get(uuid)) is not None:
                    records[uuid][cell.uuid] = not record.deleted
                    elsewhere.alive += () if record.deleted else (record,)
                    elsewhere.asked = elsewhere.asked or of_cell.requests.get(uuid)
        pointers: Mapping[str, Pointer] = {}
        try:
            with databases.errors_of(self.sources.api):
                mappings = self._mapped(self.sources.api)
                pointers, lost = mappings.of_instances(here), mappings.lost_cells()
            of_all = [worded(finding(Code.CELL_WITHOUT_RECORD, place=f"cell {n}", number=n)) for n in lost]
        except DatabaseError as error:
            of_all = [f"the API database could not be asked: {error.what}"]
        for uuid, elsewhere in found.items():
            pointer = pointers.get(uuid)
            doubts = {cell: f"instance {uuid}: {reason}" for cell, reason in unread.items()}
            elsewhere.doubts += [*doubts.values(), *of_all]
            elsewhere.unread = [doubt for cell, doubt in doubts.items() if pointer is None or pointer.cell != cell]
            if wrong := contradiction(uuid, pointer, records[uuid], names):
                elsewhere.doubts.append(worded(wrong))
        return found

    def identity(self, connection: sa.Connection, cell: Cell, hosts: Collection[str] | None) -> Identity:
        """Compare a cell's services with the mappings of hosts and with the other cells.

        :param connection: a snapshot of the cell.
        :param hosts: check these hosts, and for the cell a sample; None for all hosts.
        """
        if self.sources.api is None:
            return Identity()
        uuid_by_host = _services(connection, hosts)
        try:
            with databases.errors_of(self.sources.api):
                pointers = self._mapped(self.sources.api).of_hosts(None if hosts is None else uuid_by_host)
        except DatabaseError as error:
            return Identity(doubt=f"the API database could not be asked: {error.what}")
        mapped = {host: pointer for host in uuid_by_host if (pointer := pointers.get(key(host)))}
        strays = {host: pointer for host, pointer in mapped.items() if pointer.cell != cell.uuid}
        named: dict[str, Any] = {"place": f"cell {cell.name}", "cell": cell.name, "uuid": cell.uuid}
        wrong = [
            finding(Code.CELLS_SHARE_A_DATABASE, other=other.name, other_uuid=other.uuid, **named)
            for other in self._twins(cell, [*filter(None, uuid_by_host.values())][:BATCH])
        ]
        if strays and len(strays) == len(mapped):
            others = ", ".join(sorted({pointer.name for pointer in strays.values()}))
            wrong.append(finding(Code.CELL_OF_OTHER_HOSTS, others=others, **named))
        return Identity(
            doubt="; ".join(map(worded, wrong)),
            hosts={key(host): worded(_stray(host, pointer, cell)) for host, pointer in strays.items()},
        )

    def _in_cell(self, cell: Cell, uuids: Set[str]) -> Records:
        """Return what a cell has of instances, including deleted ones.

        :raises DatabaseError: if the cell, or a value in it, cannot be read.
        """
        if (known := self.sources.records.get(cell.uuid)) is not None and uuids <= known.names:
            return known
        try:
            connection = self._connection(cell)
            with databases.errors_of(cell.database):
                return _read(connection, cell, uuids)
        except DatabaseError as error:
            self._connections[cell.uuid] = error
            raise
        except DAMAGE as error:
            raise DatabaseError(f"a value can't be read: {type(error).__name__}: {error}") from error

    def _twins(self, cell: Cell, uuids: Collection[str]) -> Iterator[Cell]:
        """Yield the other cells with the URL or with services of this one: the same database, or a copy of it."""
        for other in self.sources.all_cells:
            if other.uuid != cell.uuid and (
                other.database.url == cell.database.url or (uuids and not self._services_of(other).isdisjoint(uuids))
            ):
                yield other

    def _services_of(self, cell: Cell) -> frozenset[str]:
        """The uuids of the services of a cell; none if it cannot be read."""
        if cell.database not in self.sources.services:
            query = sa.select(tables.services.c.uuid).where(tables.services.c.deleted == 0)
            try:
                opened = self._connection(cell)
                with databases.errors_of(cell.database):
                    self.sources.services[cell.database] = frozenset(
                        opened.scalars(query) if _have_uuids(opened) else ()
                    )
            except DatabaseError as error:
                self._connections[cell.uuid] = error
        return self.sources.services.get(cell.database, frozenset())

    def _connection(self, cell: Cell) -> sa.Connection:
        """:raises DatabaseError: if the cell cannot be read; the same each time."""
        if isinstance(known := self._connections.get(cell.uuid), DatabaseError):
            raise known
        return known or self._connections.setdefault(cell.uuid, self._open(cell.database, "cell"))  # type: ignore[return-value]

    def _open(self, database: Database, kind: schema.Kind) -> sa.Connection:
        with databases.errors_of(database):
            connection = self._stack.enter_context(databases.snapshot(database))
            schema.read(connection, kind, database.where)
        return connection

    def _mapped(self, api: Database) -> Mappings:
        self._mappings = self._mappings or Mappings(self._open(api, "api"))
        return self._mappings


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Whether a database is that of the cell whose mapping names it.

    :ivar doubt: why it may be another cell's; empty if nothing shows that.
    :ivar hosts: for hosts that are mapped to another cell, the reason, by the key of the host's name.
    """

    doubt: str = ""
    hosts: Mapping[str, str] = field(default_factory=dict)

    def of(self, host: str) -> str:
        """Return the doubt about a host's rows; empty if there is none."""
        return self.doubt or self.hosts.get(key(host), "")


def worded(wrong: Finding) -> str:
    """Return a finding as a reason of a verdict."""
    return f"{wrong.code}: {wrong.message}; {wrong.remedy}"


def _read(connection: sa.Connection, cell: Cell, uuids: Iterable[str]) -> Records:
    names = frozenset(uuids)
    records = read_instances(connection, names, cell.name)
    alive = {uuid for uuid, record in records.items() if not record.deleted}
    requests = read_requests(connection, alive, alive) if alive else {}
    return Records(names, records, requests, moves.moves_of(connection, names))


def surveyed(sources: Sources) -> Sources:
    """Return the sources with what each cell has of the displaced owners of all cells: each is asked once for all.

    Otherwise each cell asks all others. A cell that cannot be read is left out: it is asked again, and then reported.
    """
    if sources.api is None or len(sources.with_hosts) == 1:
        return sources
    owners = set[str]()
    for cell in sources.with_hosts:
        with suppress(DatabaseError, *DAMAGE), databases.snapshot(cell.database) as connection:
            owners.update(displaced(connection, _MANY_OWNERS))
    records = dict[str, Records]()
    for cell in sources.all_cells if 0 < len(owners) < _MANY_OWNERS else ():
        with suppress(DatabaseError, *DAMAGE), databases.snapshot(cell.database) as connection:
            schema.read(connection, "cell", cell.database.where)
            records[cell.uuid] = _read(connection, cell, owners)
    return replace(sources, records=records)


def _have_uuids(connection: sa.Connection) -> bool:
    """Whether the services of a cell have uuids: since Pike."""
    return "uuid" in {column.name for column in tables.columns(connection, tables.services)}


def _services(connection: sa.Connection, hosts: Collection[str] | None) -> dict[str, str | None]:
    """Return the uuid of each nova-compute service by host.

    :param hosts: these hosts, and a sample of the oldest services; None for all.
    """
    service = tables.services.c
    uuid = service.uuid if _have_uuids(connection) else sa.null()
    query = sa.select(service.host, uuid).where(service.binary == "nova-compute", service.deleted == 0)
    sample = query.order_by(service.id).limit(None if hosts is None else BATCH)
    queries = [sample, *(query.where(service.host.in_(batch)) for batch in batches(hosts or ()))]
    return {host: number for each in queries for host, number in connection.execute(each) if host}


def _stray(host: str, pointer: Pointer, cell: Cell) -> Finding:
    return finding(
        Code.HOST_MAPPED_TO_OTHER_CELL,
        place=f"host {host}",
        host=host,
        mapped=f"{pointer.name} ({pointer.cell})" if pointer.cell else pointer.name,
        mapped_uuid=pointer.cell or "UUID",
        actual=f"{cell.name} ({cell.uuid})",
    )
