"""Class M: one instance holds devices of several compute nodes and is placed on none of them.

If it is placed on one of them, the rows of the others are in class A or B.
"""

from collections.abc import Iterator

from gpustack.novadb.clock import Clock
from gpustack.novadb.view import NodeView
from gpustack.repair.verdict import Verdict

CLASS = "M"
TITLE = "devices of several hosts"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield nothing: classes A, B and C report these rows, with the rows on other nodes as evidence."""
    yield from ()
