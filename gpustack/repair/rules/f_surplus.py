"""Class F: an instance holds more devices of its host than it requests.

Causes: a nova-compute that died between claim and allocation, or over-allocation (bugs 2098496, 1860555). The request
id identifies the surplus rows: since Zed (commit ccab6fed46) a row carries the id of the request for which it was
claimed, and every move creates new ids.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, belongings, surplus
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "F"
TITLE = "more devices than the instance asks for"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on allocated rows of instances on this node beyond what they request."""
    for uuid, rows in view.held.items():
        owner = view.owners[uuid]
        allocated = tuple(row for row in rows if row.status == "allocated")
        owned = belongings(owner, allocated)
        if not allocated or not owner.on(view.node) or (owned is not None and not owned.beyond):
            continue
        beyond = surplus(owner, allocated) if view.has_request_ids else None
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=beyond or allocated)
        if owner.requests is None:
            yield case.judged(Status.UNDECIDED, f"the PCI requests of instance {uuid} can't be read")
        elif not beyond:
            yield case.judged(
                Status.REPORT,
                f"{len(allocated)} are allocated, {owner.wanted} requested, and the rows do not match the requests",
                advice="compare with the hostdevs of the instance's domain; cold-migrate it, which makes new claims",
            )
        else:
            why = "the row's request is not one of the instance's, which has all the devices that it asks for"
            yield case.judged(Status.STALE, why, repair=Repair.FREE, stop=True)
