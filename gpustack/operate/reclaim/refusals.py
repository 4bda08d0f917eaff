"""What forbids to shelve an idle instance, each as a finding with a remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.operate.reclaim.idle import Idle
from gpustack.operate.reclaim.model import Candidate, Choices, Rules
from gpustack.prepare.drain.metadata import MOVED, STOPPED

_BUSY = ("VERIFY_RESIZE", "RESIZE", "REVERT_RESIZE", "MIGRATING", "REBUILD", "BUILD", "REBOOT", "HARD_REBOOT")
_IN_MEMORY = ("ACTIVE", "PAUSED", "SUSPENDED")


def refusals(candidate: Candidate, idle: Idle, rules: Rules, choices: Choices) -> Iterator[Finding]:
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
        *(f"a reboot of {server.metadata[key]} by gpustack" for key in (STOPPED, MOVED) if key in server.metadata),
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
    if server.disks.lost and not choices.accept_loss:
        yield finding(Code.RECLAIM_LOSES_DISKS, place=place, disks=" and ".join(server.disks.lost))
    yield from _snapshot(candidate, choices)


def _unfit(candidate: Candidate, idle: Idle, rules: Rules) -> Iterator[Finding]:
    """States in which Nova can't shelve, or in which the spec does not permit it."""
    status = candidate.server.status
    if status == "SHELVED":
        problem = "it is SHELVED, and Nova keeps it on its host with its GPUs ([DEFAULT] shelved_offload_time)"
        remedy = f"run `openstack server shelve --offload {candidate.server.id}`"
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


def _snapshot(candidate: Candidate, choices: Choices) -> Iterator[Finding]:
    size, problem = snapshot(candidate), ""
    if size is None:
        problem = "its flavor has no size of the root disk, so the size of its snapshot is unknown"
    elif size and choices.space is None:
        problem = f"its snapshot takes up to {size} GiB, and Glance does not show its free space"
    elif size and choices.space is not None and size > choices.space:
        problem = f"its snapshot takes up to {size} GiB, and --snapshot-space has {choices.space} GiB"
    if problem:
        yield finding(Code.RECLAIM_NO_SPACE, place=candidate.label, problem=problem)
