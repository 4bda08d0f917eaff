"""The classes of stale rows, one module each.

A module is a :class:`NodeRule` in :data:`RULES` or :data:`OF_DELETED_NODES`, a :class:`CellRule` in :data:`WITNESSED`,
or only a :class:`Rule`. The rules are evaluated in this order. A row belongs to the first class that reports it, so
cautious classes come first. The module's name consists of the letter and the name of its class. A new class also needs
a case in ``tests/unit/repair/cases``, an entry in ``tests/unit/repair/classes.yaml`` and a page in ``docs/runbook``;
``test_classes.py`` lists what is missing.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpustack.base.by_key import sums
from gpustack.novadb.counts import NodeCounts
from gpustack.novadb.model import DAMAGE
from gpustack.novadb.requests import parse_requests
from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import about
from gpustack.repair.questions import prepared
from gpustack.repair.rules import (
    a_left_behind,
    b_migration_pinned,
    c_orphan_node,
    d_soft_deleted,
    e_ghost_owner,
    f_surplus,
    g_stuck_claim,
    h_blocked,
    i_parent_not_blocked,
    j_owner_mismatch,
    k_tombstone,
    l_missing_row,
    m_multi_host,
    n_node_mismatch,
    o_hardware_drift,
    p_pool_drift,
    q_allocation_drift,
    r_periodic_blocked,
    s_phantom_allocation,
    t_domain_drift,
    u_unknown_value,
)
from gpustack.repair.rules._rule import CellRule, NodeRule, Rule
from gpustack.repair.rules._stuck import stuck
from gpustack.repair.rules._times import timely
from gpustack.repair.rules.p_pool_drift import Pool, pools
from gpustack.repair.verdict import Status, Verdict

OF_DELETED_NODES: tuple[NodeRule, ...] = (u_unknown_value, c_orphan_node, d_soft_deleted)
RULES: tuple[NodeRule, ...] = (
    u_unknown_value,
    d_soft_deleted,
    k_tombstone,
    n_node_mismatch,
    b_migration_pinned,
    r_periodic_blocked,
    e_ghost_owner,
    g_stuck_claim,
    a_left_behind,
    f_surplus,
    j_owner_mismatch,
    h_blocked,
    i_parent_not_blocked,
    o_hardware_drift,
    l_missing_row,
    p_pool_drift,
)
WITNESSED: tuple[CellRule[Any], ...] = (t_domain_drift, q_allocation_drift)
ALL: tuple[Rule, ...] = (*RULES, c_orphan_node, *WITNESSED, m_multi_host, s_phantom_allocation)
"""All classes: the rules of others yield the verdicts of the last two."""


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield all verdicts on one compute node, with the hosts to ask; one *undecided* verdict if it cannot be judged."""
    if view.unread:
        yield undecided(view, clock, view.unread)
        return
    try:
        yield from list(_judge(view, clock))
    except DAMAGE as error:
        yield undecided(view, clock, f"a value can't be judged: {type(error).__name__}: {error}")


def undecided(view: NodeView, clock: Clock, reason: str) -> Verdict:
    """Return the *undecided* verdict on a compute node with an unreadable value."""
    return Verdict(
        **about(u_unknown_value.CLASS, "not judged at all", view, clock),
        status=Status.UNDECIDED,
        evidence=(f"compute node {view.node.name} (id {view.node.id})",),
        because=reason,
        advice="look at the rows of this host in pci_devices, instances, instance_extra and migrations for values that "
        "Nova does not write, and set them right; every other host is judged",
    )


def _judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    spoken: set[int] = set()
    for rule in OF_DELETED_NODES if view.node.deleted else RULES:
        for verdict in rule.judge(view, clock):
            ids = {row.id for row in verdict.rows}
            if not ids & spoken:
                spoken |= ids
                timed = stuck(timely(verdict, view, clock), view, clock)
                yield prepared(stuck(prepared(timed, view, clock), view, clock), view, clock)


def healthy(node: NodeCounts) -> bool:
    """Whether no rule has a verdict on a compute node, by its counts alone: nearly all are healthy.

    All rows are live, and available or allocated as instances on it request them. Related functions must all be
    available, and the scheduler's pools must match the available rows. Anything unusual, also if it is harmless, is
    left to the rules, and so is class O, which needs the facts of the host.
    """
    free: Counter[Pool] = Counter()
    held: dict[str, dict[str | None, int]] = {}
    try:
        for row in node.rows:
            if row.status == "available" and row.instance_uuid is None and row.live:
                free[row.vendor_id, row.product_id, row.dev_type] += row.number
            elif row.status == "allocated" and row.instance_uuid in node.residents and row.live and not row.parent_addr:
                of_owner = held.setdefault(row.instance_uuid, {})
                of_owner[row.request_id or None] = of_owner.get(row.request_id or None, 0) + row.number
            else:
                return False
        for uuid, text in node.residents.items():
            if uuid != uuid.lower() or _requested(text) != held.get(uuid, {}):
                return False
        return not node.rows or pools(node.pci_stats) == free
    except DAMAGE:
        return False


def _requested(text: str | None) -> dict[str | None, int] | None:
    """Return the number of requested devices by request id; None if the requests are unreadable."""
    if (requests := parse_requests(text).requests) is None:
        return None
    match requests:
        case [request]:
            return {request.request_id or None: request.count} if request.count else {}
    return dict(+Counter(sums((request.request_id or None, request.count) for request in requests)))
