"""Decide from counts whether a compute node is healthy, so that no rule runs on it: nearly all are.

Healthy means that no class of :data:`gpustack.repair.rules.RULES` has a verdict, except class O, which needs the facts
of the host. Anything unusual, also if it is harmless, is left to the rules.
"""

from collections import Counter

from gpustack.novadb.counts import NodeCounts
from gpustack.novadb.requests import parse_requests
from gpustack.novadb.values import DAMAGE
from gpustack.repair.rules.p_pool_drift import Pool, pools


def healthy(node: NodeCounts) -> bool:
    """Whether all rows are live, and available or allocated as instances on this compute node request them.

    Related functions must all be available, and the scheduler's pools must match the available rows.
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
    requests = parse_requests(text).requests
    if requests is None:
        return None
    match requests:
        case [request]:
            return {request.request_id or None: request.count} if request.count else {}
    requested: Counter[str | None] = Counter()
    for request in requests:
        requested[request.request_id or None] += request.count
    return dict(+requested)
