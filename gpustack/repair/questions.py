"""Determine the hosts to ask before a repair, and the devices to ask about.

The invariants are in :mod:`gpustack.repair.permission`.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from gpustack.base.hostnames import same
from gpustack.base.text import quoted
from gpustack.novadb.model import ERROR, PciRow
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair.evidence import in_flight, interrupted, lacking, misread, pinning, renamed
from gpustack.repair.hypervisor import UNKNOWN
from gpustack.repair.repair import changes, held_devices, resting_on, with_relatives
from gpustack.repair.verdict import Origin, Question, Repair, Status, Verdict, words

_SILENT = (HostState.DOWN, HostState.FORCED_DOWN, HostState.STOPPED)
_ANY_TIME = datetime(1970, 1, 1)  # noqa: DTZ001 - only which rows are written matters


def prepared(verdict: Verdict, view: NodeView, clock: Clock) -> Verdict:
    """Return the verdict with its questions and the facts that it depends on, or a more cautious verdict."""
    if verdict.questions is not None:
        return verdict
    verdict = _without_start(verdict, view, clock)
    if verdict.status is Status.STALE:
        questions = tuple(_questions(verdict, view, clock))
        seen = resting_on(verdict, view, clock)
        held, origin = held_devices(verdict, view), _origin(verdict, view)
        return replace(verdict, questions=questions, seen=seen, held=held, origin=origin)
    if verdict.then and verdict.status is Status.REPORT:
        ask = f"before nova-compute is restarted, run gpustack cleanup plan --ask-hosts --host {quoted(verdict.host)}"
        return replace(
            verdict,
            questions=(_at_start(verdict, view, clock),),
            advice="; ".join(filter(None, (verdict.advice, ask))),
            then="; ".join(filter(None, (verdict.advice, verdict.then))),
        )
    return replace(verdict, then="")


def names(host: str | None, node: str | None) -> frozenset[str]:
    """Return the names that the machine may have: Nova's node is the hostname that libvirt returns."""
    return frozenset(name for name in (host, node) if name)


def _origin(verdict: Verdict, view: NodeView) -> Origin:
    owner = view.owners.get(verdict.owner or "")
    instance = owner.instance if owner is not None and owner.alive else None
    devices = verdict.allocation.addresses.split() if verdict.allocation else ()
    rows = (row for row in view.rows if row.live and row.taken and row.address.lower() in devices)
    related = (row for row in with_relatives(view, verdict.rows) if row.taken and row not in verdict.rows)
    return Origin.model_construct(
        node_id=view.node.id,
        node_uuid=view.node.uuid,
        node_deleted=bool(view.node.deleted),
        owner=None if instance is None else Origin.place(instance, view.cell),
        users=tuple(row.instance_uuid or "" for row in rows),
        beside={row.address: row.instance_uuid for row in related},
    )


def _without_start(verdict: Verdict, view: NodeView, clock: Clock) -> Verdict:
    """Return the verdict, or *report* or *protected* if it needs a start of nova-compute that would do harm."""
    wants = verdict.stop or verdict.repair is Repair.RESTART or verdict.starts or verdict.then
    if not wants or verdict.status not in (Status.STALE, Status.HEALS, Status.REPORT):
        return verdict
    if (harm := _harm(view, clock)) is None:
        return verdict
    status, because, advice = harm
    return verdict.withdrawn(status, f"{verdict.because}; but {because}", advice, then="")


def _harm(view: NodeView, clock: Clock) -> tuple[Status, str, str] | None:
    """Return the status, the reason and the first remedy if starting or stopping nova-compute would do harm."""
    if owners := list(lacking(view)):
        guests = ", ".join(owner.uuid for owner in owners)
        because = f"instance {guests} lacks a device, or may: when nova-compute starts, it may offer one that is in use"
        if any(in_flight(owner) for owner in owners):
            return Status.PROTECTED, because, ""
        advice = "do not restart nova-compute on this host before class L is settled; then plan again"
        return Status.REPORT, because, advice
    if row := next(misread(view), None):
        why = f"{words(row)}, and Nova can't read it so: a nova-compute that starts fails, or offers a device in use"
        advice = "do not restart nova-compute on this host before class U is settled; then plan again"
        return Status.REPORT, why, advice
    if view.host_state(clock) is HostState.UP and (work := list(interrupted(view))):
        because = f"a stop of nova-compute would break off work: {'; '.join(work)}"
        return Status.REPORT, because, "do not stop or restart nova-compute before this work ends; then plan again"
    return None


def _questions(verdict: Verdict, view: NodeView, clock: Clock) -> Iterator[Question]:
    owner = view.owners.get(verdict.owner or "")
    own_only = verdict.repair in (Repair.RETIRE, Repair.CLEAR_DELETED, Repair.UNSET_ALLOCATION)
    on_node = owner is not None and owner.on(view.node)
    if verdict.repair is Repair.RESTART:
        yield _at_start(verdict, view, clock)
        return
    offered = _offered(verdict, view)
    # Nova no longer manages the row: its device may be gone, or belong to another instance by another row.
    retired = verdict.repair in (Repair.RETIRE, Repair.CLEAR_DELETED)
    family = _family(offered, view)
    yield Question(
        host=verdict.host,
        names=names(verdict.host, verdict.node),
        offered={} if retired else offered,
        near=frozenset(offered) if own_only else frozenset(family),
        rows=({row.address.lower(): _model(row) for row in view.rows if row.live} or offered) if retired else {},
        by=frozenset({(verdict.owner or "").lower(), UNKNOWN}) if own_only else None,
        absent=None if on_node or not verdict.owner else verdict.owner.lower(),
        state=view.host_state(clock),
        spared=_spared(verdict, view, clock),
    )
    if verdict.stop:
        yield _at_start(verdict, view, clock)
    for host, called in _other_ends(verdict, owner).items():
        elsewhere = view.elsewhere.get(verdict.owner or "", ())
        on_host = owner is not None and owner.alive and owner.instance is not None and owner.instance.host == host
        # Nova does not manage soft-deleted rows.
        models = {row.address.lower(): _model(row) for name, row in elsewhere if row.live and same(name, host)}
        yield Question(
            host=host,
            names=called,
            offered={} if on_host else models,
            absent=None if on_host or not verdict.owner else verdict.owner.lower(),
            state=clock.state(view.service_on(host)),
            younger=_since(verdict, host, clock),
        )


def _since(verdict: Verdict, host: str, clock: Clock) -> timedelta | None:
    """Return the time since the last write of the migration, if the host worked on it; None otherwise.

    The possible difference between clocks is subtracted. The time is that of the plan. The age in the host's later
    answer is greater, which errs on the safe side.
    """
    move = verdict.lingering
    if move is None or move.source_compute != host:
        return None
    return clock.now - (move.updated_at or clock.now) - min(clock.grace, clock.service_down_time)


def _offered(verdict: Verdict, view: NodeView) -> dict[str, str]:
    """Return vendor and product, by address, of devices that the repair, or Nova after it, may make available."""
    if verdict.allocation is not None:
        rows = {row.address.lower(): row for row in view.rows if row.live}
        return {address: _model(rows[address]) for address in verdict.allocation.addresses.split() if address in rows}
    freeing = verdict
    if verdict.repair is Repair.FAIL_MIGRATION:  # Nova frees all devices of the owner, not only those of the verdict
        freeing = replace(verdict, repair=Repair.FREE, rows=view.held.get(verdict.owner or "", verdict.rows))
    writes = changes(freeing, view.by_address, _ANY_TIME)
    # Rows of the first are available already, and Nova frees those of the second whatever uses their relatives.
    all_of_them = verdict.repair in (Repair.CLEAR_OWNER, Repair.FAIL_MIGRATION)
    devices = (change for change in writes if change.table == "pci_devices")
    written = {change.id for change in devices if all_of_them or change.new.get("status") == "available"}
    return {row.address.lower(): _model(row) for row in view.rows if row.id in written}


def _family(addresses: Collection[str], view: NodeView) -> Iterator[str]:
    """Yield parents and children of functions: an instance must not use one while the other is free."""
    for row in view.rows:
        address, parent = row.address.lower(), (row.parent_addr or "").lower()
        if row.live and address in addresses and parent:
            yield parent
        elif row.live and parent in addresses:
            yield address


def _other_ends(verdict: Verdict, owner: Owner | None) -> dict[str, frozenset[str]]:
    """Return the other hosts of the migrations that are set to failed, with the possible names of each."""
    names_by_host: dict[str, frozenset[str]] = {}
    for move in owner.migrations if owner else ():
        ends = ((move.source_compute, move.source_node), (move.dest_compute, move.dest_node))
        for host, node in ends if move.id in verdict.migrations else ():
            if host and host != verdict.host:
                names_by_host[host] = names_by_host.get(host, frozenset()) | names(host, node)
    return names_by_host


def _at_start(verdict: Verdict, view: NodeView, clock: Clock) -> Question:
    """Return what must hold when nova-compute starts: each device in use has a row that names its user."""
    owner_by_address = {
        row.address.lower(): (row.instance_uuid or "").lower()
        for row in view.taken
        if (owner := view.owners.get(row.instance_uuid or "")) is not None
        and (owner.on(view.node) or any(move.touches(view.node) and not move.over for move in owner.migrations))
    }
    return Question(
        host=verdict.host,
        names=names(verdict.host, verdict.node),
        kept=owner_by_address,
        rows={row.address.lower(): _model(row) for row in sorted(view.rows, key=lambda row: row.live)},
        state=view.host_state(clock),
        resident=dict(_doubtful_residents(view)),
    )


def _doubtful_residents(view: NodeView) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield active instances of the node whose live migration ended in error, with their devices here.

    Their domain may run on the other host (``_reset_live_migration``). With ``resume_guests_state_on_host_boot``, a
    starting nova-compute would start a second one here (nova/compute/manager.py, ``_init_instance``).
    """
    for owner in view.owners.values():
        instance = owner.instance
        if instance is None or not renamed(view, owner) or instance.vm_state != "active":
            continue
        if any(move.migration_type == "live-migration" and move.status == ERROR for move in owner.migrations):
            held = (row.address.lower() for row in view.taken if row.instance_uuid == owner.uuid)
            yield owner.uuid.lower(), frozenset(held)


def _spared(verdict: Verdict, view: NodeView, clock: Clock) -> str:
    """Return why no answer is needed; empty if one is.

    None is needed if nova-compute does not run and frees the device when it starts, before it offers any. That requires
    that the owner is not on this node by any name, and that no unfinished migration leads from or to it
    (``nova/pci/manager.py``, ``clean_usage``). If an instance of this node lacks a device, it may use the one that the
    repair offers, and nova-compute must not be started first (class L).
    """
    silent = view.node.deleted or (view.service is not None and view.host_state(clock) in _SILENT)
    plain = verdict.repair in (Repair.FREE, Repair.RETIRE, Repair.CLEAR_DELETED)
    if not silent or not plain or verdict.stop or verdict.migrations:
        return ""
    if verdict.repair is Repair.FREE and any(lacking(view)):
        return ""
    for row in verdict.rows:
        owner = view.owners.get(row.instance_uuid or "")
        if owner is not None and (renamed(view, owner) or in_flight(owner) or pinning(view, owner)):
            return ""
    if view.node.deleted:
        return "no nova-compute reads the rows of a deleted compute node"
    return "nova-compute does the same when it starts, before it offers the device"


def _model(row: PciRow) -> str:
    return f"{row.vendor_id}:{row.product_id}".lower()
