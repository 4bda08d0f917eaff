"""The repairs as guarded statements, which change nothing unless the rows are as they were read.

Each repair is one transaction of few statements, each of which must change exactly one row. The conditions are part of
the statements, so the database checks them at the moment of writing.

The statement that writes compares the facts that a verdict depends on again. :func:`around` collects them from all data
that a rule, or undo, received, whether used or not. :func:`conditions` converts them to conditions of the UPDATE. So no
rule can omit one.

The journal has the devices on both hosts of the migrations that a repair sets to ``failed``, and undo compares them:
Nova then frees the instance's devices on the source and on the destination, not only those of the verdict. A migration
that gets its old status again does not return them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpustack.base.hostnames import extends
from gpustack.novadb import tables
from gpustack.novadb.model import ERROR, TERMINAL, PciRow
from gpustack.novadb.owners import spellings
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair.verdict import HeldDevice, NotBefore, NotIn, Repair, Seen, Verdict

Conditions = list[sa.ColumnElement[bool]]
COMPARED = ("compute_node_id", "address", "status", "instance_uuid", "request_id", "deleted")
"""The columns of a row of ``pci_devices`` that are compared."""
_MOVE = ("instance_uuid", "status", "source_compute", "source_node", "dest_compute", "dest_node")
_INSTANCE = ("host", "node", "vm_state", "task_state", "deleted")


def resting_on(verdict: Verdict, view: NodeView, clock: Clock) -> tuple[Seen, ...]:
    """Return the facts that a verdict depends on: those :func:`around` its rows and their owners."""
    uuids = {row.instance_uuid for row in verdict.rows} | {verdict.owner}
    owners = [view.owners[uuid] for uuid in sorted(filter(None, uuids)) if uuid in view.owners]
    return around(view, verdict.rows, owners, clock)


def around(view: NodeView, rows: Iterable[PciRow], owners: Iterable[Owner], clock: Clock) -> tuple[Seen, ...]:
    """Return the facts about the compute node, its service, the owners, and relatives of the devices.

    The owners' facts include their moves, PCI requests and devices.
    """
    facts = list(_host(view, clock))
    for owner in owners:
        facts += (*_instance(view, owner), *_moves(owner), *_devices(view, owner))
    facts += map(as_read, with_relatives(view, rows))
    return tuple(dict.fromkeys(facts))


def _host(view: NodeView, clock: Clock) -> Iterator[Seen]:
    """Yield the facts of the compute node and its service.

    A nova-compute that starts writes its compute node first and reports some seconds later. So ``updated_at`` of the
    compute node is compared too, unless nova-compute is up.
    """
    node = view.node
    up = view.host_state(clock) is HostState.UP
    match = {name: getattr(node, name) for name in ("id", "uuid", "deleted", "host", "hypervisor_hostname")}
    lost = node.place == (None, None) and node.deleted == node.id  # the row does not exist
    yield (
        Seen.of("compute_nodes", {"id": node.id}, 0)
        if lost
        else Seen.of("compute_nodes", match if up else {**match, "updated_at": node.updated_at})
    )
    service = {"binary": "nova-compute", "deleted": 0}
    if view.service is None:
        yield Seen.of("services", {**service, "host": node.host}, 0)
        return
    last = view.service.last_seen_up
    same = NotBefore(last) if up and last is not None else last
    yield Seen.of("services", {**service, "host": view.service.host, "last_seen_up": same})


def _instance(view: NodeView, owner: Owner) -> Iterator[Seen]:
    instance = owner.instance
    if instance is None or instance.cell != view.cell:
        yield Seen.of("instances", {"uuid": owner.uuid, "deleted": 0}, 0)
        return
    yield Seen.of("instances", {"uuid": owner.uuid, **{name: getattr(instance, name) for name in _INSTANCE}})
    if owner.alive and owner.asked is not None:
        match = {"instance_uuid": owner.uuid, "deleted": 0, "pci_requests": owner.asked}
        yield Seen.of("instance_extra", match)


def _moves(owner: Owner) -> Iterator[Seen]:
    """Yield the facts: unfinished migrations (a NULL status too) are unchanged, and there are no others."""
    moves = [move for move in owner.migrations if not move.over]
    for move in moves:
        match = {name: getattr(move, name) for name in _MOVE}
        yield Seen.of("migrations", {"id": move.id, "deleted": 0, **match})
    others = {"instance_uuid": owner.uuid, "deleted": 0, "status": NotIn(TERMINAL)}
    yield Seen.of("migrations", {**others, "id": NotIn(frozenset(move.id for move in moves))}, 0)


def _devices(view: NodeView, owner: Owner) -> Iterator[Seen]:
    """Yield the facts: the rows that name the owner are unchanged, and this node has no other row with that owner."""
    on_node = [row for row in view.rows if row.instance_uuid == owner.uuid]
    yield from map(as_read, [*on_node, *(row for _host, row in view.elsewhere.get(owner.uuid, ()))])
    others = {"compute_node_id": view.node.id, "instance_uuid": owner.uuid, "deleted": 0}
    yield Seen.of("pci_devices", {**others, "id": NotIn(frozenset(row.id for row in on_node))}, 0)


def with_relatives(view: NodeView, rows: Iterable[PciRow]) -> Iterator[PciRow]:
    """Yield the rows, and the physical and virtual functions of the same devices."""
    for row in rows:
        yield row
        if not row.live:
            continue
        top = row.parent_addr or row.address
        yield from view.children.get(top, ())
        if row.parent_addr and (parent := view.by_address.get(row.parent_addr)):
            yield parent


def as_read(row: PciRow | HeldDevice) -> Seen:
    """Return the fact that a row is as it was read or recorded."""
    return Seen.of("pci_devices", {name: getattr(row, name) for name in ("id", *COMPARED)})


def conditions(facts: Iterable[Seen], connection: sa.Connection, written: Mapping[str, Collection[int]]) -> Conditions:
    """Convert facts to conditions of a statement.

    :param written: by table, the ids of the rows that the repair itself writes. Their facts are left out: each
        statement compares its own row.
    """
    return [
        _condition(fact, connection, written.get(fact.table, ()))
        for fact in facts
        if dict(fact.match).get("id") not in written.get(fact.table, ())
    ]


def _condition(fact: Seen, connection: sa.Connection, written: Collection[int]) -> sa.ColumnElement[bool]:
    present = {column.name for column in tables.columns(connection, tables.metadata.tables[fact.table])}
    table = tables.metadata.tables[fact.table].alias()
    matches = [_matches(table.c[name], value) for name, value in fact.match if name in present]
    if written and fact.count == 0:
        matches.append(table.c.id.not_in(sorted(written)))
    # MySQL allows no subquery on the updated table (error 1093), except in a derived table with an aggregate.
    counted = sa.select(sa.func.count().label("matching")).select_from(table).where(*matches).subquery()
    return sa.select(counted.c.matching).scalar_subquery() == fact.count


def _matches(column: sa.ColumnElement[Any], value: object) -> sa.ColumnElement[bool]:
    match value:
        case None:
            return column.is_(None)
        case NotBefore(moment=moment):
            return column >= moment
        case NotIn(values=values):
            return sa.or_(column.is_(None), column.not_in(sorted(values))) if values else sa.true()
        case str() if column.key in ("uuid", "instance_uuid"):
            return column.in_(sorted(spellings([value])))
        case _:
            return column == value


_FREED = {"status": "available", "instance_uuid": None, "request_id": None}
_KEPT: Mapping[Repair | None, Mapping[str, object]] = {
    Repair.UNBLOCK: {"status": "available"},
    Repair.BLOCK_PARENT: {"status": "unavailable"},
    Repair.CLEAR_OWNER: {"instance_uuid": None, "request_id": None},
}
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

    def statement(self, facts: Conditions) -> sa.Update:
        """Return the guarded UPDATE.

        :param facts: further conditions (:func:`conditions`).
        """
        table = tables.metadata.tables[self.table]
        unchanged = [table.c.id == self.id, *(_matches(table.c[name], value) for name, value in self.seen.items())]
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

    def as_left(self, before: Mapping[str, Any], facts: Conditions) -> Conditions:
        """Return the conditions under which the row may be restored: as this change left it, and the facts hold."""
        table = tables.metadata.tables[self.table]
        left = {name: before[name] for name in IDENTITY[self.table] if name in before} | dict(self.new)
        return [table.c.id == self.id, *(_matches(table.c[name], value) for name, value in left.items()), *facts]

    def reversal(self, before: Mapping[str, Any], facts: Conditions) -> sa.Update:
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
    elif verdict.repair in _KEPT:
        written += [_row_change(row, {**_KEPT[verdict.repair], "updated_at": now}) for row in verdict.rows]
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
    seen = {name: getattr(row, name) for name in (*COMPARED, "updated_at")}
    return Change(table="pci_devices", id=row.id, seen=seen, new=new)


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


def held_devices(verdict: Verdict, view: NodeView) -> tuple[HeldDevice, ...]:
    """Return the devices of the owner on both hosts of the migrations that the repair sets to ``failed``."""
    owner = view.owners.get(verdict.owner or "")
    if owner is None or not verdict.migrations:
        return ()
    ends = [host for move in owner.migrations if move.id in verdict.migrations for host in move.ends]
    here = [(verdict.host, row) for row in view.held.get(owner.uuid, ())]
    others = [
        (host, row)
        for host, row in view.elsewhere.get(owner.uuid, ())
        if row.live and any(extends(host, end) for end in ends)
    ]
    return tuple(
        HeldDevice.model_construct(host=host, id=row.id, **{name: getattr(row, name) for name in COMPARED})
        for host, row in (*here, *others)
    )


def objections(devices: Iterable[HeldDevice], rows: Mapping[int, PciRow]) -> Iterator[str]:
    """Yield an objection for each device whose row is not as recorded.

    :param rows: the present rows, by id.
    """
    for device in devices:
        if change := _change(device, rows.get(device.id)):
            yield f"{device.address} on {device.host}, which the migration held, {change} by now"


def use(row: PciRow) -> str:
    """Return who has a device, in words that follow its name."""
    return f"belongs to instance {row.instance_uuid}" if row.instance_uuid else f"is {row.status}"


def _change(device: HeldDevice, row: PciRow | None) -> str:
    if row is None or not row.live:
        return "has no row"
    changed = [name for name in COMPARED if getattr(device, name) != getattr(row, name)]
    if "instance_uuid" in changed:
        return use(row)
    return " and ".join(f"has {name} {getattr(row, name)} (not {getattr(device, name)})" for name in changed)
