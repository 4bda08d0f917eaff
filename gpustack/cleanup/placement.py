"""Class Q: Placement holds an allocation of a device for somebody to whom the device does not belong.

With PCI in Placement each device, or the physical function of virtual ones, is a resource provider called
``<node>_<ADDRESS>`` below the compute node's (``nova/compute/pci_placement_translator.py``). Nova adds and changes
allocations of those, and never takes one away: what stays after a row was freed keeps the device from being booted.

An allocation may also be all that keeps a device in use from a second guest: where its instance is on this node and
lacks a device (class L), it is only told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from gpustack.cleanup import tables
from gpustack.cleanup.case import place
from gpustack.cleanup.facts import TERMINAL, Clock, HostState, NodeView, Owner, PciRow
from gpustack.cleanup.predicates import doubts, in_flight, lacks, node_words, owner_words, pinning
from gpustack.cleanup.read import CellReader
from gpustack.cleanup.verdict import Allocation, Repair, Status, Verdict, words
from gpustack.errors import CloudError

if TYPE_CHECKING:
    from openstack.connection import Connection

CLASS = "Q"
TITLE = "allocated in Placement to somebody who has not got it"
VERSION = "1.28"
"""The first with generations of consumers, and with a PUT that takes an empty set of allocations."""

_PROVIDER = re.compile(r".+_([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\Z")


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The resource provider of a device.

    :ivar root: the uuid of the compute node's provider, which is the compute node's own.
    """

    uuid: str
    name: str
    root: str
    address: str
    consumers: tuple[str, ...]


def providers(cloud: Connection, roots: Iterable[str] | None = None) -> Iterator[Provider]:
    """The devices that somebody has an allocation of; all of them, or those below compute nodes.

    :raises CloudError: when Placement can't be asked.
    """
    paths = ["/resource_providers"] if roots is None else [f"/resource_providers?in_tree={uuid}" for uuid in roots]
    for path in paths:
        for one in _get(cloud, path)["resource_providers"]:
            found = _PROVIDER.match(one["name"])
            if found is None or one["root_provider_uuid"] == one["uuid"]:
                continue
            held = _get(cloud, f"/resource_providers/{one['uuid']}/allocations")["allocations"]
            if held:
                yield Provider(
                    uuid=one["uuid"],
                    name=one["name"],
                    root=one["root_provider_uuid"],
                    address=found[1].lower(),
                    consumers=tuple(sorted(held)),
                )


def allocations_of(cloud: Connection, consumer: str) -> dict[str, Any]:
    """All allocations of a consumer, with its generation, project and user (none of these when it has none)."""
    found: dict[str, Any] = _get(cloud, f"/allocations/{consumer}")
    return found


def put(cloud: Connection, consumer: str, like: Mapping[str, Any], allocations: Mapping[str, Any]) -> bool:
    """Write all allocations of a consumer at once, if it has changed in nothing since it was read.

    :param like: what :func:`allocations_of` said: its generation is what is compared.
    :return: False when Placement refuses (409): the consumer changed meanwhile, or a device is somebody else's.
    :raises CloudError: when it can't be asked, or refuses for another reason.
    """
    kept = {uuid: {"resources": dict(one["resources"])} for uuid, one in allocations.items()}
    body = {
        "allocations": kept,
        "consumer_generation": like.get("consumer_generation"),
        "project_id": like["project_id"],
        "user_id": like["user_id"],
    }
    answer = _ask(lambda: cloud.placement.put(f"/allocations/{consumer}", json=body, microversion=VERSION))
    if answer.status_code == 409:
        return False
    if answer.status_code >= 400:
        raise CloudError(f"Placement refused to write allocations: HTTP {answer.status_code}", where=consumer)
    return True


def _get(cloud: Connection, path: str) -> Any:  # noqa: ANN401 - JSON
    answer = _ask(lambda: cloud.placement.get(path, microversion=VERSION))
    if answer.status_code >= 400:
        raise CloudError(f"Placement refused to answer: HTTP {answer.status_code}", where=path)
    try:
        return answer.json()
    except ValueError as error:
        raise CloudError("Placement answered something else than JSON", where=path) from error


def _ask(request: Any) -> Any:  # noqa: ANN401 - a call, and its response
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    try:
        return request()
    except (ClientException, SDKException, OSError) as error:
        # Their messages name URLs and reasons, not secrets.
        raise CloudError(f"Placement can't be asked: {error}", remedy="check --os-cloud and its credentials") from None


def nodes(connection: sa.Connection, hosts: frozenset[str] | None) -> dict[str, str]:
    """The hosts of the live compute nodes of a cell, by the nodes' uuids; all, or some."""
    table = tables.compute_nodes.c
    query = sa.select(table.uuid, table.host).where(table.deleted == 0, table.uuid.is_not(None))
    found = connection.execute(query if hosts is None else query.where(table.host.in_(sorted(hosts))))
    return {uuid: host for uuid, host in found if host}


def judge(reader: CellReader, clock: Clock, held: Iterable[Provider]) -> Iterator[Verdict]:
    """The allocations of this cell's devices that fit no row."""
    here = nodes(reader.connection, None)
    by_node: dict[str, list[Provider]] = {}
    for provider in held:
        if provider.root in here:
            by_node.setdefault(provider.root, []).append(provider)
    for root, of_node in by_node.items():
        for view in reader.views(frozenset({here[root]})):
            if view.node.uuid == root and not view.node.deleted:
                for provider in of_node:
                    for consumer in provider.consumers:
                        yield from _judge(reader, view, clock, provider, consumer)


def _judge(reader: CellReader, view: NodeView, clock: Clock, provider: Provider, consumer: str) -> Iterator[Verdict]:
    # A virtual function is an inventory of its physical function's provider.
    family = [
        row
        for row in view.rows
        if row.live and provider.address in (row.address.lower(), (row.parent_addr or "").lower())
    ]
    move = _migration(reader.connection, consumer)
    uuid = move["instance_uuid"] if move else consumer
    owner = reader.owner(uuid)
    if move is None and any(row.taken and row.instance_uuid == consumer for row in family):
        return
    reasons = _protection(view, clock, family, owner, uuid, dict(move) if move else None)
    here = owner.on(view.node)
    status, because, repair = Status.STALE, "the row is not its, and Nova never takes such an allocation away", None
    if doubts(owner) and move is None:
        status, because = Status.UNDECIDED, "; ".join(doubts(owner))
    elif reasons:
        status, because = Status.PROTECTED, "; ".join(dict.fromkeys(reasons))
    elif move is None and owner.instance is None:
        status, because = Status.REPORT, "no cell has an instance or a migration with this uuid: it may be another's"
    elif not family:
        status, because = Status.REPORT, "the device has no row: see class O"
    elif here and lacks(view, owner):
        status = Status.REPORT
        because = (
            "the instance is on this node and lacks a device: the allocation may be all that keeps it from another"
        )
    else:
        repair = Repair.UNSET_ALLOCATION
    what = f"migration {move['id']} of instance {uuid}, {move['status']}" if move else f"instance {consumer}"
    yield Verdict(
        klass=CLASS,
        title=TITLE,
        status=status,
        **place(view, clock),
        rows=(),
        owner=uuid,
        evidence=(
            f"provider {provider.uuid} ({provider.name}) is allocated to {what}",
            *(words(row) for row in family),
            owner_words(owner),
            node_words(view, clock),
        ),
        because=because,
        repair=repair,
        # A guest of this very host may have the device, whatever the rows say.
        ask_hypervisor=True,
        must_ask=here,
        advice="see class L: nothing may be taken away before the domain was looked at"
        if status is Status.REPORT and here
        else "",
        allocation=Allocation(
            provider=provider.uuid,
            name=provider.name,
            addresses=" ".join(sorted({provider.address, *(row.address.lower() for row in family)})),
            consumer=consumer,
        ),
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
    if any(clock.recent(row.changed_at) for row in family):
        reasons.append("a row of the device was written within the grace time")
    if owner.instance is not None and clock.recent(owner.instance.updated_at):
        reasons.append(f"instance {uuid} was written within the grace time")
    reasons += [
        f"migration {m.id} was written within the grace time" for m in owner.migrations if clock.recent(m.updated_at)
    ]
    return reasons


def _migration(connection: sa.Connection, uuid: str) -> Mapping[str, Any] | None:
    """The migration with this uuid: it holds what its instance had before the move. Soft-deleted ones too."""
    table = tables.migrations
    if "uuid" not in {column.name for column in tables.columns(connection, table)}:
        return None
    query = sa.select(table.c.id, table.c.status, table.c.instance_uuid, table.c.updated_at)
    found = connection.execute(query.where(table.c.uuid == uuid).order_by(table.c.id.desc())).mappings().first()
    return None if found is None else dict(found)
