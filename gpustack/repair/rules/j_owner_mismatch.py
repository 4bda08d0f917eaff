"""Class J: a taken row without an owner, or a free one with an owner; usually the result of manual edits."""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, lacks, renamed
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "J"
TITLE = "status and owner contradict one another"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on live rows that are taken without owner, or available with one."""
    for row in view.odd:
        known = row.status in ("available", "claimed", "allocated")
        if row.live and known and row.taken != bool(row.instance_uuid):
            case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
            yield case.held_back() or _decision(case)


def _decision(case: Case) -> Verdict:
    if case.owner is None:
        because = "nobody owns the device; nova-compute frees it when it starts"
        if case.up:
            return case.verdict(Status.STALE, because, repair=Repair.RESTART)
        return case.verdict(Status.HEALS, f"{because} again", starts=True)
    if renamed(case.view, case.owner) and lacks(case.view, case.owner):
        why = "the owner is on this node and lacks a device: it may be using this one"
        return case.verdict(Status.REPORT, why, advice="look at the instance's domain; see class L")
    why = "the device is free, and the owner that the row names does not lack one"
    return case.verdict(Status.STALE, why, repair=Repair.CLEAR_OWNER, stop=True)
