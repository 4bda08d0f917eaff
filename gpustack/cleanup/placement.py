"""Class Q: Placement holds an allocation of a device for somebody to whom the device does not belong.

With PCI in Placement each device, or the physical function of virtual ones, is a resource provider called
``<node>_<ADDRESS>`` below the compute node's (``nova/compute/pci_placement_translator.py``). Nova adds and changes
allocations of those, and never takes one away: what stays after a row was freed keeps the device from being booted.

An allocation may also be all that keeps a device in use from a second guest: where its instance is on this node and
lacks a device (class L), it is only told. So is what :mod:`gpustack.cleanup.unallocated` finds: a device that is taken,
and that Placement gives away all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from gpustack.cleanup import tables, unallocated
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


# Placement has no request for the allocations of many providers. So many are asked at a time: fewer than the
# connections that requests keeps open, and few enough for a Placement that serves a cloud meanwhile.
_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The resource provider of a device.

    :ivar root: the uuid of the compute node's provider, which is the compute node's own.
    :ivar held: how much each consumer has of it.
    :ivar unread: why Placement does not say who has it.
    """

    uuid: str
    name: str
    root: str
    address: str
    held: Mapping[str, int]
    unread: str | None = None


def providers(cloud: Connection, roots: Iterable[str] | None = None) -> Iterator[Provider]:
    """The devices that Placement knows; all of them, or those below compute nodes.

    One request lists them; then each is asked for its allocations, :data:`_AT_ONCE` at a time. One that is gone
    meanwhile is left out, and one that Placement fails to answer for has the reason in ``unread``.

    :raises CloudError: when Placement can't be asked.
    """
    paths = ["/resource_providers"] if roots is None else [f"/resource_providers?in_tree={uuid}" for uuid in roots]
    _ask(lambda: cloud.placement)  # made when it is first asked for: before several threads do
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
    try:
        listed = [
            one for answer in pool.map(lambda path: _get(cloud, path), paths) for one in answer["resource_providers"]
        ]
        devices = [
            Provider(
                uuid=one["uuid"], name=one["name"], root=one["root_provider_uuid"], address=name[1].lower(), held={}
            )
            for one in listed
            if (name := _PROVIDER.match(one["name"])) and one["root_provider_uuid"] != one["uuid"]
        ]
        yield from filter(None, pool.map(lambda device: _with_allocations(cloud, device), devices))
    finally:
        pool.shutdown(cancel_futures=True)


def _with_allocations(cloud: Connection, device: Provider) -> Provider | None:
    path = f"/resource_providers/{device.uuid}/allocations"
    answer = _ask(lambda: cloud.placement.get(path, microversion=VERSION))
    if answer.status_code == 404:
        return None  # the device was removed since it was listed
    if answer.status_code >= 500:
        return replace(device, unread=f"Placement refused to answer: HTTP {answer.status_code}, {path}")
    held = _content(answer, path)["allocations"]
    return replace(device, held={consumer: sum(one["resources"].values()) for consumer, one in held.items()})


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
    return _content(_ask(lambda: cloud.placement.get(path, microversion=VERSION)), path)


def _content(answer: Any, path: str) -> Any:  # noqa: ANN401 - a response, and its JSON
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


def judge(
    reader: CellReader,
    clock: Clock,
    devices: Iterable[Provider],
    cloud: Connection,
    hosts: frozenset[str] | None = None,
) -> Iterator[Verdict]:
    """Where the allocations of this cell's devices, and its rows, contradict one another."""
    by_node: dict[str, list[Provider]] = {}
    for provider in devices:
        by_node.setdefault(provider.root, []).append(provider)
    for view in reader.views(hosts) if by_node else ():
        of_node = by_node.get(view.node.uuid or "", []) if not view.node.deleted else []
        for provider in of_node:
            if provider.unread is not None:
                yield _undecided(view, clock, provider)
                continue
            for consumer in sorted(provider.held):
                yield from _judge(reader, view, clock, provider, consumer, cloud)
            moved = (
                {
                    uuid: str(move["instance_uuid"])
                    for uuid in provider.held
                    if (move := _migration(reader.connection, uuid))
                }
                if unallocated.candidates(view, provider)
                else {}
            )
            yield from unallocated.judge(view, clock, provider, moved, lambda path: _get(cloud, path))


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
    # A virtual function is an inventory of its physical function's provider.
    family = unallocated.family(view, provider.address)
    move = _migration(reader.connection, consumer)
    uuid = move["instance_uuid"] if move else consumer
    owner = reader.owner(uuid)
    if move is None and any(row.taken and row.instance_uuid == consumer for row in family):
        return
    reasons = _protection(view, clock, family, owner, uuid, dict(move) if move else None)
    here = owner.on(view.node)
    about: tuple[str, ...] = ()
    advice = ""
    status, because, repair = Status.STALE, "the row is not its, and Nova never takes such an allocation away", None
    if doubts(owner) and move is None:
        status, because = Status.UNDECIDED, "; ".join(doubts(owner))
    elif reasons:
        status, because = Status.PROTECTED, "; ".join(dict.fromkeys(reasons))
    elif move is None and owner.instance is None:
        status, because = Status.REPORT, "no cell has an instance or a migration with this uuid: it may be another's"
        about, written = _stranger(cloud, consumer, provider)
        advice = _unknown_advice(consumer, provider)
        if clock.recent(written):
            status, because = Status.PROTECTED, "it was allocated within the grace time: an instance may be being made"
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
            *about,
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
        else advice,
        allocation=Allocation(
            provider=provider.uuid,
            name=provider.name,
            addresses=" ".join(sorted({provider.address, *(row.address.lower() for row in family)})),
            consumer=consumer,
        ),
    )


def _stranger(cloud: Connection, consumer: str, provider: Provider) -> tuple[tuple[str, ...], datetime | None]:
    """What Placement knows of a consumer that no cell does, in words, and when its allocations were written."""
    path = f"/allocations/{consumer}"
    answer = _ask(lambda: cloud.placement.get(path, microversion=VERSION))
    said = _content(answer, path)
    try:
        moment = parsedate_to_datetime(answer.headers["Last-Modified"])
        written = moment.replace(tzinfo=None)  # HTTP's times are UTC
    except (KeyError, TypeError, ValueError):
        written = None
    others = len(said["allocations"].keys() - {provider.uuid})
    known = (
        f"consumer {consumer} is of project {said.get('project_id')}, user {said.get('user_id')}",
        f"its allocations, {others} of other providers, were last written {written or 'at an unknown time'} UTC",
    )
    return known, written


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
