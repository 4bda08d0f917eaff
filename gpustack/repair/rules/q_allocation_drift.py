"""Class Q: an allocation in Placement of a device that does not belong to the consumer.

Nova adds and changes allocations of devices and never removes one (``nova/compute/pci_placement_translator.py``). An
allocation that remains after its row was freed keeps the device from being used.

An allocation may also be all that protects a device in use from a second instance. If its instance is on this node and
lacks a device (class L), it is only reported. The opposite case, a taken device that Placement offers, is in
``_unallocated.py``. One pass over the allocations judges class S as well: an allocation beside all devices of an
instance of this node.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.text import quoted
from gpustack.cloud import Connection
from gpustack.cloud.placement import Known, Provider, stranger
from gpustack.novadb.model import TERMINAL, PciRow
from gpustack.novadb.moves import Moves, by_uuids
from gpustack.novadb.read import CellReader
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair.evidence import about, doubts, in_flight, lacks, node_words, owner_words, pinning, renamed, young
from gpustack.repair.questions import prepared
from gpustack.repair.rules import _unallocated as unallocated
from gpustack.repair.rules import s_phantom_allocation as phantom
from gpustack.repair.rules._rule import Rule
from gpustack.repair.rules._stuck import stuck
from gpustack.repair.rules._times import timely
from gpustack.repair.verdict import Allocation, Repair, Status, Verdict, words

CLASS = "Q"
TITLE = "allocated in Placement to somebody who has not got it"


@dataclass(frozen=True, kw_only=True)
class _Held:
    """An allocation of a device whose row does not name the consumer.

    :ivar family: the device's row; virtual functions are inventory of their physical function's provider.
    :ivar consumer: the uuid of an instance or of a migration.
    :ivar move: the consumer if it is a migration.
    :ivar owner: the instance: the consumer, or that of the migration.
    :ivar phantom: whether it is a phantom (class S).
    """

    view: NodeView
    clock: Clock
    provider: Provider
    family: list[PciRow]
    consumer: str
    move: Mapping[str, Any] | None
    owner: Owner
    phantom: bool

    @property
    def unknown(self) -> bool:
        """Whether no cell has the consumer."""
        return self.move is None and self.owner.instance is None


def judge(reader: CellReader, clock: Clock, known: Known, hosts: frozenset[str] | None = None) -> Iterator[Verdict]:
    """Yield verdicts where allocations of this cell's devices and its rows contradict each other."""
    by_node = by_key((provider.root, provider) for provider in known.devices)
    moves = by_uuids(reader.connection, {consumer for provider in known.devices for consumer in provider.held})
    for view in reader.views(hosts, uuids=by_node.keys()) if by_node else ():
        if view.unread or view.node.deleted:
            continue  # class U reports an unreadable compute node
        of_node = by_node.get(view.node.uuid or "", [])
        for provider in of_node:
            if provider.unread is not None:
                yield _undecided(view, clock, provider)
                continue
            for held in _not_owned(reader, view, clock, provider, of_node, moves):
                verdict = timely(_verdict(held, known.cloud), view, clock, held.owner)
                yield stuck(verdict, view, clock, held.owner)
            moved = {uuid: str(moves[uuid]["instance_uuid"]) for uuid in provider.held if uuid in moves}
            for verdict in unallocated.judge(view, clock, provider, moved, known.cloud):
                yield stuck(timely(verdict, view, clock), view, clock)


def unasked(cell: str, reason: str, rule: Rule) -> Verdict:
    """Return the verdict of class Q or S on all devices of a cell if Placement could not be read."""
    return Verdict(
        klass=rule.CLASS,
        title=rule.TITLE,
        status=Status.UNDECIDED,
        cell=cell,
        host="",
        node="",
        host_state=HostState.UNKNOWN,
        evidence=(reason,),
        because="what Placement has allocated is not known; the verdicts of the other classes need no Placement",
        advice="see that its service answers and that the credentials of --os-cloud may list resource providers",
    )


def _undecided(view: NodeView, clock: Clock, provider: Provider) -> Verdict:
    return Verdict(
        **about(CLASS, TITLE, view, clock),
        status=Status.UNDECIDED,
        evidence=(f"provider {provider.uuid} ({provider.name})", node_words(view, clock)),
        because=f"{provider.unread}: who has the device is not known",
        advice="see the log of Placement, and plan again",
    )


def _not_owned(
    reader: CellReader, view: NodeView, clock: Clock, provider: Provider, of_node: Sequence[Provider], moves: Moves
) -> Iterator[_Held]:
    """Yield the allocations of a device by others than the instance that its row names.

    :param of_node: all devices of the compute node.
    :param moves: the migrations among the consumers.
    """
    family = unallocated.family(view, provider.address)
    for consumer in sorted(provider.held):
        move = moves.get(consumer)
        if move is not None or not any(row.taken and row.instance_uuid == consumer for row in family):
            owner = reader.owner(move["instance_uuid"] if move else consumer)
            yield _Held(
                view=view,
                clock=clock,
                provider=provider,
                family=family,
                consumer=consumer,
                move=move,
                owner=owner,
                phantom=move is None and bool(family) and phantom.beside_all(view, owner, of_node),
            )


def _decision(held: _Held) -> tuple[Status, str, Repair | None]:
    """Return the status of an allocation, the reason, and the repair if it is stale."""
    if unknown := doubts(held.owner):
        return Status.UNDECIDED, "; ".join(unknown), None
    if reasons := _protection(held):
        return Status.PROTECTED, "; ".join(dict.fromkeys(reasons)), None
    if held.unknown:
        return Status.REPORT, "no cell has an instance or a migration with this uuid: it may be another's", None
    if not held.family:
        return Status.REPORT, "the device has no row: see class O", None
    if renamed(held.view, held.owner) and lacks(held.view, held.owner):
        why = "the instance is on this node and lacks a device: the allocation may be all that keeps it from another"
        return Status.REPORT, why, None
    because = phantom.BECAUSE if held.phantom else "the row is not its, and Nova never takes such an allocation away"
    return Status.STALE, because, Repair.UNSET_ALLOCATION


def _verdict(held: _Held, cloud: Connection) -> Verdict:
    """Return the verdict; Placement is asked about a consumer that no cell has."""
    view, provider, owner, move = held.view, held.provider, held.owner, held.move
    status, because, repair = _decision(held)
    known: tuple[str, ...] = ()
    advice = ""
    if status is Status.REPORT and held.unknown:
        known, written = stranger(cloud, held.consumer, provider)
        advice = _unknown_advice(held.consumer, provider)
        if held.clock.recent(written):
            status, because = Status.PROTECTED, "it was allocated within the grace time: an instance may be being made"
    elif status is Status.REPORT and renamed(view, owner):
        advice = "see class L: nothing may be taken away before the domain was looked at"
    holder = f"migration {move['id']} of instance {owner.uuid}, {move['status']}" if move else f"instance {owner.uuid}"
    klass, title = (phantom.CLASS, phantom.TITLE) if held.phantom else (CLASS, TITLE)
    verdict = Verdict(
        **about(klass, title, view, held.clock),
        status=status,
        owner=owner.uuid,
        evidence=(
            f"provider {provider.uuid} ({provider.name}) is allocated to {holder}",
            *known,
            *(words(row) for row in held.family),
            *(phantom.evidence(view, owner) if held.phantom else ()),
            owner_words(owner),
            node_words(view, held.clock),
        ),
        because=because,
        repair=repair,
        advice=advice,
        allocation=Allocation(
            provider=provider.uuid,
            name=provider.name,
            addresses=" ".join(sorted({provider.address, *(row.address.lower() for row in held.family)})),
            consumer=held.consumer,
        ),
    )
    return prepared(verdict, view, held.clock)


def _unknown_advice(consumer: str, provider: Provider) -> str:
    command = f"openstack --os-placement-api-version 1.28 resource provider allocation show {quoted(consumer)}"
    unset = command.replace(" show ", f" unset --provider {quoted(provider.uuid)} ", 1)
    return (
        "ask whose it is: another Nova, another service, a database that was restored "
        f"(openstack server show {quoted(consumer)}; {command}). "
        f"If nobody's, and no guest has the device: {unset}"
    )


def _protection(held: _Held) -> list[str]:
    view, clock, owner, move = held.view, held.clock, held.owner, held.move
    reasons = in_flight(owner)
    if view.host_state(clock) is not HostState.UP:
        why = "no nova-compute runs there: nothing can be booted on it, and it may put this right when it starts"
        reasons.append(why)
    if move and move["status"] not in TERMINAL:
        reasons.append(f"migration {move['id']} is {move['status']}")
    if move and clock.recent(move["updated_at"]):
        reasons.append(f"migration {move['id']} was written within the grace time")
    if pins := pinning(view, owner):
        reasons.append(f"migration {pins[0]} is in error: see class B first")
    if any(row.instance_uuid == owner.uuid for row in held.family):
        reasons.append("a row of the device still names the instance: repair that first")
    reasons += young(held.family, owner, clock)
    recent = (move.id for move in owner.moves if clock.recent(move.updated_at))
    return [*reasons, *(f"migration {number} was written within the grace time" for number in recent)]
