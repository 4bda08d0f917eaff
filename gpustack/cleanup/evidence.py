"""The questions that every class asks: is work under way, is the owner known, what does the host say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from gpustack.cleanup.clock import Clock, HostState
from gpustack.cleanup.model import ERROR, STATUSES, Instance, PciRow
from gpustack.cleanup.verdict import words
from gpustack.cleanup.view import NodeView, Owner, Whereabouts

# VERIFY_RESIZE looks exactly like a leak: both rows are allocated and the instance is at its destination.
_BUSY_VM_STATES = ("resized", "building")


def owner_of(view: NodeView, row: PciRow) -> Owner | None:
    """The owner that a row names, or None when it names none."""
    return view.owners[row.instance_uuid] if row.instance_uuid else None


def doubts(owner: Owner | None) -> list[str]:
    """What keeps a judgement about an owner from being made; empty when all is known."""
    if owner is not None and owner.whereabouts is Whereabouts.UNKNOWN:
        return [
            owner.unknown_because or f"instance {owner.uuid} is not in this cell, and other cells could not be asked"
        ]
    return []


def in_flight(owner: Owner | None) -> list[str]:
    """Why an owner must be left alone now: moves, tasks, confirmations that are due."""
    if owner is None:
        return []
    reasons = []
    for migration in owner.migrations:
        if migration.in_flight:
            kind = "under way" if migration.known else "of a status that gpustack does not know"
            reasons.append(f"migration {migration.id} is {kind} ({migration.status})")
    if owner.in_several_cells:
        reasons.append(f"instance {owner.uuid} is in more than one cell: a move between cells may be under way")
    if owner.alive and owner.instance is not None:
        if owner.instance.task_state is not None:
            reasons.append(f"instance {owner.uuid} has a task under way ({owner.instance.task_state})")
        if owner.instance.vm_state in _BUSY_VM_STATES:
            reasons.append(f"instance {owner.uuid} is {owner.instance.vm_state}")
        if owner.instance.hidden:
            reasons.append(f"instance {owner.uuid} is hidden: a move between cells is under way")
    return reasons


def fresh(view: NodeView, row: PciRow, clock: Clock) -> list[str]:
    """Why it is too early to judge a row: what changed within the grace time."""
    reasons = []
    if clock.recent(row.changed_at):
        reasons.append(f"{words(row)}, and was written less than {_minutes(clock)} ago")
    owner = owner_of(view, row)
    reasons += [
        f"migration {migration.id} was written less than {_minutes(clock)} ago"
        for migration in (owner.migrations if owner else ())
        if clock.recent(migration.updated_at)
    ]
    instance = owner.instance if owner else None
    if instance is not None and not (owner and owner.on(view.node)) and clock.recent(instance.updated_at):
        reasons.append(f"instance {instance.uuid} was written less than {_minutes(clock)} ago")
    silent = (HostState.DOWN, HostState.FORCED_DOWN, HostState.GONE)
    if not view.node.deleted and view.host_state(clock) in silent and clock.recent(view.node.updated_at):
        reasons.append(f"compute node {view.node.name} was written less than {_minutes(clock)} ago: its host may be up")
    if view.node.deleted and clock.recent(view.node.deleted_at):
        reasons.append(f"compute node {view.node.name} was deleted less than {_minutes(clock)} ago: it may come back")
    return reasons


def young(rows: Iterable[PciRow], owner: Owner | None, clock: Clock) -> list[str]:
    """What was written within the grace time: rows, and the instance of their owner, wherever it is."""
    reasons = [f"row {row.id} was written within the grace time" for row in rows if clock.recent(row.changed_at)]
    if owner is not None and owner.instance is not None and clock.recent(owner.instance.updated_at):
        reasons.append(f"instance {owner.uuid} was written within the grace time")
    return reasons


def stale_since(row: PciRow, owner: Owner) -> datetime | None:
    """The last moment at which something made the row what it is: itself, its owner, or a move of it was written."""
    moments = [row.changed_at, *(migration.updated_at for migration in owner.migrations)]
    if owner.instance is not None:
        moments.append(owner.instance.updated_at)
    return max((moment for moment in moments if moment is not None), default=None)


# A periodic is due every minute (nova.conf: update_resources_interval); so many that did nothing prove that it fails.
_PATIENCE = timedelta(minutes=5)
_GRACE_TIMES = 3


def overdue(since: datetime | None, clock: Clock) -> bool:
    """Whether nova-compute's periodic should have put right long ago what is wrong since then."""
    return since is not None and clock.now - since > max(_PATIENCE, _GRACE_TIMES * clock.grace)


def protection(view: NodeView, row: PciRow, clock: Clock) -> list[str]:
    """Every reason not to touch a row now."""
    return in_flight(owner_of(view, row)) + fresh(view, row, clock)


class Belongings(NamedTuple):
    """The rows of an instance beside its requests, request by request: the one test of whose a row is.

    A row belongs to an instance by its request id, which since Zed (commit ccab6fed46) a flavor's requests have too;
    older ones have none, and neither have their rows. A move makes new ids.

    :ivar beyond: rows of no request, and those of a request that has more rows than it asks for.
    :ivar missing: how many devices the instance asks for and has no row of.
    """

    kept: tuple[PciRow, ...]
    beyond: tuple[PciRow, ...]
    missing: int


def belongings(owner: Owner, rows: Sequence[PciRow]) -> Belongings | None:
    """Which of the rows that name an owner are its own; None when its requests can't be read."""
    if owner.requests is None:
        return None
    requested: Counter[str | None] = Counter()
    for request in owner.requests:
        requested[request.request_id or None] += request.count
    held = Counter(row.request_id or None for row in rows)
    matched = {request for request, count in held.items() if count <= requested[request]}
    own = tuple(row for row in rows if (row.request_id or None) in matched)
    beyond = tuple(row for row in rows if (row.request_id or None) not in matched)
    missing = sum(max(0, count - held[request]) for request, count in requested.items())
    return Belongings(own, beyond, missing)


def lacks(view: NodeView, owner: Owner) -> bool:
    """Whether the owner has fewer devices of this node than it asks for, or may have."""
    owned = belongings(owner, view.held.get(owner.uuid, ()))
    return owned is None or owned.missing > 0


def lacking(view: NodeView) -> Iterator[Owner]:
    """The instances on this node that lack a device, or may: a device that they use may be free by its row."""
    for uuid in view.residents:
        owner = view.owners[uuid]
        if owner.requests is None:
            if uuid not in view.held:  # it has devices otherwise: class F reports that
                yield owner
        elif lacks(view, owner):
            yield owner


def misread(view: NodeView) -> Iterator[PciRow]:
    """The live rows that a nova-compute which starts fails at, or takes for those of no instance (class U)."""
    for row in view.odd if view.written == {} else view.rows:
        if row.live and (row.status not in STATUSES or row.id in view.written):
            yield row


def interrupted(view: NodeView) -> Iterator[str]:
    """The work of this node's nova-compute, for any instance, that a stop of it would break off.

    A live migration whose nova-compute restarts before it has ended leaves a guest where Nova does not look for it.
    """
    for owner in view.owners.values():
        if owner.on(view.node) and owner.instance is not None and owner.instance.task_state is not None:
            yield f"instance {owner.uuid} has a task under way ({owner.instance.task_state})"
    for move in view.moves:
        if move.in_flight and move.status != "finished":  # a person confirms or reverts that, some day
            yield f"migration {move.id} of instance {move.instance_uuid} is under way ({move.status})"


def surplus(owner: Owner, rows: Sequence[PciRow]) -> tuple[PciRow, ...] | None:
    """Those of an owner's rows that are for none of its requests; None when the rows do not show it.

    They do when the others are, request by request, as many as the instance asks for. A request without an id has rows
    without one, which look like a surplus.
    """
    owned = belongings(owner, rows)
    requested = {request.request_id or None for request in owner.requests or ()}
    if owned is None or owned.missing or not requested or None in requested:
        return None
    if any((row.request_id or None) in requested for row in owned.beyond):
        return None
    return owned.beyond


def pinning(view: NodeView, owner: Owner) -> tuple[int, ...]:
    """The ids of the owner's ``error`` migrations that lead from or to this compute node."""
    return tuple(m.id for m in owner.migrations if m.status == ERROR and m.touches(view.node))


def evidence_lines(view: NodeView, row: PciRow, clock: Clock) -> list[str]:
    """What there is to tell of a row: itself, its compute node, its owner, and where else that owner has devices."""
    lines = [f"{words(row)}; last written {row.changed_at or 'at an unknown time'}", node_words(view, clock)]
    owner = owner_of(view, row)
    if owner is not None:
        lines.append(owner_words(owner))
        lines += [
            f"migration {m.id} ({m.migration_type}, {m.source_compute} to {m.dest_compute}) is {m.status}"
            for m in owner.migrations
        ]
        lines += [f"the instance also holds, on {node}, {words(other)}" for node, other in _elsewhere(view, row)]
    return lines


def node_words(view: NodeView, clock: Clock) -> str:
    """A compute node and its service in words."""
    state = view.host_state(clock)
    if view.node.deleted:
        return f"compute node {view.node.name} (id {view.node.id}) is deleted"
    if view.service is None:
        return f"compute node {view.node.name} (id {view.node.id}) has no nova-compute service"
    runs = f"nova-compute on {view.node.name} is {state.value}"
    if state is HostState.UNKNOWN:
        runs = f"whether nova-compute on {view.node.name} runs is not known"
    return f"{runs}; it was last seen {view.service.reported_at or 'never'}"


def owner_words(owner: Owner) -> str:
    """An owner in words."""
    if owner.instance is None:
        return owner.unknown_because or f"instance {owner.uuid} does not exist in any cell"
    instance: Instance = owner.instance
    if instance.deleted:
        return f"instance {owner.uuid} is deleted"
    location = f"on {instance.host}" if instance.host else "on no host"
    asks = "its requests can't be read" if owner.requests is None else f"it asks for {owner.wanted} devices"
    node = instance.node or "no node"
    return f"instance {owner.uuid} is {instance.vm_state}, {location} ({node}), cell {instance.cell}; {asks}"


def _elsewhere(view: NodeView, row: PciRow) -> tuple[tuple[str, PciRow], ...]:
    return view.elsewhere.get(row.instance_uuid or "", ())


def _minutes(clock: Clock) -> str:
    return f"{clock.grace.total_seconds():.0f} seconds"
