"""One module a class. A new class is a module with ``CLASS``, ``TITLE`` and ``judge``, named in :data:`RULES`.

``judge`` gets one compute node with everything around it and yields verdicts. The rules are asked in the order of
:data:`RULES`; a row belongs to the first class that has a word on it, so the classes that must be careful come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from gpustack.cleanup.judgement import place
from gpustack.cleanup.model import Clock, NodeView
from gpustack.cleanup.permission import prepared
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
    u_unknown_value,
)
from gpustack.cleanup.rules._stuck import stuck
from gpustack.cleanup.rules._times import timely
from gpustack.cleanup.values import DAMAGE
from gpustack.cleanup.verdict import Status, Verdict

RULES: tuple[ModuleType, ...] = (
    u_unknown_value,
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
    """Every verdict on one compute node, with the hosts to ask: *undecided* where it can't be judged."""
    if view.unread:
        yield undecided(view, clock, view.unread)
        return
    try:
        yield from list(_judge(view, clock))
    except DAMAGE as error:
        yield undecided(view, clock, f"a value can't be judged: {type(error).__name__}: {error}")


def undecided(view: NodeView, clock: Clock, reason: str) -> Verdict:
    """The verdict on a whole compute node where a value keeps it from being judged."""
    return Verdict(
        klass=u_unknown_value.CLASS,
        title="not judged at all",
        status=Status.UNDECIDED,
        **place(view, clock),
        rows=(),
        owner=None,
        evidence=(f"compute node {view.node.name} (id {view.node.id})",),
        because=reason,
        advice="look at the rows of this host in pci_devices, instances, instance_extra and migrations for values that "
        "Nova does not write, and set them right; every other host is judged",
    )


def _judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    spoken: set[int] = set()
    for rule in RULES:
        for verdict in rule.judge(view, clock):
            ids = {row.id for row in verdict.rows}
            if not ids & spoken:
                spoken |= ids
                timed = stuck(timely(verdict, view, clock), view, clock)
                yield prepared(stuck(prepared(timed, view, clock), view, clock), view, clock)
