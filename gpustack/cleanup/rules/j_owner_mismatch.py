"""Class J: a taken row without an owner, or a free one with an owner; usually the result of manual edits."""

from __future__ import annotations

from collections.abc import Iterator

from gpustack.cleanup.clock import Clock
from gpustack.cleanup.evidence import lacks, owner_of
from gpustack.cleanup.judgement import Case
from gpustack.cleanup.rules._moved import maybe_here
from gpustack.cleanup.verdict import Repair, Status, Verdict
from gpustack.cleanup.view import NodeView

CLASS = "J"
TITLE = "status and owner contradict one another"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on live rows that are taken without owner, or available with one."""
    if view.node.deleted:
        return
    for row in view.odd:
        if (
            not row.live
            or row.taken == bool(row.instance_uuid)
            or row.status
            not in (
                "available",
                "claimed",
                "allocated",
            )
        ):
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        owner = owner_of(view, row)
        if held_back := case.held_back():
            yield held_back
        elif owner is None and case.up:
            yield case.verdict(
                Status.STALE, "nobody owns the device; nova-compute frees it when it starts", repair=Repair.RESTART
            )
        elif owner is None:
            yield case.verdict(
                Status.HEALS, "nobody owns the device; nova-compute frees it when it starts again", starts=True
            )
        elif maybe_here(view, owner) and lacks(view, owner):
            yield case.verdict(
                Status.REPORT,
                "the owner is on this node and lacks a device: it may be using this one",
                advice="look at the instance's domain; see class L",
            )
        else:
            yield case.verdict(
                Status.STALE,
                "the device is free, and the owner that the row names does not lack one",
                repair=Repair.CLEAR_OWNER,
                stop=True,
            )
