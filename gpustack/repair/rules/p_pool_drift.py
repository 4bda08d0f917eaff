"""Class P: the pools that the scheduler uses differ from the free rows.

``compute_nodes.pci_stats`` holds the free devices by vendor, product and type. nova-compute rebuilds it when it starts;
gpustack never edits it.
"""

from collections import Counter
from collections.abc import Iterator

from gpustack.novadb.model import DAMAGE, parsed
from gpustack.novadb.model import count as amount
from gpustack.novadb.view import Clock, HostState, NodeView
from gpustack.repair.evidence import about, in_flight, node_words
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "P"
TITLE = "the scheduler's pools differ from the free rows"

Pool = tuple[str, str, str]


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield a verdict on a node that is up and whose pools differ from its free rows."""
    if view.host_state(clock) is not HostState.UP or not view.rows:
        return
    free = Counter(
        (row.vendor_id, row.product_id, row.dev_type)
        for row in view.rows
        if row.status == "available" and row.deleted == 0
    )
    try:
        offered = pools(view.node.pci_stats)
    except DAMAGE:
        yield _unread(view, clock)
        return
    if offered == free or (offered is None and not view.by_address):
        return
    # Nova writes the row before the pools: a difference within the grace time proves nothing.
    moving = [reason for owner in view.owners.values() for reason in in_flight(owner)]
    if clock.recent(view.node.updated_at) or any(clock.recent(row.changed_at) for row in view.rows if row.live):
        moving.append("rows or pools were written within the grace time")
    reported = "not written at all" if offered is None else _words(offered)
    yield Verdict(
        **about(CLASS, TITLE, view, clock),
        status=Status.PROTECTED if moving else Status.STALE,
        evidence=(f"the pools are {reported}", f"the free rows are {_words(free)}", node_words(view, clock)),
        because="; ".join(moving) or "nova-compute makes the pools from its rows when it starts",
        repair=None if moving else Repair.RESTART,
    )


def _unread(view: NodeView, clock: Clock) -> Verdict:
    return Verdict(
        **about(CLASS, TITLE, view, clock),
        status=Status.UNDECIDED,
        evidence=(f"pci_stats begins {(view.node.pci_stats or '')[:60]!r}", node_words(view, clock)),
        because="the pools of this compute node can't be read: Nova's scheduler and its nova-compute may fail",
        advice="while nova-compute is stopped, set pci_stats of this row of compute_nodes to NULL, and start it "
        "if no instance of this host lacks a device (class L)",
    )


def pools(text: str | None) -> Counter[Pool] | None:
    """Parse ``pci_stats`` (``nova/objects/pci_device_pool.py``); None if there are no pools.

    :raises ValueError: or another exception of :data:`DAMAGE`, if it is unreadable.
    """
    if not text:
        return None
    counts: Counter[Pool] = Counter()
    for pool in (entry["nova_object.data"] for entry in parsed(text)["nova_object.data"]["objects"]):
        key = (pool["vendor_id"], pool["product_id"], (pool.get("tags") or {}).get("dev_type", "type-PCI"))
        counts[key] += amount(pool["count"])
    return +counts


def _words(counts: Counter[Pool]) -> str:
    counted = [f"{count} of {vendor}:{product} {kind}" for (vendor, product, kind), count in sorted(counts.items())]
    return ", ".join(counted) or "none"
