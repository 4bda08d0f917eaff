"""Work that nobody does any more, although it still protects rows: the status *stuck*.

A move or a task protects its instance. If its host dies or restarts at the wrong moment, nothing ends it, and Nova
holds the devices for ever. It is stuck when nothing has been written for ``--stuck-after``, and

* the instance has no task: no nova-compute works on it (one that starts clears the task, ``_init_instance``), or
* a host that has to do the next step is down for as long, or
* the task is one that takes seconds, or nothing has been written for a day.

The default of ``--stuck-after`` is an hour: Nova's services wait for one another for 30 minutes at most (nova.conf:
``long_rpc_timeout``). A disk may be copied for hours without a write to the database, but the instance has a task then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from gpustack.cleanup.clock import Clock, HostState
from gpustack.cleanup.evidence import in_flight
from gpustack.cleanup.model import ERROR, Migration
from gpustack.cleanup.verdict import Lingering, Repair, Status, Verdict
from gpustack.cleanup.view import NodeView, Owner
from gpustack.hostnames import extends

_LONG_TASKS = frozenset(
    {
        # Data is copied, or an image is loaded: nova/compute/task_states.py.
        *("resize_migrating", "resize_finish", "migrating", "rebuilding", "rebuild_block_device_mapping"),
        *("rebuild_spawning", "scheduling", "block_device_mapping", "networking", "spawning"),
        *("image_snapshot_pending", "image_snapshot", "image_pending_upload", "image_uploading"),
        *("shelving", "shelving_image_pending_upload", "shelving_image_uploading", "shelving_offloading"),
        *("unshelving", "image_backup", "deleting"),
    }
)
_LONG = 24
"""How many times ``--stuck-after`` a long task may go on without a write."""
_SILENT = (HostState.DOWN, HostState.FORCED_DOWN, HostState.GONE)
PAGE = "the page “A migration that never ended” of the runbook"


def stuck(verdict: Verdict, view: NodeView, clock: Clock, owner: Owner | None = None) -> Verdict:
    """The verdict, or one that is *stuck* where it is protected by nothing but work that nobody does any more.

    :param owner: the owner, where it is none of the view's.
    """
    if verdict.status is not Status.PROTECTED or _early(verdict, view, clock):
        return verdict
    owner = owner or view.owners.get(verdict.owner or "")
    working = [owner] if owner is not None else [worker for worker in view.owners.values() if in_flight(worker)]
    reasons = [_reason(worker, view, clock) for worker in working]
    if not reasons or None in reasons:
        return verdict
    because = "; ".join(dict.fromkeys(filter(None, reasons)))
    if owner is not None and (move := _reverted(owner, verdict, view, clock)):
        return replace(
            verdict,
            status=Status.STALE,
            because=f"{because}; the instance is at its source, {move.source_compute}. Failed, the migration holds "
            "nothing, and nova-compute here frees the device by itself",
            repair=Repair.FAIL_MIGRATION,
            migrations=(move.id,),
            lingering=Lingering(
                status=move.status or "", host=move.source_compute or "", since=move.updated_at or clock.now
            ),
            again=None,
        )
    return replace(
        verdict,
        status=Status.STUCK,
        because=because,
        advice="; ".join(dict.fromkeys(_advice(worker) for worker in working)),
    )


def _reverted(owner: Owner, verdict: Verdict, view: NodeView, clock: Clock) -> Migration | None:
    """The cold migration to this node that its source will not go on with, and that may be set to failed.

    A power cut in the middle of the copy: the nova-compute that starts there fails to revert it and clears the task
    (``_init_instance``). It is failed only if the source proves that its nova-compute started since: the task may also
    have been reset by hand, while the disk is still copied.
    """
    moves = [move for move in owner.migrations if move.in_flight]
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
        and not any(other.status == ERROR for other in owner.migrations)
        and all(clock.state(service) is HostState.UP for service in ends)
        and move.updated_at is not None
    )
    return move if fits else None


def _early(verdict: Verdict, view: NodeView, clock: Clock) -> bool:
    rows = verdict.rows or view.rows
    return any(clock.recent(row.changed_at) for row in rows) or (
        not verdict.rows and clock.recent(view.node.updated_at)
    )


def _reason(owner: Owner, view: NodeView, clock: Clock) -> str | None:
    """Why nobody works on the owner any more; None when somebody does, or may."""
    moves = [move for move in owner.migrations if move.in_flight]
    held = in_flight(owner)
    last = _last(owner, moves)
    if not held or last is None or clock.now - last < clock.stuck_after:
        return None
    work = f"{'; '.join(held)}; nothing has been written since {last}"
    if owner.in_several_cells or any(move.cross_cell_move for move in moves):  # the other cell's hosts are not known
        late = clock.now - last >= _LONG * clock.stuck_after and not _waits(owner, moves)
        return f"{work}, for more than a day" if late else None
    task = owner.instance.task_state if owner.alive and owner.instance is not None else None
    down = [f"nova-compute on {host} {state}" for host, state in _down(owner, moves, view, clock)]
    if down:
        return f"{work}; {' and '.join(down)}, and has to go on with it"
    if task is None and not _waits(owner, moves):
        return f"{work}, and no nova-compute works on it: the instance has no task"
    if task is None:
        return None
    if task not in _LONG_TASKS:
        return f"{work}; this task takes seconds"
    return f"{work}, for more than a day" if clock.now - last >= _LONG * clock.stuck_after else None


def _waits(owner: Owner, moves: list[Migration]) -> bool:
    """Whether a person has to confirm or revert a resize, for which there is no time limit."""
    resized = owner.instance is not None and owner.instance.vm_state == "resized"
    return resized and bool(moves) and all(move.status == "finished" for move in moves)


def _last(owner: Owner, moves: list[Migration]) -> datetime | None:
    moments = [move.updated_at for move in moves]
    if owner.instance is not None:
        moments.append(owner.instance.updated_at)
    return max(filter(None, moments), default=None)


def _down(owner: Owner, moves: list[Migration], view: NodeView, clock: Clock) -> Iterator[tuple[str, str]]:
    """The hosts that have to go on with the work and are down for long, and since when."""
    for host in dict.fromkeys(filter(None, _actors(owner, moves, view))):
        service = view.service_on(host)
        state = clock.state(service)
        if service is None:
            yield host, "has no service"
        elif state in _SILENT and (service.reported_at is None or clock.now - service.reported_at >= clock.stuck_after):
            yield host, f"is {state.value} since {service.reported_at or 'ever'}"


def _actors(owner: Owner, moves: list[Migration], view: NodeView) -> Iterable[str | None]:
    for move in moves:
        # The source of an evacuation is down: that is what evacuations are for.
        yield from (
            (move.dest_compute,)
            if move.migration_type == "evacuation"
            else (
                move.source_compute,
                move.dest_compute,
            )
        )
    if not moves and owner.alive and owner.instance is not None:
        yield owner.instance.host or view.node.host


def _advice(owner: Owner) -> str:
    moves = [move for move in owner.migrations if move.in_flight]
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
    reset = f"openstack server set --state active {owner.uuid}; " if owner.alive else ""
    return (
        f"see that no copy and no domain of {owner.uuid} runs on the hosts of migration {ids or '(none)'}, as {PAGE} "
        f"shows; then: {reset}set the migration to error in the database, and plan again"
    )
