"""Class K: a device whose removal was written only in part (bug 2115729)."""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "K"
TITLE = "removed, but not deleted"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on live rows in status removed or deleted."""
    for row in view.odd:
        if not row.live or row.status not in ("removed", "deleted"):
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        if row.instance_uuid is not None:
            yield case.judged(Status.REPORT, "the row was being removed and names an owner: a person must look")
        elif case.up:
            why = "nova-compute soft-deletes the row when it starts; a device still there returns at the next start"
            yield case.judged(Status.STALE, why, repair=Repair.RESTART)
        else:
            yield case.judged(Status.HEALS, "nova-compute soft-deletes the row when it starts again", starts=True)
