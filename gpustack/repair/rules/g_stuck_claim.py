"""Class G: a claim that nothing will complete.

The database has ``claimed`` only while a live migration is prepared or an interface is attached
(``nova/compute/resource_tracker.py``, ``claim_pci_devices``). A nova-compute that restarts allocates the claims of
instances on its host.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, owner_of, surplus
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "G"
TITLE = "claimed, and nothing will finish the claim"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on live rows in status claimed."""
    for row in view.taken:
        owner = owner_of(view, row)
        if row.status != "claimed" or owner is None:
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        if owner.on(view.node):
            beyond = surplus(owner, view.held[owner.uuid]) if view.has_request_ids else None
            if owner.requests is None:
                yield case.judged(Status.UNDECIDED, f"the PCI requests of instance {owner.uuid} can't be read")
            elif beyond and row in beyond:
                why = "the claim is for none of the instance's requests; a restart of nova-compute would allocate it"
                yield case.judged(Status.STALE, why, repair=Repair.FREE, stop=True)
            else:
                yield case.judged(
                    Status.REPORT,
                    "the instance is on this node, and the claim may be for a device that it asks for",
                    advice="compare with the hostdevs of the domain; nova-compute allocates the claim when it starts",
                )
        elif case.up:
            yield case.judged(Status.HEALS, "nova-compute is up, and frees the claim in its next periodic (60 seconds)")
        else:
            why = "the instance is elsewhere, nothing moves it, and no nova-compute runs here that would free the claim"
            yield case.judged(Status.STALE, why, repair=Repair.FREE)
