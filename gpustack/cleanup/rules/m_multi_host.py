"""Class M: one instance holds devices of several compute nodes, and is placed on none of them.

Where it is placed on one of them, the rows of the others are of class A or B.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpustack.cleanup.clock import Clock
from gpustack.cleanup.verdict import Verdict
from gpustack.cleanup.view import NodeView

CLASS = "M"
TITLE = "devices of several hosts"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Nothing of its own: rows on other nodes are evidence of A, B and C, which tell of them."""
    yield from ()
