"""Checks that the rules share: work under way, unknown owners, recent writes, which rows belong to an instance.

A case has the rows of a compute node that one rule examines.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gpustack.base.by_key import sums
from gpustack.base.hostnames import extends
from gpustack.base.text import counted
from gpustack.novadb.model import ERROR, STATUSES, Instance, PciRow
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair.verdict import Status, Verdict, words

# VERIFY_RESIZE looks like a leak: both rows are allocated and the instance is at its destination.
_BUSY_VM_STATES = ("resized", "building")


def owner_of(view: NodeView, row: PciRow) -> Owner | None:
    """Return the owner of a row; None if the row names none."""
    return view.owners[row.instance_uuid] if row.instance_uuid else None


def doubts(owner: Owner | None) -> list[str]:
    """Return why an owner cannot be judged; empty if everything needed is known."""
    return [owner.unknown_because] if owner is not None and owner.unknown_because is not None else []


def in_flight(owner: Owner | None) -> list[str]:
    """Return the work under way for an owner: migrations, tasks, unconfirmed resizes. Its rows must not be changed."""
    if owner is None:
        return []
    reasons = []
    for migration in owner.moves:
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
    """Return what changed within the grace time: the row, its owner, migrations, or the compute node."""
    reasons = []
    if clock.recent(row.changed_at):
        reasons.append(f"{words(row)}, and was written less than {_minutes(clock)} ago")
    owner = owner_of(view, row)
    reasons += [
        f"migration {migration.id} was written less than {_minutes(clock)} ago"
        for migration in (owner.moves if owner else ())
        if clock.recent(migration.updated_at)
    ]
    instance = owner.instance if owner else None
    if instance is not None and not (owner and owner.on(view.node)) and clock.recent(instance.updated_at):
        reasons.append(f"instance {instance.uuid} was written less than {_minutes(clock)} ago")
    silent = (HostState.DOWN, HostState.FORCED_DOWN)
    if view.host_state(clock) in silent:
        moments = {f"compute node {view.node.name}": view.node.updated_at}
        if view.service is not None:  # each report writes it too, also if the recorded time of the report is wrong
            moments[f"the nova-compute service of {view.service.host}"] = view.service.updated_at
        reasons += [
            f"{record} was written less than {_minutes(clock)} ago: the host may be up"
            for record, moment in moments.items()
            if clock.recent(moment)
        ]
    if view.node.deleted and clock.recent(view.node.deleted_at):
        reasons.append(f"compute node {view.node.name} was deleted less than {_minutes(clock)} ago: it may come back")
    return reasons


def young(rows: Iterable[PciRow], owner: Owner | None, clock: Clock) -> list[str]:
    """Return which of these rows, and whether their owner's instance, changed within the grace time."""
    reasons = [f"row {row.id} was written within the grace time" for row in rows if clock.recent(row.changed_at)]
    if owner is not None and owner.instance is not None and clock.recent(owner.instance.updated_at):
        reasons.append(f"instance {owner.uuid} was written within the grace time")
    return reasons


def stale_since(row: PciRow, owner: Owner) -> datetime | None:
    """Return the time of the last write of the row, its owner, or a migration of the owner; None if unknown."""
    moments = [row.changed_at, *(migration.updated_at for migration in owner.migrations)]
    if owner.instance is not None:
        moments.append(owner.instance.updated_at)
    return max((moment for moment in moments if moment is not None), default=None)


# The periodic task runs every minute by default (nova.conf: update_resources_interval): after this time it has failed.
_PATIENCE = timedelta(minutes=5)
_GRACE_TIMES = 3


def overdue(since: datetime | None, clock: Clock) -> bool:
    """Whether nova-compute's periodic task has had ample time to repair a state that has existed since ``since``."""
    return since is not None and clock.now - since > max(_PATIENCE, _GRACE_TIMES * clock.grace)


def protection(view: NodeView, row: PciRow, clock: Clock) -> list[str]:
    """Return every reason not to change a row now."""
    return in_flight(owner_of(view, row)) + fresh(view, row, clock)


class Belongings(NamedTuple):
    """The rows of an instance, matched with its PCI requests: the only test of whether a row belongs to an instance.

    Rows and requests are matched by request id. Since Zed (commit ccab6fed46), requests of flavors have one; earlier,
    neither they nor their rows have an id. Each move creates new ids.

    :ivar beyond: rows that match no request, and all rows of a request that has more rows than it requests.
    :ivar missing: the number of requested devices without a row.
    """

    beyond: tuple[PciRow, ...]
    missing: int


def belongings(owner: Owner, rows: Sequence[PciRow]) -> Belongings | None:
    """Match rows that name an owner with its requests; None if the requests are unreadable."""
    if owner.requests is None:
        return None
    requested = Counter(sums((request.request_id or None, request.count) for request in owner.requests))
    held = Counter(row.request_id or None for row in rows)
    matched = {request for request, count in held.items() if count <= requested[request]}
    beyond = tuple(row for row in rows if (row.request_id or None) not in matched)
    return Belongings(beyond, sum(max(0, count - held[request]) for request, count in requested.items()))


def renamed(view: NodeView, owner: Owner) -> bool:
    """Whether the owner may be on this host under another name of the host or of its node.

    Names that differ in case, or as short and full name, mean one host. If only the node's name matches, the owner may
    be here too: MySQL, and therefore Nova, ignores case.
    """
    instance = owner.instance
    return owner.alive and instance is not None and _may_be(view, instance.host, instance.node)


def _may_be(view: NodeView, host: str | None, node: str | None) -> bool:
    pairs = ((host, view.node.host), (node, view.node.hypervisor_hostname))
    return any(name is not None and other is not None and extends(name, other) for name, other in pairs)


def left_behind(view: NodeView) -> Iterator[tuple[PciRow, Owner]]:
    """Yield the live, taken rows of a compute node whose owner is alive, or unknown, and not placed here."""
    for row, owner in view.displaced:
        if owner.alive or doubts(owner):
            yield row, owner


def lacks(view: NodeView, owner: Owner) -> bool:
    """Whether the owner has fewer devices of this node than it requests, or its requests are unreadable."""
    owned = belongings(owner, view.held.get(owner.uuid, ()))
    return owned is None or owned.missing > 0


def lacking(view: NodeView) -> Iterator[Owner]:
    """Yield the instances on this node that lack a device, or may: they may use a device whose row is free.

    Instances that may be on it under another name count too.
    """
    for uuid, owner in view.owners.items():
        if view.node.deleted or not renamed(view, owner):
            continue
        if owner.requests is None:
            if uuid not in view.held:  # if it has devices, class F reports it
                yield owner
        elif lacks(view, owner):
            yield owner


def misread(view: NodeView) -> Iterator[PciRow]:
    """Yield live rows that make a starting nova-compute fail, or that it treats as rows of no instance (class U)."""
    for row in view.odd if view.written == {} else view.rows:
        if row.live and (row.status not in STATUSES or row.id in view.written):
            yield row


def interrupted(view: NodeView) -> Iterator[str]:
    """Yield work of this node's nova-compute that stopping it would interrupt, for any instance.

    If nova-compute restarts during a live migration, the guest may end up on a host other than the one in Nova's
    record.
    """
    for owner in view.owners.values():
        if renamed(view, owner) and owner.instance is not None and owner.instance.task_state is not None:
            yield f"instance {owner.uuid} has a task under way ({owner.instance.task_state})"
    for move in view.moves:
        if move.in_flight and move.status != "finished":  # waits for a person to confirm or revert it
            yield f"migration {move.id} of instance {move.instance_uuid} is under way ({move.status})"


def surplus(owner: Owner, rows: Sequence[PciRow]) -> tuple[PciRow, ...] | None:
    """Return the owner's rows that match none of its requests; None if this cannot be decided.

    It can be decided only if all other rows match the requests exactly. Rows of requests without an id look like a
    surplus.
    """
    owned = belongings(owner, rows)
    requested = {request.request_id or None for request in owner.requests or ()}
    if owned is None or owned.missing or not requested or None in requested:
        return None
    return None if any((row.request_id or None) in requested for row in owned.beyond) else owned.beyond


def pinning(view: NodeView, owner: Owner) -> tuple[int, ...]:
    """Return the ids of the owner's ``error`` migrations from or to this compute node, under any name of it."""
    errors = (m for m in owner.migrations if m.status == ERROR)
    return tuple(
        m.id
        for m in errors
        if _may_be(view, m.source_compute, m.source_node) or _may_be(view, m.dest_compute, m.dest_node)
    )


def evidence_lines(view: NodeView, row: PciRow, clock: Clock) -> list[str]:
    """Describe a row, its compute node, its owner, and the owner's devices on other hosts."""
    lines = [f"{words(row)}; last written {row.changed_at or 'at an unknown time'}", node_words(view, clock)]
    if (owner := owner_of(view, row)) is not None:
        lines.append(owner_words(owner))
        lines += [
            f"migration {m.id} ({m.migration_type}, {m.source_compute} to {m.dest_compute}) is {m.status}"
            for m in owner.moves
        ]
        others = view.elsewhere.get(row.instance_uuid or "", ())
        lines += [f"the instance also holds, on {node}, {words(other)}" for node, other in others]
    return lines


def node_words(view: NodeView, clock: Clock) -> str:
    """Describe a compute node and its service."""
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
    """Describe an owner."""
    if owner.instance is None:
        return owner.unknown_because or f"instance {owner.uuid} does not exist in any cell"
    instance: Instance = owner.instance
    if instance.deleted:
        return f"instance {owner.uuid} is deleted"
    asks = "its requests can't be read" if owner.requests is None else f"it asks for {counted(owner.wanted, 'device')}"
    return f"instance {owner.uuid} is {instance.vm_state}, {place_words(instance)}; {asks}"


def place_words(instance: Instance) -> str:
    """Describe where an instance is. Undo looks for these words in journals that do not record it otherwise."""
    return f"on {instance.host or 'no host'} ({instance.node or 'no node'}), cell {instance.cell}"


def _minutes(clock: Clock) -> str:
    return f"{clock.grace.total_seconds():.0f} seconds"


_NO_SERVICE = (
    "this compute node has no service, and Nova deletes both at once, so a record is wrong: start nova-compute, or "
    "stop it and add --stopped"
)
_OTHERS_SERVICE = (
    "another service has written this compute node, so a record is wrong: start nova-compute, or correct services.host"
)
_WRONG_TIME = (
    "its last report is yet to come, or more than 15 minutes old, or the row of services was last written before it: "
    "the clocks differ, or a value is wrong (service_down_time too)"
)


def about(klass: str, title: str, view: NodeView, clock: Clock) -> dict[str, Any]:
    """Return the fields of a verdict on a compute node, or on its rows: its class, cell, host, node and host state."""
    names = {"cell": view.cell, "host": view.node.host or "", "node": view.node.hypervisor_hostname or ""}
    return {"klass": klass, "title": title, **names, "host_state": view.host_state(clock)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Rows (usually one) of a compute node that the rule of class ``klass`` examines."""

    klass: str
    title: str
    view: NodeView
    clock: Clock
    rows: tuple[PciRow, ...]

    @property
    def owner(self) -> Owner | None:
        """The owner of the rows; None if they name none."""
        return owner_of(self.view, self.rows[0])

    @property
    def host_state(self) -> HostState:
        return self.view.host_state(self.clock)

    @property
    def up(self) -> bool:
        """Whether nova-compute runs, and so holds these rows in its memory."""
        return self.host_state is HostState.UP

    def held_back(self) -> Verdict | None:
        """Return a verdict if the owner is unknown or work is under way; None if the rule can decide."""
        if unknown := doubts(self.owner):
            return self.verdict(Status.UNDECIDED, "; ".join(unknown))
        early = [reason for row in self.rows for reason in fresh(self.view, row, self.clock)]
        protected = [*in_flight(self.owner), *early]
        if protected:
            return self.verdict(Status.PROTECTED, "; ".join(dict.fromkeys(protected)))
        if self.host_state is HostState.UNKNOWN:
            times = _OTHERS_SERVICE if self.view.others_service else _WRONG_TIME
            reason = self.clock.doubt or (_NO_SERVICE if self.view.service is None else times)
            return self.verdict(Status.UNDECIDED, f"the state of nova-compute there is unknown: {reason}")
        return None

    def judged(self, status: Status, because: str, **more: Any) -> Verdict:  # noqa: ANN401 - fields of a verdict
        """Return the verdict of :meth:`held_back`; if the rule can decide, that of :meth:`verdict`."""
        return self.held_back() or self.verdict(status, because, **more)

    def verdict(self, status: Status, because: str, **more: Any) -> Verdict:  # noqa: ANN401 - fields of a verdict
        """Return a verdict of this class with all evidence of the rows."""
        evidence = [line for row in self.rows for line in evidence_lines(self.view, row, self.clock)]
        return Verdict(
            **about(self.klass, self.title, self.view, self.clock),
            status=status,
            rows=self.rows,
            owner=self.rows[0].instance_uuid,
            evidence=tuple(dict.fromkeys(evidence)),
            because=because,
            **more,
        )
