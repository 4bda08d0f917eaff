"""Class N: the instance is on this host, and the compute node's name differs from the instance's node.

The cause is a hypervisor hostname that changed between short and full name. 2023.1 and later then refuse to start.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, left_behind, renamed
from gpustack.repair.verdict import Status, Verdict

CLASS = "N"
TITLE = "on this host, under another name of its node"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on rows whose owner is on the same host under another name of the host or node."""
    for row, owner in left_behind(view):
        if not renamed(view, owner):
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        yield case.judged(
            Status.REPORT,
            "the instance is on this host and may be using the device: only the name of the node differs",
            advice="give the host its old hypervisor_hostname back, or cold-migrate the instance away",
        )
