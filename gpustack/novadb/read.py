"""Read a cell: each compute node with its rows, their owners, and everything else that the rules need.

Compute nodes are read in chunks, and the data of a chunk is dropped before the next, so memory does not grow with the
table. Expensive look-ups (finished migrations, devices on other hosts, other cells) are made only for owners that are
not placed on the compute node of their row.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.base.hostnames import find, index, short
from gpustack.novadb import databases, moves, schema, tables
from gpustack.novadb.counts import INSTANCES, READ, RESIDENTS, NodeCounts, count_nodes
from gpustack.novadb.model import DAMAGE, UNREADABLE, ComputeNode, Instance, Migration, PciRow, Place, Service, place
from gpustack.novadb.nodes import nodes_called, nodes_of_guests, nodes_with_rows, nodes_with_uuids
from gpustack.novadb.other_cells import Elsewhere, Identity, OtherCells
from gpustack.novadb.owners import BATCH, batches, instance, instance_columns, read_instances, spellings
from gpustack.novadb.requests import UNREADABLE_REQUESTS, Asked, add_requests, parse_requests, read_requests
from gpustack.novadb.schema import DatabaseSchema
from gpustack.novadb.sources import Cell, Sources
from gpustack.novadb.view import Clock, NodeView, Owner

_NODES_AT_ONCE, _ROWS_AT_ONCE = 100, 10_000
_NOWHERE = Elsewhere()

ROW = tuple(tables.pci_devices.c[name] for name in PciRow._fields)
_NODE = tuple(tables.compute_nodes.c[column.name] for column in fields(ComputeNode))


def now(connection: sa.Connection) -> datetime:
    """Return the database's current time, naive UTC. SQLite has no server: this machine's time is used."""
    match connection.dialect.name:
        case "sqlite":
            return datetime.now(UTC).replace(tzinfo=None)
        case "postgresql":
            query = sa.text("SELECT now() AT TIME ZONE 'utc'")
        case _:
            query = sa.text("SELECT UTC_TIMESTAMP(6)")
    moment: datetime = connection.execute(query).scalar_one()
    return moment


def reports(connection: sa.Connection) -> dict[str, datetime]:
    """Return the time of the last report of any service, by binary (``nova-conductor``)."""
    table = tables.services.c
    latest = sa.func.max(sa.func.coalesce(table.last_seen_up, table.created_at))
    moments = connection.execute(sa.select(table.binary, latest).where(table.deleted == 0).group_by(table.binary))
    return {binary: moment for binary, moment in moments if binary and moment not in (None, UNREADABLE)}


@dataclass(kw_only=True)
class CellReader:
    """Reads one cell through one snapshot.

    :ivar cell: the cell's name, for messages.
    :ivar cell_uuid: the cell's uuid in its mapping; empty if unknown.
    :ivar others: the API database and the other cells.
    :ivar identity: whether this database is that of the cell.
    """

    connection: sa.Connection
    schema: DatabaseSchema
    cell: str
    cell_uuid: str
    others: OtherCells
    identity: Identity = field(default_factory=Identity)

    def views(
        self,
        hosts: frozenset[str] | None = None,
        instance_uuid: str | None = None,
        uuids: Collection[str] = (),
        names: Collection[str] = (),
        healthy: Callable[[NodeCounts], bool] | None = None,
    ) -> Iterator[NodeView]:
        """Yield each compute node that has rows, or should have some.

        :param hosts: only compute nodes of these hosts; None for all.
        :param instance_uuid: only compute nodes with a row of this instance, and the one on which it is placed.
        :param uuids: in addition, live compute nodes with these uuids, even without rows.
        :param names: in addition, live compute nodes whose host or hypervisor may have one of these names, short or
            full.
        :param healthy: decides from counts which compute nodes are left out; None to leave out none.
        """
        services = self._services()
        unfinished = moves.unfinished(self.connection)
        by_place = moves.by_place(unfinished)
        node_ids = {
            *nodes_with_rows(self.connection, hosts, instance_uuid),
            *nodes_of_guests(self.connection, hosts, instance_uuid),
            *nodes_with_uuids(self.connection, uuids),
            *nodes_called(self.connection, names, hosts),
        }
        ids = sorted(node_ids if healthy is None else self._unhealthy(sorted(node_ids), healthy))
        for chunk in self._chunks(ids):
            for view in self._readable(chunk, services, unfinished):
                moving = by_place.get(view.node.place, ())
                yield replace(view, moves=tuple(moving)) if moving else view

    def owner(self, uuid: str) -> Owner:
        """Read one instance, in whichever cell it is."""
        return self._owners({uuid}, {}, {}, {uuid}, {})[uuid]

    # --- once for a cell ------------------------------------------------------------------------------------------

    def _services(self) -> dict[str, Service]:
        table = tables.services.c
        query = sa.select(*tables.columns(self.connection, tables.services)).where(
            table.binary == "nova-compute", table.deleted == 0
        )
        by_host = {
            row["host"] or "": Service(**{column.name: row.get(column.name) for column in fields(Service)})  # type: ignore[arg-type]
            for row in self.connection.execute(query, execution_options={"yield_per": BATCH}).mappings()
        }
        return index(by_host)  # MySQL ignores case, so a host's name may be written in two ways

    def _unhealthy(self, ids: list[int], healthy: Callable[[NodeCounts], bool]) -> Iterator[int]:
        for batch in batches(ids):
            fit: set[int] = set()
            with suppress(*DAMAGE):  # all are read then
                fit = {node.id for node in count_nodes(self.connection, batch) if healthy(node)}
            yield from (node_id for node_id in batch if node_id not in fit)

    # --- a chunk of compute nodes ---------------------------------------------------------------------------------

    def _chunks(self, ids: list[int]) -> Iterator[list[int]]:
        """Divide compute nodes into chunks with few rows, or of one compute node with many."""
        table = tables.pci_devices.c
        query = sa.select(table.compute_node_id, sa.func.count()).where(READ).group_by(table.compute_node_id)
        for batch in batches(ids):
            rows = {row[0]: row[1] for row in self.connection.execute(query.where(table.compute_node_id.in_(batch)))}
            chunk, size = list[int](), 0
            for number in batch:
                size += rows.get(number, 0)
                if chunk and (len(chunk) == _NODES_AT_ONCE or size > _ROWS_AT_ONCE):
                    yield chunk
                    chunk, size = [], rows.get(number, 0)
                chunk.append(number)
            yield chunk

    def _readable(
        self, ids: list[int], services: Mapping[str, Service], unfinished: Mapping[str, tuple[Migration, ...]]
    ) -> Iterator[NodeView]:
        """Read a chunk of compute nodes; if a value in it is unreadable, read each compute node separately."""
        try:
            yield from list(self._chunk(ids, services, unfinished))
        except DAMAGE as error:
            if len(ids) > 1:
                for node_id in ids:
                    yield from self._readable([node_id], services, unfinished)
                return
            unread = f"a value can't be read: {type(error).__name__}: {error}"
            yield NodeView(cell=self.cell, node=self._name(ids[0]), service=None, rows=(), owners={}, unread=unread)

    def _name(self, node_id: int) -> ComputeNode:
        """Return a compute node with its names only, for one whose other values are unreadable."""
        table = tables.compute_nodes.c
        query = sa.select(table.host, table.hypervisor_hostname).where(table.id == node_id)
        host, node = self.connection.execute(query).first() or (None, None)
        return replace(_lost(node_id), host=host, hypervisor_hostname=node, deleted=0)

    def _chunk(
        self, ids: list[int], services: Mapping[str, Service], unfinished: Mapping[str, tuple[Migration, ...]]
    ) -> Iterator[NodeView]:
        nodes = self._nodes(ids)
        rows, written = self._rows(ids)
        live = tables.compute_nodes.c.id.in_(ids) & (tables.compute_nodes.c.deleted == 0)
        # One statement for the instances of all compute nodes instead of one by host and many by instance.
        residents = [*self._placed(RESIDENTS, live), *self._namesakes(nodes.values())]
        instances = {resident.uuid: resident for resident, _requests in residents}
        requests: dict[str, Asked] = {}
        for resident, asked in residents:
            add_requests(requests, resident.uuid, asked)
        owners_by_node, displaced = _owners_by_node(rows, nodes, instances)
        uuids = instances.keys() | set().union(*owners_by_node.values())
        owners = self._owners(uuids, instances, requests, displaced, unfinished)
        elsewhere = self._elsewhere(displaced)
        by_place: defaultdict[Place, list[str]] = defaultdict(list)
        for resident in instances.values():
            by_place[place(resident.host, resident.node)].append(resident.uuid)
        for node_id in ids:
            node = nodes.get(node_id) or _lost(node_id)
            of_node = tuple(rows.get(node_id, ()))
            places = {node.place, *(place(*other) for other in self._other_names(node))}
            placed = () if node.deleted else tuple(uuid for other in places for uuid in by_place.get(other, ()))
            owning = owners_by_node.get(node_id, set())
            yield NodeView(
                cell=self.cell,
                node=node,
                service=find(services, node.host or ""),
                rows=of_node,
                owners={uuid: owners[uuid] for uuid in (*owning, *placed)},
                elsewhere={
                    uuid: tuple(entry for entry in elsewhere[uuid] if entry[1].compute_node_id != node_id)
                    for uuid in owning & elsewhere.keys()
                },
                has_request_ids=self.schema.has_request_ids,
                written={row.id: written[row.id] for row in of_node if row.id in written} if written else {},
                services=services,
            )

    def _nodes(self, ids: list[int]) -> dict[int, ComputeNode]:
        query = sa.select(*_NODE).where(tables.compute_nodes.c.id.in_(ids))
        return {row.id: ComputeNode(**row._mapping) for row in self.connection.execute(query)}

    def _rows(self, ids: list[int]) -> tuple[dict[int, list[PciRow]], dict[int, str]]:
        """Return live rows, and soft-deleted rows that still name an owner, by compute node.

        Uuids of owners are converted to lower case. The second dictionary has the original spelling by row id.
        """
        table = tables.pci_devices.c
        query = (
            sa.select(*ROW)
            .where(table.compute_node_id.in_(ids), READ)
            .order_by(table.compute_node_id, table.address, table.deleted)
        )
        by_node: dict[int, list[PciRow]] = {}
        written: dict[int, str] = {}
        for values in self.connection.execute(query).all():
            row = PciRow.of(values)
            if row.instance_uuid and row.instance_uuid != (owner := str(values.instance_uuid)):
                written[row.id] = owner
            by_node.setdefault(row.compute_node_id, []).append(row)
        return by_node, written

    def _placed(self, joined: sa.FromClause, *chosen: sa.ColumnElement[bool]) -> list[tuple[Instance, Asked]]:
        """Return instances with their PCI requests."""
        extra = tables.instance_extra.c
        query = sa.select(*instance_columns(self.connection), extra.id, extra.pci_requests).select_from(joined)
        records = self.connection.execute(query.where(*chosen)).all()
        return [
            (instance(known, self.cell), UNREADABLE_REQUESTS if extra_id is None else parse_requests(text))
            for *known, extra_id, text in records
        ]

    @cached_property
    def _strange(self) -> dict[str, set[tuple[str, str | None]]]:
        """The places of live instances that no live compute node has, by the short names of their host and node."""
        nodes, guests = tables.compute_nodes.c, tables.instances.c
        live = sa.select(nodes.host, nodes.hypervisor_hostname).where(nodes.deleted == 0)
        placed = sa.select(guests.host, guests.node).distinct().where(guests.deleted == 0, guests.host.is_not(None))
        known = {(row[0], row[1]) for row in self.connection.execute(live)}
        by_name: dict[str, set[tuple[str, str | None]]] = {}
        for host, node in self.connection.execute(placed):
            for name in () if (host, node) in known else (host, node):
                if isinstance(name, str):  # SQLite has values of any type
                    by_name.setdefault(short(name), set()).add((host, node))
        return by_name

    def _other_names(self, node: ComputeNode) -> set[tuple[str, str | None]]:
        """Return the places of instances that may be on this compute node under another name of it."""
        names = () if node.deleted else (node.host, node.hypervisor_hostname)
        return {other for name in names if name for other in self._strange.get(short(name), ())}

    def _namesakes(self, nodes: Iterable[ComputeNode]) -> list[tuple[Instance, Asked]]:
        """Return the live instances that may be on these compute nodes under other names, with their PCI requests."""
        places = {other for node in nodes for other in self._other_names(node)}
        guests = tables.instances.c
        hosts = batches(sorted({host for host, _node in places}))
        found = (pair for b in hosts for pair in self._placed(INSTANCES, guests.host.in_(b), guests.deleted == 0))
        return [(record, asked) for record, asked in found if (record.host, record.node) in places]

    # --- owners ---------------------------------------------------------------------------------------------------

    def _owners(
        self,
        uuids: set[str],
        residents: Mapping[str, Instance],
        read_already: Mapping[str, Asked],
        displaced: set[str],
        unfinished: Mapping[str, tuple[Migration, ...]],
    ) -> dict[str, Owner]:
        instances = {**read_instances(self.connection, displaced - set(residents), self.cell), **residents}
        others = self.others.look_up({uuid: instances.get(uuid) for uuid in sorted(displaced)}, self.cell_uuid)
        over = moves.moves_of(self.connection, displaced)
        here_alive = {uuid for uuid, known in instances.items() if not known.deleted}
        requests = {**read_already, **read_requests(self.connection, uuids - read_already.keys(), here_alive)}
        owners = {}
        for uuid in uuids:
            here, asked = instances.get(uuid), requests.get(uuid, UNREADABLE_REQUESTS)
            other = others.get(uuid, _NOWHERE)
            alive = [record for record in (here, *other.alive) if record is not None and not record.deleted]
            chosen = alive[0] if alive else here
            each_once = {move.id: move for move in (*unfinished.get(uuid, ()), *over.get(uuid, ()))}
            of_owner = other.asked if chosen is not here and other.asked else asked
            owners[uuid] = Owner(
                uuid=uuid,
                instance=chosen,
                in_several_cells=len(alive) > 1,
                migrations=tuple(move for _id, move in sorted(each_once.items())),
                migrations_elsewhere=tuple(other.migrations),
                requests=of_owner.requests,
                asked=of_owner.text,
                unknown_because="; ".join(other.doubts) or None,
                unknown_even_so="; ".join(doubt for doubt in other.doubts if doubt not in other.unread) or None,
            )
        return owners

    def _elsewhere(self, uuids: Iterable[str]) -> dict[str, list[tuple[str, PciRow]]]:
        """Return all taken rows of these owners, with the host of their compute node."""
        rows, nodes = tables.pci_devices.c, tables.compute_nodes.c
        by_owner: dict[str, list[tuple[str, PciRow]]] = {}
        for batch in batches(sorted(spellings(uuids))):
            query = (
                sa.select(nodes.host, *ROW)
                .join(tables.compute_nodes, nodes.id == rows.compute_node_id, isouter=True)
                .where(rows.instance_uuid.in_(batch), rows.status.in_(("claimed", "allocated")))
            )
            for host, *values in self.connection.execute(query):
                row = PciRow.of(values)
                by_owner.setdefault(row.instance_uuid or "", []).append((host or "an unknown host", row))
        return by_owner


def _owners_by_node(
    rows: Mapping[int, Iterable[PciRow]], nodes: Mapping[int, ComputeNode], instances: Mapping[str, Instance]
) -> tuple[dict[int, set[str]], set[str]]:
    """Return the owners of each compute node's rows, and those that are not placed on the compute node of a row."""
    by_node: dict[int, set[str]] = {}
    displaced = set()
    for node_id, of_node in rows.items():
        for row in of_node:
            if uuid := row.instance_uuid:
                by_node.setdefault(node_id, set()).add(uuid)
                resident, node = instances.get(uuid), nodes.get(node_id)
                if row.deleted != 0 or resident is None or node is None or not node.has(resident):
                    displaced.add(uuid)
    return by_node, displaced


def _lost(node_id: int) -> ComputeNode:
    """A placeholder for a compute node without a row, which only a database without foreign keys allows."""
    return ComputeNode(id=node_id, uuid=None, host=None, hypervisor_hostname=None, deleted=node_id, updated_at=None)


class Scope(Protocol):
    """What is read of a cell, and what counts as recent."""

    @property
    def hosts(self) -> frozenset[str] | None:
        """The chosen hosts; None for all."""

    def clock(self, now: datetime, reports: Mapping[str, datetime]) -> Clock:
        """The clock of a cell, from the database's current time and the last report of any service, by binary."""


@contextmanager
def reading(sources: Sources, cell: Cell, scope: Scope) -> Iterator[tuple[CellReader, Clock]]:
    """Open a read-only snapshot of a cell, with access to the other cells.

    :raises DatabaseError: if the cell cannot be read, or has an unknown schema.
    """
    try:
        with closing(OtherCells(sources=sources)) as others, databases.snapshot(cell.database) as connection:
            reader = CellReader(
                connection=connection,
                schema=schema.read(connection, "cell", cell.database.where),
                cell=cell.name,
                cell_uuid=cell.uuid,
                others=others,
                identity=others.identity(connection, cell, scope.hosts),
            )
            yield reader, scope.clock(now(connection), reports(connection))
    except DAMAGE as error:
        raise DatabaseError(
            f"a value can't be read: {type(error).__name__}: {error}",
            where=cell.database.where,
            remedy="look at services and migrations for values that Nova does not write; other cells are judged",
        ) from error
