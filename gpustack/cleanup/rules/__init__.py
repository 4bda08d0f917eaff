"""One module a class. A new class is a module with ``CLASS``, ``TITLE`` and ``judge``, named in :data:`RULES`.

``judge`` gets one compute node with everything around it and yields verdicts. The rules are asked in the order of
:data:`RULES`; a row belongs to the first class that has a word on it, so the classes that must be careful come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from gpustack.cleanup.facts import Clock, NodeView
from gpustack.cleanup.rules import (
    a_moved,
    b_pinned,
    c_orphan_node,
    d_soft_deleted,
    e_ghost,
    f_surplus,
    g_stuck_claim,
    h_blocked,
    i_parent_not_blocked,
    j_owner_mismatch,
    k_tombstone,
    l_missing,
    m_multi_host,
    n_node_mismatch,
    o_hardware_drift,
    p_pool_drift,
    r_periodic_blocked,
)
from gpustack.cleanup.rules._restart import careful
from gpustack.cleanup.verdict import Verdict

RULES: tuple[ModuleType, ...] = (
    c_orphan_node,
    d_soft_deleted,
    k_tombstone,
    n_node_mismatch,
    b_pinned,
    r_periodic_blocked,
    e_ghost,
    g_stuck_claim,
    a_moved,
    m_multi_host,
    f_surplus,
    j_owner_mismatch,
    h_blocked,
    i_parent_not_blocked,
    o_hardware_drift,
    l_missing,
    p_pool_drift,
)


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Every verdict on one compute node; a row is spoken of once."""
    spoken: set[int] = set()
    for rule in RULES:
        for verdict in rule.judge(view, clock):
            ids = {row.id for row in verdict.rows}
            if not ids & spoken:
                spoken |= ids
                yield careful(verdict, view, clock)
