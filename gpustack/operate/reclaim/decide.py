"""Compare candidates with the rules: which instances get a notice, are shelved, or are left alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.operate.reclaim.idle import Idle, idle
from gpustack.operate.reclaim.model import Candidate, Choices, Decision, Rules, Step
from gpustack.operate.reclaim.notice import DUE, Notice, counts, notice_of
from gpustack.operate.reclaim.refusals import refusals, snapshot


def decide(candidates: Iterable[Candidate], rules: Rules, choices: Choices, now: datetime) -> tuple[Decision, ...]:
    """Return the decisions on the candidates that need one, longest idle first."""
    decisions = [decision for entry in candidates if (decision := judge(entry, rules, choices, now))]
    order = sorted(decisions, key=lambda entry: (entry.since or now, entry.server.id))
    return tuple(_within(order, choices.space))


def judge(candidate: Candidate, rules: Rules, choices: Choices, now: datetime) -> Decision | None:
    """Decide on one instance; None if it is not idle and has no notice.

    :param now: the current time, naive UTC.
    """
    server = candidate.server
    gpus = sum(count for alias, count in server.devices.items() if alias in rules.aliases)
    if not gpus or not server.placed:
        return None
    reason, findings = idle(candidate, rules, now)
    notice = notice_of(server.metadata)
    if reason is None:
        if not (notice or findings):
            return None
        step = Step.WITHDRAW if notice and not findings and _writable(candidate) else Step.NOTHING
        return Decision(server=server, gpus=gpus, step=step, findings=findings)
    against = tuple(refusals(candidate, reason, rules, choices))
    decision = Decision(
        server=server,
        gpus=gpus,
        step=Step.NOTHING,
        reason=reason.reason,
        since=reason.since,
        snapshot=snapshot(candidate),
        findings=findings + against,
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
        size = decision.snapshot or 0
        if decision.step is Step.SHELVE and size and used + size > (space or 0):
            yield replace(decision, step=Step.NOTHING, findings=(*decision.findings, _exceeds(decision, used, space)))
            continue
        used += size if decision.step is Step.SHELVE else 0
        yield decision


def _exceeds(decision: Decision, used: int, space: int | None) -> Finding:
    server = decision.server
    problem = (
        f"its snapshot takes up to {decision.snapshot} GiB, and those of instances that are idle for longer take"
        f" {used} of the {space} GiB of --snapshot-space"
    )
    place = f"{server.host} {server.name} ({server.id})".strip()
    return finding(Code.RECLAIM_NO_SPACE, place=place, problem=problem)
