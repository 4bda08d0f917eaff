"""Compare candidates with the rules: which instances get a notice, are shelved, or are left alone. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import quoted
from gpustack.cloud.marks import Since
from gpustack.cloud.servers import Server
from gpustack.operate.reclaim.idle import Idle, idle, length
from gpustack.operate.reclaim.model import Candidate, Decision, Rules, Step
from gpustack.operate.reclaim.notice import DUE, Notice, counts, notice_of

_BUSY = ("VERIFY_RESIZE", "RESIZE", "REVERT_RESIZE", "MIGRATING", "REBUILD", "BUILD", "REBOOT", "HARD_REBOOT")
_IN_MEMORY = ("ACTIVE", "PAUSED", "SUSPENDED")


def decide(candidates: Iterable[Candidate], rules: Rules, now: datetime) -> tuple[Decision, ...]:
    """Return the decisions on the candidates that need one, longest idle first."""
    decisions = [decision for entry in candidates if (decision := judge(entry, rules, now))]
    order = sorted(decisions, key=lambda entry: (entry.since or now, entry.server.id))
    return tuple(_within(order, rules.space))


def held(servers: Iterable[Server], rules: Rules, now: datetime) -> Iterator[Decision]:
    """Yield the instances that no rule covers; nothing is done with them.

    :param now: the current time, naive UTC.
    """
    for server in servers:
        age = f" with its GPUs for {length(now - server.since)}" if server.since else ""
        gpus = sum(count for alias, count in server.devices.items() if alias in rules.aliases)
        text = f"held, no rule ({server.status}{age})"
        yield Decision(server=server, gpus=gpus, step=Step.NOTHING, since=server.since, held=text)


def judge(candidate: Candidate, rules: Rules, now: datetime) -> Decision | None:
    """Decide on one instance; None if it is not idle and has no notice.

    :param now: the current time, naive UTC.
    """
    server = candidate.server
    gpus = sum(count for alias, count in server.devices.items() if alias in rules.aliases)
    if not gpus or not server.placed:
        return None
    newest = candidate.actions[0].request if candidate.actions else ""
    reason, findings = idle(candidate, rules, now)
    notice = notice_of(server.metadata)
    if reason is None:
        if not (notice or findings):
            return None
        step = Step.WITHDRAW if notice and not findings and _writable(candidate) else Step.NOTHING
        return Decision(server=server, gpus=gpus, step=step, newest=newest, findings=findings)
    against = tuple(refusals(candidate, reason, rules))
    decision = Decision(
        server=server,
        gpus=gpus,
        step=Step.NOTHING,
        reason=reason.reason,
        since=reason.since,
        newest=newest,
        snapshot=snapshot(candidate),
        findings=(*findings, *_unrecorded(candidate), *against),
    )
    return decision if against else _noticed(decision, candidate, reason, notice, now)


def _writable(candidate: Candidate) -> bool:
    """Whether Nova accepts metadata of the instance, and it is not locked: Nova ignores locks for administrators."""
    server = candidate.server
    return server.status in ("ACTIVE", "SHUTOFF", "PAUSED", "SUSPENDED") and not (server.task or server.locked)


def _noticed(decision: Decision, candidate: Candidate, reason: Idle, notice: Notice | None, now: datetime) -> Decision:
    if notice is None or not counts(notice, candidate.actions, reason.since, stopped=reason.stopped):
        return replace(decision, step=Step.NOTIFY)
    if notice.due is None:
        unreadable = finding(Code.RECLAIM_TIME_UNREADABLE, place=candidate.label, key=DUE, text=notice.text)
        return replace(decision, step=Step.NOTIFY, findings=(*decision.findings, unreadable))
    return replace(decision, step=Step.WAIT if notice.due > now else Step.SHELVE, due=notice.due)


def _within(decisions: Iterable[Decision], space: int | None) -> Iterable[Decision]:
    """Refuse the instances whose snapshots, after those before them, exceed the space."""
    used = 0
    for decision in decisions:
        size = decision.snapshot or 0 if decision.step is Step.SHELVE else 0
        if space is not None and used + size > space:
            problem = (
                f"its snapshot takes up to {size} GiB, and those of instances that are idle for longer take"
                f" {used} of the {space} GiB of --snapshot-space"
            )
            label = Candidate(server=decision.server).label
            exceeds = finding(Code.RECLAIM_NO_SPACE, place=label, problem=problem)
            yield replace(decision, step=Step.NOTHING, findings=(*decision.findings, exceeds))
            continue
        used += size
        yield decision


def _unrecorded(candidate: Candidate) -> Iterator[Finding]:
    """Marks that only the metadata have: the project wrote them, and they have no effect."""
    for mark in candidate.marks:
        if not mark.recorded:
            yield finding(Code.MARK_OF_PROJECT, place=candidate.label, key=mark.kind.value, host=mark.host)


def refusals(candidate: Candidate, idle: Idle, rules: Rules) -> Iterator[Finding]:
    """Yield every reason against shelving an idle instance; only the first if its project has not opted in."""
    server, place = candidate.server, candidate.label
    if server.project not in rules.projects:
        yield finding(Code.RECLAIM_NOT_PERMITTED, place=place, project=server.project, reason=idle.reason)
        return
    if server.locked:
        yield finding(Code.RECLAIM_LOCKED, place=place)
    busy = [
        *([f"task {server.task}"] if server.task else []),
        *([server.status] if server.status in _BUSY else []),
        *([f"migration {candidate.migration}"] if candidate.migration else []),
        *(f"a reboot of {mark.host} by gpustack" for mark in candidate.marks if mark.since is Since.OURS),
    ]
    if busy:
        yield finding(Code.RECLAIM_BUSY, place=place, work=", ".join(busy))
    else:
        yield from _unfit(candidate, idle, rules)
    if not candidate.host_up:
        yield finding(Code.RECLAIM_HOST_DOWN, place=place, host=server.host)
    if candidate.no_return:
        yield finding(Code.RECLAIM_NO_RETURN, place=place, problem=candidate.no_return)
    if candidate.unknown:
        yield finding(Code.RECLAIM_ALLOCATIONS_DIFFER, place=place, problem=candidate.unknown, host=server.host)
    for problem in candidate.surplus:
        text = f"{problem.code}: {problem.message}"
        yield finding(Code.RECLAIM_ALLOCATIONS_DIFFER, place=place, problem=text, host=server.host)
    if server.disks.lost and not rules.accept_loss:
        yield finding(Code.RECLAIM_LOSES_DISKS, place=place, disks=" and ".join(server.disks.lost))
    yield from _snapshot(candidate, rules)


def _unfit(candidate: Candidate, idle: Idle, rules: Rules) -> Iterator[Finding]:
    """States in which Nova can't shelve, or in which the spec does not permit it."""
    if (status := candidate.server.status) == "SHELVED":
        problem = "it is SHELVED, and Nova keeps it on its host with its GPUs ([DEFAULT] shelved_offload_time)"
        remedy = f"run `openstack server shelve --offload {quoted(candidate.server.id)}`"
    elif status not in ("SHUTOFF", *_IN_MEMORY):
        problem = f"it is {status}; Nova shelves ACTIVE, SHUTOFF, PAUSED and SUSPENDED instances only"
        remedy = "ask its user, or repair the instance"
    elif status in _IN_MEMORY and not idle.stopped and not rules.running:
        problem = f"it has expired and is {status}, and `reclaim.running` of the spec does not permit to shut it down"
        remedy = "ask its user to stop it, or set `running: true`"
    else:
        return
    yield finding(Code.RECLAIM_STATE_UNFIT, place=candidate.label, problem=problem, action=remedy)


def snapshot(candidate: Candidate) -> int | None:
    """The most GiB that the snapshot of an instance takes; 0 without a snapshot, None if unknown."""
    disks = candidate.server.disks
    return 0 if not disks.image else disks.root or None


def _snapshot(candidate: Candidate, rules: Rules) -> Iterator[Finding]:
    size, problem = snapshot(candidate), ""
    if size is None:
        problem = "its flavor has no size of the root disk, so the size of its snapshot is unknown"
    elif size and rules.space is None:
        problem = f"its snapshot takes up to {size} GiB, and Glance does not show its free space"
    elif size and rules.space is not None and size > rules.space:
        problem = f"its snapshot takes up to {size} GiB, and --snapshot-space has {rules.space} GiB"
    if problem:
        yield finding(Code.RECLAIM_NO_SPACE, place=candidate.label, problem=problem)
