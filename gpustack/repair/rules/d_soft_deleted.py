"""Class D: a soft-deleted row that still names a live instance.

Nova loads an instance's devices with ``read_deleted='yes'`` (``nova/objects/instance.py``), so the row affects its
owner like a live one.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, doubts, lacks, owner_of, renamed
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "D"
TITLE = "soft-deleted, but still a device of its instance"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on soft-deleted rows in status allocated whose owner is alive."""
    for row in view.odd:
        if row.live:
            continue
        owner = owner_of(view, row)
        if row.status != "allocated" or owner is None or not (owner.alive or doubts(owner)):
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        if renamed(view, owner) and (view.node.deleted or lacks(view, owner)):
            yield case.judged(
                Status.REPORT,
                "the instance is on this host, where it may lack a device: the soft-deleted row may be the one it uses",
                advice="look at the instance's domain; see class L",
            )
        else:
            why = "Nova does not manage a soft-deleted row any more, and still takes it for a device of the instance"
            yield case.judged(Status.STALE, why, repair=Repair.CLEAR_DELETED)
