"""Whom a repair must ask, and what the answers permit: the one place that decides it, for every class.

1. A repair that may free a device is made only with an answer of *every host whose device it may free*: for a row its
   host; for a migration that is set to failed both of its ends; for a start of nova-compute its host, about each device
   that a guest has there. Without one the verdict is *undecided*, and names the host. So is it for advice to start.
2. A repair that does only what that host's nova-compute does by itself when it starts, before it offers anything,
   needs no answer while the host is down (:func:`_spared`).
3. "In use" is believed of every answer, incomplete ones too. "Not in use" is believed only of a complete answer of a
   machine that proves to be that host: libvirt is there, and the function, with the row's vendor and product; and the
   machine's own name is the host's, since all hosts of a rack have the same devices at the same addresses.
4. What is missing of an answer the operator can replace, for a host that he names (``--gone``), and for no other.
5. On a host where an instance lacks a device, or where a row is written as Nova can't read it, nova-compute is not
   started, and nobody is advised to start it. Nor is one stopped or restarted that works on a move or a task.

:func:`prepared` is called for every verdict of every class; ``apply`` refuses what did not pass through it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpustack.cleanup.clock import Clock, HostState
from gpustack.cleanup.evidence import in_flight, interrupted, lacking, misread, pinning
from gpustack.cleanup.guards import resting_on
from gpustack.cleanup.hypervisor import UNKNOWN, Ask, Usage
from gpustack.cleanup.model import ERROR, PciRow
from gpustack.cleanup.repair import Change, changes
from gpustack.cleanup.verdict import Question, Repair, Status, Verdict, words
from gpustack.cleanup.view import NodeView, Owner
from gpustack.hostnames import same, short

_SILENT = (HostState.DOWN, HostState.FORCED_DOWN, HostState.STOPPED)
_ANY_TIME = datetime(1970, 1, 1)  # noqa: DTZ001 - only which rows are written matters


def prepared(verdict: Verdict, view: NodeView, clock: Clock) -> Verdict:
    """The verdict with its questions and the facts that it rests on; or a more careful one."""
    if verdict.questions is not None:
        return verdict
    verdict = _without_start(verdict, view, clock)
    if verdict.status is Status.STALE:
        questions = tuple(_questions(verdict, view, clock))
        return replace(verdict, questions=questions, seen=resting_on(verdict, view, clock))
    if verdict.then and verdict.status is Status.REPORT:
        ask = f"before nova-compute is restarted, run gpustack cleanup plan --ask-hosts --host {verdict.host}"
        return replace(
            verdict,
            questions=(_at_start(verdict, view, clock),),
            advice="; ".join(filter(None, (verdict.advice, ask))),
            then="; ".join(filter(None, (verdict.advice, verdict.then))),
        )
    return replace(verdict, then="")


def answers(verdict: Verdict, ask: Ask, gone: Iterable[str] = ()) -> dict[str, Usage]:
    """The answers of all hosts that a verdict asks.

    :param gone: hosts that the operator declared gone. They are asked all the same: a device in use is believed.
    """
    declared = frozenset(gone)
    found = {host: ask(host) for host in verdict.asks}
    return {host: replace(usage, gone=True) if host in declared else usage for host, usage in found.items()}


def settle(verdict: Verdict, found: Mapping[str, Usage]) -> Verdict:
    """The verdict after the answers: as it is, or *report* where a device is in use, or *undecided*."""
    questions = verdict.questions
    if verdict.status is not Status.STALE and not verdict.then:
        return verdict
    if questions is None:
        return _withdrawn(verdict, Status.UNDECIDED, "the hosts to ask are not known: a fault of gpustack")
    used = [text for question in questions for text in _in_use(question, found.get(question.host, _NOBODY))]
    if used:
        return _withdrawn(verdict, Status.REPORT, "; ".join(used), advice="settle what the hosts report first")
    missing = {q.host: text for q in questions if (text := _missing(q, found.get(q.host, _NOBODY)))}
    if missing:
        return _withdrawn(verdict, Status.UNDECIDED, "; ".join(missing.values()), advice=_remedy(missing))
    witness = tuple(witnesses(verdict, found))
    return replace(verdict, evidence=(*verdict.evidence, *witness), advice=verdict.then or verdict.advice, then="")


def witnesses(verdict: Verdict, found: Mapping[str, Usage]) -> Iterator[str]:
    """Whose word the repair relies on, host by host."""
    for question in verdict.questions or ():
        usage = found.get(question.host, _NOBODY)
        if not (reason := _unproved(question, usage)):
            yield f"{question.host}: no guest uses a device that may become free"
        elif usage.gone and not _contradicted(question, usage):
            yield f"{question.host}: declared gone by the operator (--gone); {reason}"
        else:
            yield f"{question.host}: not asked with success ({reason}), and {question.spared}"


def unstopped(verdict: Verdict) -> str:
    """What to do before the repair, where nova-compute has to be stopped and is not; empty where nothing is.

    One that is "down", or has no service any more, may only be cut off, with the rows still in its memory.
    """
    if not verdict.stop or verdict.host_state is HostState.STOPPED:
        return ""
    return f"stop nova-compute on {verdict.host} first, then add --stopped {verdict.host}"


def names(host: str | None, node: str | None) -> frozenset[str]:
    """What a machine calls itself that is this host: Nova's node is the name that libvirt returns."""
    return frozenset(short(name) for name in (host, node) if name)


def misnamed(usage: Usage, host: str, expected: frozenset[str]) -> str:
    """Why an answer is another machine's, which DNS or a jump host led to; empty where nothing shows that."""
    if not usage.names or {short(name) for name in usage.names} & expected:
        return ""
    return f"the machine that answered as {host} calls itself {', '.join(sorted(usage.names))}"


def permits(verdict: Verdict, made: Iterable[Change]) -> bool:
    """Whether a repair offers no other device than those that the hosts were asked about."""
    offered = {str(change.seen["address"]).lower() for change in made if change.new.get("status") == "available"}
    asked = {address for one in verdict.questions or () for address in (*one.offered, *one.near)}
    return offered <= asked


_NOBODY = Usage(gap="the host was not asked")


# --- before the answers -----------------------------------------------------------------------------------------------


def _without_start(verdict: Verdict, view: NodeView, clock: Clock) -> Verdict:
    """The verdict, or a report where it wants a start of nova-compute that would do harm."""
    wants = verdict.stop or verdict.repair is Repair.RESTART or verdict.starts or verdict.then
    if not wants or verdict.status not in (Status.STALE, Status.HEALS, Status.REPORT):
        return verdict
    harm = _harm(view, clock)
    if harm is None:
        return verdict
    status, because, advice = harm
    return replace(
        verdict,
        status=status,
        because=f"{verdict.because}; but {because}",
        repair=None,
        stop=False,
        starts=False,
        then="",
        advice=advice,
    )


def _harm(view: NodeView, clock: Clock) -> tuple[Status, str, str] | None:
    """What a start of nova-compute would do: the status that follows, why, and what to do first."""
    if owners := list(lacking(view)):
        guests = ", ".join(owner.uuid for owner in owners)
        because = f"instance {guests} lacks a device, or may: when nova-compute starts, it may offer one that is in use"
        if any(in_flight(owner) for owner in owners):
            return Status.PROTECTED, because, ""
        advice = "do not restart nova-compute on this host before class L is settled; then plan again"
        return Status.REPORT, because, advice
    if row := next(misread(view), None):
        because = (
            f"{words(row)}, and Nova can't read it so: a nova-compute that starts fails, or offers a device in use"
        )
        advice = "do not restart nova-compute on this host before class U is settled; then plan again"
        return Status.REPORT, because, advice
    if view.host_state(clock) is HostState.UP and (work := list(interrupted(view))):
        because = f"a stop of nova-compute would break off work: {'; '.join(work)}"
        return Status.REPORT, because, "do not stop or restart nova-compute before this work ends; then plan again"
    return None


def _questions(verdict: Verdict, view: NodeView, clock: Clock) -> Iterator[Question]:
    owner = view.owners.get(verdict.owner or "")
    own_only = verdict.repair in (Repair.RETIRE, Repair.CLEAR_DELETED, Repair.UNSET_ALLOCATION)
    here = owner is not None and owner.on(view.node)
    if verdict.repair is Repair.RESTART:
        yield _at_start(verdict, view, clock)
        return
    offered = _offered(verdict, view)
    # A row that Nova does not manage any more: its device may rightly be gone, or be another's by another row.
    retired = verdict.repair in (Repair.RETIRE, Repair.CLEAR_DELETED)
    family = _family(offered, view)
    yield Question(
        host=verdict.host,
        names=names(verdict.host, verdict.node),
        offered={} if retired else offered,
        near=frozenset(offered) if own_only else frozenset(family),
        rows=({row.address.lower(): _model(row) for row in view.rows if row.live} or offered) if retired else {},
        by=frozenset({(verdict.owner or "").lower(), UNKNOWN}) if own_only else None,
        absent=None if here or not verdict.owner else verdict.owner.lower(),
        state=view.host_state(clock),
        spared=_spared(verdict, view, clock),
    )
    if verdict.stop:
        yield _at_start(verdict, view, clock)
    for host, called in _other_ends(verdict, owner).items():
        elsewhere = view.elsewhere.get(verdict.owner or "", ())
        there = owner is not None and owner.alive and owner.instance is not None and owner.instance.host == host
        found = {row.address.lower(): _model(row) for name, row in elsewhere if same(name, host)}
        yield Question(
            host=host,
            names=called,
            offered={} if there else found,
            absent=None if there or not verdict.owner else verdict.owner.lower(),
            state=clock.state(view.service_on(host)),
            younger=_since(verdict, host, clock),
        )


def _since(verdict: Verdict, host: str, clock: Clock) -> timedelta | None:
    """How long ago the migration was written on which that host worked, as far as clocks that differ show it.

    By the plan's clock: what the host answers later is older by then, which is on the safe side.
    """
    if verdict.lingering is None or verdict.lingering.host != host:
        return None
    return clock.now - verdict.lingering.since - min(clock.grace, clock.service_down_time)


def _offered(verdict: Verdict, view: NodeView) -> dict[str, str]:
    """The devices that the repair, or Nova after it, may make available; by address, with vendor and product."""
    if verdict.allocation is not None:
        rows = {row.address.lower(): row for row in view.rows if row.live}
        return {one: _model(rows[one]) for one in verdict.allocation.addresses.split() if one in rows}
    freeing = verdict
    if verdict.repair is Repair.FAIL_MIGRATION:  # Nova frees each device of the owner, whatever row the verdict is on
        freeing = replace(verdict, repair=Repair.FREE, rows=view.held.get(verdict.owner or "", verdict.rows))
    made = changes(freeing, view.by_address, _ANY_TIME)
    freed = verdict.repair is Repair.CLEAR_OWNER  # the device is free by its row already
    written = {change.id for change in made if freed or change.new.get("status") == "available"}
    return {row.address.lower(): _model(row) for row in view.rows if row.id in written}


def _family(addresses: Collection[str], view: NodeView) -> Iterator[str]:
    """A physical function must not be offered while a guest has a virtual one of it, nor the other way round."""
    for row in view.rows:
        address, parent = row.address.lower(), (row.parent_addr or "").lower()
        if row.live and address in addresses and parent:
            yield parent
        elif row.live and parent in addresses:
            yield address


def _other_ends(verdict: Verdict, owner: Owner | None) -> dict[str, frozenset[str]]:
    """The other hosts of the migrations that are failed, with the names of each."""
    found: dict[str, frozenset[str]] = {}
    for move in owner.migrations if owner else ():
        ends = ((move.source_compute, move.source_node), (move.dest_compute, move.dest_node))
        for host, node in ends if move.id in verdict.migrations else ():
            if host and host != verdict.host:
                found[host] = found.get(host, frozenset()) | names(host, node)
    return found


def _at_start(verdict: Verdict, view: NodeView, clock: Clock) -> Question:
    """What must hold when nova-compute starts: each device that a guest has is that guest's by a row which stays."""
    kept = {
        row.address.lower(): (row.instance_uuid or "").lower()
        for row in view.taken
        if (owner := view.owners.get(row.instance_uuid or "")) is not None
        and (owner.on(view.node) or any(move.touches(view.node) and not move.over for move in owner.migrations))
    }
    return Question(
        host=verdict.host,
        names=names(verdict.host, verdict.node),
        kept=kept,
        rows={row.address.lower(): _model(row) for row in sorted(view.rows, key=lambda row: row.live)},
        state=view.host_state(clock),
        resident=dict(_doubtful_residents(view)),
    )


def _doubtful_residents(view: NodeView) -> Iterator[tuple[str, frozenset[str]]]:
    """Active instances of the node whose live migration ended in error, with their devices there.

    Their domain may run on the other host (``_reset_live_migration``). A nova-compute that starts with
    ``resume_guests_state_on_host_boot`` would start a second one here (nova/compute/manager.py, ``_init_instance``).
    """
    for owner in view.owners.values():
        instance = owner.instance
        if instance is None or not owner.on(view.node) or instance.vm_state != "active":
            continue
        if any(move.migration_type == "live-migration" and move.status == ERROR for move in owner.migrations):
            held = (row.address.lower() for row in view.taken if row.instance_uuid == owner.uuid)
            yield owner.uuid.lower(), frozenset(held)


def _spared(verdict: Verdict, view: NodeView, clock: Clock) -> str:
    """Why no answer is needed: nova-compute frees the device by itself when it starts, before it offers anything.

    That is so where it does not run, and nothing keeps the device for the owner: the owner is not on this node, and no
    migration that Nova counts leads from or to it (``nova/pci/manager.py``, ``clean_usage``).
    """
    silent = view.node.deleted or view.host_state(clock) in _SILENT
    plain = verdict.repair in (Repair.FREE, Repair.RETIRE, Repair.CLEAR_DELETED)
    if not silent or not plain or verdict.stop or verdict.migrations:
        return ""
    for row in verdict.rows:
        owner = view.owners.get(row.instance_uuid or "")
        if owner is not None and (owner.on(view.node) or in_flight(owner) or pinning(view, owner)):
            return ""
    return "nova-compute does the same when it starts, before it offers the device"


# --- what answers prove -----------------------------------------------------------------------------------------------


def _in_use(question: Question, usage: Usage) -> Iterator[str]:
    """Why the repair would hurt a guest, by an answer however incomplete."""
    host = question.host
    if question.state is HostState.STOPPED and usage.nova_compute:
        yield f"nova-compute runs on {host}, which --stopped names: stop it"
    for address, users in sorted(usage.users.items()):
        if not users:
            continue
        who = ", ".join(sorted(user or "an unknown process" for user in users))
        counted = question.by is None or users & question.by
        if (address in question.offered or address in question.near) and counted:
            yield f"the hypervisor of {host} reports {address} in use by {who}"
        elif question.absent is not None and question.absent in users:
            yield f"the hypervisor of {host} reports {address} in use by {who}, which is not placed there"
        elif question.kept is not None and not _stays(question, usage, address, users):
            yield f"{address} on {host} is in use by {who}, and nova-compute would offer it when it starts"
    for uuid, addresses in question.resident.items():
        if not usage.gap and not any(uuid in usage.users.get(address, ()) for address in addresses):
            yield (
                f"instance {uuid} does not run on {host}, and its live migration ended in error: when nova-compute "
                "starts, it may start the instance a second time"
            )


def _stays(question: Question, usage: Usage, address: str, users: frozenset[str]) -> bool:
    kept = (question.kept or {}).get(address)
    if kept is not None:
        return users <= {kept, UNKNOWN}
    model = usage.functions.get(address)
    return model is not None and model not in question.rows.values()  # a device that Nova does not manage


def _missing(question: Question, usage: Usage) -> str:
    """What keeps the answer from being a proof; empty where it is one, or none is needed."""
    reason = _unproved(question, usage)
    if not reason or question.spared:
        return ""
    return _contradicted(question, usage) if usage.gone else reason


def _unproved(question: Question, usage: Usage) -> str:
    if usage.gap:
        return f"{question.host} could not be asked: {usage.gap}"
    if stranger := misnamed(usage, question.host, question.names):
        return stranger
    if question.younger is not None and (usage.age is None or usage.age >= question.younger):
        moment = f"{question.younger.total_seconds():.0f} seconds ago"
        return f"{question.host} does not show that its nova-compute started after the migration was written, {moment}"
    for address, model in sorted(question.offered.items()):
        found = usage.functions.get(address)
        if found != model:
            there = f"{found} there" if found else "no such function"
            machine = f"the machine that answered as {question.host} does not prove to be it"
            return f"{machine}: {address} is {model} by its row, and the machine has {there}"
    if question.rows and not question.rows.items() & usage.functions.items():
        return f"the machine that answered as {question.host} has none of the devices of its rows"
    return ""


def _contradicted(question: Question, usage: Usage) -> str:
    """Why a host is not gone; one that was reinstalled answers, and the operator vouches for what it does not prove."""
    unheard = usage.gap or question.younger is not None or misnamed(usage, question.host, question.names)
    if unheard and question.state in (HostState.UP, HostState.STOPPED):
        runs = "reports" if question.state is HostState.UP else "is to be started again"
        return f"{question.host} is not gone, contrary to --gone: its nova-compute {runs}"
    return ""


def _remedy(missing: Mapping[str, str]) -> str:
    hosts = ", ".join(missing)
    named = " ".join(f"--gone {host}" for host in missing)
    return (
        f"make {hosts} reachable over SSH for root (or with --sudo) and apply again; if a host is fenced, scrapped or "
        f"reinstalled, and no guest can run on it, replace its answer with {named}"
    )


def _withdrawn(verdict: Verdict, status: Status, because: str, advice: str = "") -> Verdict:
    if verdict.then:  # advice to start nova-compute: the report itself stays
        return replace(verdict, advice=f"do not restart nova-compute: {because}", then="")
    return replace(verdict, status=status, because=because, repair=None, stop=False, advice=advice)


def _model(row: PciRow) -> str:
    return f"{row.vendor_id}:{row.product_id}".lower()
