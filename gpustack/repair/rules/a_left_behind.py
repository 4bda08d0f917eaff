"""Class A: the instance is on another host, and the host that would free the row is down.

The cause is an evacuation whose source never came back. Until the row is freed, the instance holds devices of two
hosts. Since Zed it then cannot be started (``nova/objects/instance.py``, ``get_pci_devices``); earlier, its domain gets
both.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, left_behind
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "A"
TITLE = "left behind by an instance that lives elsewhere"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on rows whose owner is placed elsewhere."""
    for row, _owner in left_behind(view):
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        if case.up:
            yield case.judged(Status.HEALS, "nova-compute is up, and frees the row in its next periodic (60 seconds)")
        else:
            why = "the instance is elsewhere, nothing moves it, and no nova-compute runs here that would free the row"
            yield case.judged(Status.STALE, why, repair=Repair.FREE)
