"""Class R: nova-compute is up and has not freed a row that its periodic task should have freed long ago.

Any exception in ``update_available_resource`` ends the task before the rows are saved
(``nova/compute/resource_tracker.py``); from then on nothing on the host is freed. Or a claim failed half-way, such as
that of a cross-cell resize. nova-compute then has lost the owner of the device from its memory, and frees it only when
it starts.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, left_behind, overdue, pinning, stale_since
from gpustack.repair.verdict import Status, Verdict

CLASS = "R"
TITLE = "the periodic of nova-compute does not free it"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on rows of a host that is up that should have been freed several grace times ago."""
    ghosts = [(row, owner) for row, owner in view.displaced if not owner.alive]
    for row, owner in [*left_behind(view), *ghosts]:
        written = stale_since(row, owner)
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        if case.up and overdue(written, clock) and not pinning(view, owner) and case.held_back() is None:
            yield case.verdict(
                Status.REPORT,
                "nova-compute is up and should have freed the row long ago: its periodic fails, or has forgotten it",
                advice='look for "Error updating resources for node" in the log of nova-compute, and fix that first',
                then="if there is none, restart nova-compute",
            )
