"""Class C: rows of a deleted compute node.

Deletion of a compute service, or a host that returns under a new identity, soft-deletes the compute node and leaves its
rows in ``pci_devices`` (``nova/db/main/api.py``, ``compute_node_delete``). Taken rows still count as devices of their
instance, wherever it is.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, owner_of, renamed
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "C"
TITLE = "of a compute node that is deleted"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on the live rows of a deleted compute node."""
    for row in view.rows:
        if not row.live:
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        owner = owner_of(view, row)
        if owner is None and row.status in ("unavailable", "unclaimable"):
            # If the host returns as the same compute node, it creates an available row.
            yield case.judged(
                Status.REPORT,
                "the device is blocked, and an operator may have taken it out of service; no instance needs the row",
                advice="leave the row if the host may return; otherwise nova-manage db archive_deleted_rows removes it",
            )
        elif owner is not None and renamed(view, owner):
            # The host has returned under a new identity, and the instance may still use the device.
            yield case.judged(
                Status.REPORT,
                "the instance is still placed on this host: the row may be all that is known of a device in use",
                advice="look at the instance's domain on the host; cold-migrate it, then plan again",
            )
        else:
            free = "nobody owns the device" if owner is None else "its owner is not on this host"
            why = f"the compute node is deleted, so no nova-compute will ever touch the row again, and {free}"
            yield case.judged(Status.STALE, why, repair=Repair.RETIRE)
