"""Class Q: an allocation in Placement of a device that does not belong to the consumer.

Nova adds and changes allocations of devices and never removes one (``nova/compute/pci_placement_translator.py``). An
allocation that remains after its row was freed keeps the device from being used.

An allocation may also be all that protects a device in use from a second instance. If its instance is on this node and
lacks a device (class L), it is only reported. The opposite case, a taken device that Placement offers, is in
``_unallocated.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from gpustack.cleanup import tables
from gpustack.cleanup.clock import Clock, HostState
from gpustack.cleanup.evidence import doubts, in_flight, lacks, node_words, owner_words, pinning, young
from gpustack.cleanup.judgement import place
from gpustack.cleanup.model import TERMINAL, PciRow
from gpustack.cleanup.placement import Known, Provider, get, stranger
from gpustack.cleanup.questions import prepared
from gpustack.cleanup.read import CellReader
from gpustack.cleanup.rules import _unallocated as unallocated
from gpustack.cleanup.rules._stuck import stuck
from gpustack.cleanup.rules._times import timely
from gpustack.cleanup.verdict import Allocation, Repair, Status, Verdict, words
from gpustack.cleanup.view import NodeView, Owner

if TYPE_CHECKING:
    from openstack.connection import Connection

CLASS = "Q"
TITLE = "allocated in Placement to somebody who has not got it"


def judge(reader: CellReader, clock: Clock, known: Known, hosts: frozenset[str] | None = None) -> Iterator[Verdict]:
    """Yield verdicts where allocations of this cell's devices and its rows contradict each other."""
    by_node: dict[str, list[Provider]] = {}
    cloud = known.cloud
    for provider in known.devices:
        by_node.setdefault(provider.root, []).append(provider)
    for view in reader.views(hosts, uuids=by_node.keys()) if by_node else ():
        if view.unread:
            continue  # class U reports the compute node
        of_node = by_node.get(view.node.uuid or "", []) if not view.node.deleted else []
        for provider in of_node:
            if provider.unread is not None:
                yield _undecided(view, clock, provider)
                continue
            for consumer in sorted(provider.held):
                for verdict in _judge(reader, view, clock, provider, consumer, cloud):
                    owner = reader.owner(verdict.owner or consumer)
                    yield stuck(timely(verdict, view, clock, owner), view, clock, owner)
            moved = (
                {
                    uuid: str(move["instance_uuid"])
                    for uuid in provider.held
                    if (move := _migration(reader.connection, uuid))
                }
                if unallocated.candidates(view, provider)
                else {}
            )
            for verdict in unallocated.judge(view, clock, provider, moved, lambda path: get(cloud, path)):
                yield stuck(timely(verdict, view, clock), view, clock)


def unasked(cell: str, reason: str) -> Verdict:
    """Return the verdict on all devices of a cell if Placement could not be read."""
    return Verdict(
        klass=CLASS,
        title=TITLE,
        status=Status.UNDECIDED,
        cell=cell,
        host="",
        node="",
        host_state=HostState.UNKNOWN,
        rows=(),
        owner=None,
        evidence=(reason,),
        because="what Placement has allocated is not known; the verdicts of the other classes need no Placement",
        advice="see that its service answers and that the credentials of --os-cloud may list resource providers",
    )


def _undecided(view: NodeView, clock: Clock, provider: Provider) -> Verdict:
    return Verdict(
        klass=CLASS,
        title=TITLE,
        status=Status.UNDECIDED,
        **place(view, clock),
        rows=(),
        owner=None,
        evidence=(f"provider {provider.uuid} ({provider.name})", node_words(view, clock)),
        because=f"{provider.unread}: who has the device is not known",
        advice="see the log of Placement, and plan again",
    )


def _judge(
    reader: CellReader, view: NodeView, clock: Clock, provider: Provider, consumer: str, cloud: Connection
) -> Iterator[Verdict]:
    # Virtual functions are inventory of their physical function's provider.
    family = unallocated.family(view, provider.address)
    move = _migration(reader.connection, consumer)
    uuid = move["instance_uuid"] if move else consumer
    owner = reader.owner(uuid)
    if move is None and any(row.taken and row.instance_uuid == consumer for row in family):
        return
    reasons = _protection(view, clock, family, owner, uuid, dict(move) if move else None)
    on_node = owner.on(view.node)
    about: tuple[str, ...] = ()
    advice = ""
    status, because, repair = Status.STALE, "the row is not its, and Nova never takes such an allocation away", None
    if doubts(owner) and move is None:
        status, because = Status.UNDECIDED, "; ".join(doubts(owner))
    elif reasons:
        status, because = Status.PROTECTED, "; ".join(dict.fromkeys(reasons))
    elif move is None and owner.instance is None:
        status, because = Status.REPORT, "no cell has an instance or a migration with this uuid: it may be another's"
        about, written = stranger(cloud, consumer, provider)
        advice = _unknown_advice(consumer, provider)
        if clock.recent(written):
            status, because = Status.PROTECTED, "it was allocated within the grace time: an instance may be being made"
    elif not family:
        status, because = Status.REPORT, "the device has no row: see class O"
    elif on_node and lacks(view, owner):
        status = Status.REPORT
        because = (
            "the instance is on this node and lacks a device: the allocation may be all that keeps it from another"
        )
    else:
        repair = Repair.UNSET_ALLOCATION
    holder = f"migration {move['id']} of instance {uuid}, {move['status']}" if move else f"instance {consumer}"
    verdict = Verdict(
        klass=CLASS,
        title=TITLE,
        status=status,
        **place(view, clock),
        rows=(),
        owner=uuid,
        evidence=(
            f"provider {provider.uuid} ({provider.name}) is allocated to {holder}",
            *about,
            *(words(row) for row in family),
            owner_words(owner),
            node_words(view, clock),
        ),
        because=because,
        repair=repair,
        advice="see class L: nothing may be taken away before the domain was looked at"
        if status is Status.REPORT and on_node
        else advice,
        allocation=Allocation(
            provider=provider.uuid,
            name=provider.name,
            addresses=" ".join(sorted({provider.address, *(row.address.lower() for row in family)})),
            consumer=consumer,
        ),
    )
    yield prepared(verdict, view, clock)


def _unknown_advice(consumer: str, provider: Provider) -> str:
    tool = "openstack --os-placement-api-version 1.28 resource provider allocation"
    return (
        "ask whose it is: another Nova, another service, a database that was restored "
        f"(openstack server show {consumer}; {tool} show {consumer}). "
        f"If nobody's, and no guest has the device: {tool} unset --provider {provider.uuid} {consumer}"
    )


def _protection(
    view: NodeView,
    clock: Clock,
    family: list[PciRow],
    owner: Owner,
    uuid: str,
    move: Mapping[str, Any] | None,
) -> list[str]:
    reasons = in_flight(owner)
    if view.host_state(clock) is not HostState.UP:
        reasons.append(
            "no nova-compute runs there: nothing can be booted on it, and it may put this right when it starts"
        )
    if move and move["status"] not in TERMINAL:
        reasons.append(f"migration {move['id']} is {move['status']}")
    if move and clock.recent(move["updated_at"]):
        reasons.append(f"migration {move['id']} was written within the grace time")
    if pins := pinning(view, owner):
        reasons.append(f"migration {pins[0]} is in error: see class B first")
    if any(row.instance_uuid == uuid for row in family):
        reasons.append("a row of the device still names the instance: repair that first")
    reasons += young(family, owner, clock)
    reasons += [
        f"migration {m.id} was written within the grace time" for m in owner.migrations if clock.recent(m.updated_at)
    ]
    return reasons


def _migration(connection: sa.Connection, uuid: str) -> Mapping[str, Any] | None:
    """Return the migration with this uuid, including soft-deleted ones; None if there is none.

    As a consumer it holds what its instance had before the move.
    """
    table = tables.migrations
    if "uuid" not in {column.name for column in tables.columns(connection, table)}:
        return None
    query = sa.select(table.c.id, table.c.status, table.c.instance_uuid, table.c.updated_at)
    row = connection.execute(query.where(table.c.uuid == uuid).order_by(table.c.id.desc())).mappings().first()
    return None if row is None else dict(row)
