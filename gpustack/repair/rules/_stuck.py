"""The status *stuck*: work that nothing continues and that still protects rows.

A migration or a task protects its instance. If its host dies or restarts at the wrong moment, nothing ends it, and Nova
keeps the devices indefinitely. It is stuck if nothing has been written for ``--stuck-after`` and one of these holds:

* the instance has no task: no nova-compute works on it (a starting nova-compute clears the task, ``_init_instance``)
* a host that has to do the next step has been down for that time
* the task takes seconds (``data/nova/task_states.jsonl``; a task that is not listed counts as long)
* only nova-compute continues the task, and that of each of its hosts started after the last write (``--ask-hosts``)
* nothing has been written for 24 times ``--stuck-after`` (24 hours by default)

Work in several cells is stuck only after 24 times ``--stuck-after``, because the hosts of the other cell are unknown.

The default of ``--stuck-after`` is an hour: Nova's services wait for each other for at most 30 minutes (nova.conf:
``long_rpc_timeout``). Copying a disk can take hours without a write to the database, but the instance has a task then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpustack.base.hostnames import extends
from gpustack.base.text import quoted
from gpustack.nova_options.tables import table
from gpustack.novadb.model import ERROR, Instance, Migration
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair.evidence import in_flight
from gpustack.repair.verdict import Repair, Status, Verdict, Waiting

_LONG = 24
"""Multiple of ``--stuck-after`` that a long task may take without a write."""
_SILENT = (HostState.DOWN, HostState.FORCED_DOWN, HostState.GONE)
PAGE = "the page “A migration that never ended” of the runbook"


def stuck(verdict: Verdict, view: NodeView, clock: Clock, owner: Owner | None = None) -> Verdict:
    """Return the verdict; *stuck*, or a repair, if only work that nothing continues protects the rows.

    :param owner: the owner, if it is not among the view's owners.
    """
    if verdict.status is not Status.PROTECTED or _early(verdict, view, clock):
        return verdict
    owner = owner or view.owners.get(verdict.owner or "")
    working = [owner] if owner is not None else [worker for worker in view.owners.values() if in_flight(worker)]
    reasons = [_reason(worker, view, clock) for worker in working]
    if not reasons or None in reasons:
        return replace(verdict, waiting=_waiting(owner, clock) if owner is not None else None)
    because = "; ".join(dict.fromkeys(filter(None, reasons)))
    if owner is not None and (move := _reverted(owner, verdict, view, clock)):
        return replace(
            verdict,
            status=Status.STALE,
            because=f"{because}; the instance is at its source, {move.source_compute}. Failed, the migration holds "
            "nothing, and nova-compute here frees the device by itself",
            repair=Repair.FAIL_MIGRATION,
            migrations=(move.id,),
            lingering=move,
            again=None,
        )
    advice = "; ".join(dict.fromkeys(map(_advice, working)))
    return replace(verdict, status=Status.STUCK, because=because, advice=advice)


def _reverted(owner: Owner, verdict: Verdict, view: NodeView, clock: Clock) -> Migration | None:
    """Return the cold migration to this node that its source will not continue and that may be set to failed.

    The cause is a power failure during the copy: the starting nova-compute fails to revert the migration and clears the
    task (``_init_instance``). The repair also requires proof that the source's nova-compute started later. The task may
    have been reset by hand while the disk is still being copied.
    """
    moves = [move for move in owner.moves if move.in_flight]
    instance = owner.instance
    all_taken = bool(verdict.rows) and all(row.live and row.taken for row in verdict.rows) and not view.node.deleted
    if len(moves) != 1 or not all_taken or instance is None or not owner.alive or instance.task_state is not None:
        return None
    (move,) = moves
    ends = (view.services.get(host or "") for host in (move.source_compute, move.dest_compute))
    fits = (
        move.migration_type in ("migration", "resize")
        and move.status in ("pre-migrating", "migrating", "post-migrating")
        and (move.source_compute, move.source_node) == (instance.host, instance.node)
        and (move.dest_compute, move.dest_node) == (view.node.host, view.node.hypervisor_hostname)
        and not extends(move.source_compute or "", move.dest_compute or "")
        and instance.vm_state in ("active", "stopped")
        and not (owner.migrations_elsewhere or move.cross_cell_move)
        and not any(other.status == ERROR for other in owner.migrations)
        and all(clock.state(service) is HostState.UP for service in ends)
        and move.updated_at is not None
    )
    return move if fits else None


def _early(verdict: Verdict, view: NodeView, clock: Clock) -> bool:
    node = [] if verdict.rows else [view.node.updated_at]
    return any(map(clock.recent, [*node, *(row.changed_at for row in verdict.rows or view.rows)]))


def _reason(owner: Owner, view: NodeView, clock: Clock) -> str | None:
    """Return why nothing continues the owner's work; None if something does, or may."""
    moves = [move for move in owner.moves if move.in_flight]
    held = in_flight(owner)
    last = _last(owner, moves)
    if not held or last is None or clock.now - last < clock.stuck_after:
        return None
    work = f"{'; '.join(held)}; nothing has been written since {last}"
    if _in_other_cells(owner, moves):
        return None if _waits(owner, moves) else _late(work, last, clock)
    task = _task(owner)
    if down := [f"nova-compute on {host} {state}" for host, state in _down(owner, moves, view, clock)]:
        return f"{work}; {' and '.join(down)} and must continue the work"
    if task is None and not _waits(owner, moves):
        return f"{work}, and no nova-compute works on it: the instance has no task"
    if task is None:
        return None
    if not _known_task(task).get("long", True):
        return f"{work}; this task takes seconds"
    return _late(work, last, clock)


def _task(owner: Owner) -> str | None:
    return owner.instance.task_state if owner.alive and owner.instance is not None else None


def _known_task(name: str) -> Mapping[str, Any]:
    """Return what Nova's source shows of a task; empty for one that no known release has."""
    return next((record for record in table("task_states").records if record["name"] == name), {})


def _in_other_cells(owner: Owner, moves: Iterable[Migration]) -> bool:
    """Whether hosts of another cell, which are unknown here, may continue the work."""
    elsewhere = any(move.cross_cell_move for move in moves) or any(m.in_flight for m in owner.migrations_elsewhere)
    return owner.in_several_cells or elsewhere


def _waiting(owner: Owner, clock: Clock) -> Waiting | None:
    """Return the work that has been without a write for ``--stuck-after``, and still protects rows; None otherwise."""
    moves = [move for move in owner.moves if move.in_flight]
    last, task = _last(owner, moves), _task(owner)
    if last is None or clock.now - last < clock.stuck_after or _waits(owner, moves) or not in_flight(owner):
        return None
    return Waiting(
        instance=owner.uuid,
        task=task or "",
        since=last,
        age=clock.now - last,
        younger=clock.now - last - min(clock.grace, clock.service_down_time),
        hosts=() if _in_other_cells(owner, moves) else tuple(dict.fromkeys(filter(None, _actors(owner, moves)))),
        by_compute=task is not None and _known_task(task).get("by") == "compute",
        advice=_advice(owner),
    )


def _late(work: str, last: datetime, clock: Clock) -> str | None:
    """Return the reason that holds for long tasks too; None before the longer limit."""
    limit = _LONG * clock.stuck_after
    if clock.now - last < limit:
        return None
    return f"{work}, for at least {limit.total_seconds():.0f} seconds ({_LONG} times --stuck-after)"


def _waits(owner: Owner, moves: list[Migration]) -> bool:
    """Whether the owner waits for a person to confirm or revert a resize, which has no time limit."""
    resized = owner.instance is not None and owner.instance.vm_state == "resized"
    return resized and bool(moves) and all(move.status == "finished" for move in moves)


def _last(owner: Owner, moves: list[Migration]) -> datetime | None:
    moments = [move.updated_at for move in moves]
    if owner.instance is not None:
        moments.append(owner.instance.updated_at)
    return max(filter(None, moments), default=None)


def _down(owner: Owner, moves: list[Migration], view: NodeView, clock: Clock) -> Iterator[tuple[str, str]]:
    """Yield the hosts that must continue the work and have been down too long, with their state."""
    for host in dict.fromkeys(filter(None, _actors(owner, moves))):
        service = view.service_on(host)
        state = clock.state(service)
        if service is None:
            yield host, "has no service"
        elif state in _SILENT and (service.reported_at is None or clock.now - service.reported_at >= clock.stuck_after):
            since = service.reported_at
            yield host, f"has been {state.value} since {since}" if since else f"is {state.value} and has never reported"


def _actors(owner: Owner, moves: list[Migration]) -> Iterable[str | None]:
    for move in moves:
        if move.migration_type != "evacuation":  # its source is down as a rule
            yield move.source_compute
        yield move.dest_compute
    if not moves and owner.alive and owner.instance is not None:
        yield owner.instance.host  # without a host, no nova-compute works on it: the host of a row has no part in it


def _advice(owner: Owner) -> str:
    moves = [move for move in owner.moves if move.in_flight]
    ids = ", ".join(str(move.id) for move in moves)
    if _waits(owner, moves):
        return (
            f"start the host and confirm or revert the resize of {owner.uuid}; if the host is lost, follow {PAGE} for "
            f"migration {ids}"
        )
    if any(move.migration_type == "evacuation" for move in moves):
        return (
            f"look for domains of {owner.uuid} on both hosts, then evacuate it again; the record {ids} is what its old "
            "host needs when it returns, so do not delete it"
        )
    instance, between_cells = owner.instance, owner.in_several_cells or (owner.instance and owner.instance.hidden)
    if not moves and instance is not None and owner.alive and not between_cells:
        return _advice_without_move(instance)
    reset = f"openstack server set --state active {quoted(owner.uuid)}; " if owner.alive else ""
    return (
        f"see that no copy and no domain of {owner.uuid} runs on the hosts of migration {ids or '(none)'}, as {PAGE} "
        f"shows; then: {reset}set the migration to error in the database, and plan again"
    )


def _advice_without_move(instance: Instance) -> str:
    """Return the advice for a task without a migration: there is no other host, and no migration to end."""
    if instance.vm_state == "building":
        return f"the instance was never started: run openstack server delete {quoted(instance.uuid)}, and plan again"
    if instance.host is None:  # "--state active" would make an active instance without a host
        return (
            f"see in the logs of nova-conductor and nova-scheduler that nothing works on {instance.uuid}; then set "
            "task_state of the instance to NULL in the database, and plan again"
        )
    return (
        f"see in the log of nova-compute on {instance.host} that nothing works on {instance.uuid}; then run "
        f"openstack server set --state active {quoted(instance.uuid)}, and plan again"
    )
