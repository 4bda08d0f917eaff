"""The facts that a verdict depends on, compared again by the statement that writes.

:func:`around` collects them from all data that a rule, or undo, received, whether used or not. :func:`conditions`
converts them to conditions of the UPDATE. So no rule can omit one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.model import TERMINAL, PciRow
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair.verdict import NotBefore, NotIn, Seen, Verdict

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
    facts += map(_row, _relatives(view, rows))
    return tuple(dict.fromkeys(facts))


def _host(view: NodeView, clock: Clock) -> Iterator[Seen]:
    """Yield the facts of the compute node and its service.

    A nova-compute that starts writes its compute node first and reports some seconds later. So ``updated_at`` of the
    compute node is compared too, unless nova-compute is up.
    """
    node = view.node
    up = view.host_state(clock) is HostState.UP
    match = {"id": node.id, "deleted": node.deleted, "host": node.host, "hypervisor_hostname": node.hypervisor_hostname}
    lost = node.host is None and node.deleted == node.id  # the row does not exist
    yield Seen.of("compute_nodes", match if up or lost else {**match, "updated_at": node.updated_at}, 0 if lost else 1)
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
    yield from map(_row, [*on_node, *(row for _host, row in view.elsewhere.get(owner.uuid, ()))])
    others = {"compute_node_id": view.node.id, "instance_uuid": owner.uuid, "deleted": 0}
    yield Seen.of("pci_devices", {**others, "id": NotIn(frozenset(row.id for row in on_node))}, 0)


def _relatives(view: NodeView, rows: Iterable[PciRow]) -> Iterator[PciRow]:
    """Yield the rows, and the physical and virtual functions of the same devices."""
    for row in rows:
        yield row
        if not row.live:
            continue
        top = row.parent_addr or row.address
        yield from view.children.get(top, ())
        if row.parent_addr and (parent := view.by_address.get(row.parent_addr)):
            yield parent


def _row(row: PciRow) -> Seen:
    return Seen.of("pci_devices", {"id": row.id, **{name: getattr(row, name) for name in COMPARED}})


def conditions(
    facts: Iterable[Seen], connection: sa.Connection, written: Mapping[str, Collection[int]]
) -> list[sa.ColumnElement[bool]]:
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
        case _:
            return column == value
