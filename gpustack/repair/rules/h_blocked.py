"""Class H: a function that is blocked although its relatives are free.

A physical function is unavailable while a virtual one is taken, and vice versa (``nova/objects/pci_device.py``,
``claim``, ``allocate``, ``free``). After a fault or a redeployment the status can stay (bug 1969496). Such rows are in
no pool, and no nova-compute corrects them. An operator who takes a faulty device out of service leaves the same rows,
so a function is unblocked only if ``--unblock`` names it, and never if the spec lists it in ``out_of_service``.
"""

from collections.abc import Iterator

from gpustack.base.text import quoted
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, in_flight, owner_of
from gpustack.repair.verdict import Repair, Status, Verdict
from gpustack.spec.out_of_service import entry_of

CLASS = "H"
TITLE = "blocked, though nothing blocks it"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on unavailable and unclaimable rows without a taken parent or child."""
    for row in view.odd:
        if not row.live or row.status not in ("unavailable", "unclaimable"):
            continue
        relatives = view.relatives(row)
        if any(relative.taken for relative in relatives):
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        if moving := [reason for relative in relatives for reason in in_flight(owner_of(view, relative))]:
            yield case.judged(Status.PROTECTED, "; ".join(moving))
        elif reason := _out_of_service(view, row, clock):
            yield case.judged(Status.PROTECTED, f"out of service: {reason}")
        elif row.instance_uuid is not None:
            yield case.judged(Status.REPORT, "the row is blocked and names an owner: its meaning is not certain")
        elif (view.node.host or "", row.address.lower()) not in clock.unblock:
            yield case.judged(
                Status.REPORT,
                "no relative of the function is taken; perhaps an operator took it out of service",
                advice="if nobody did, make it available: gpustack cleanup apply "
                f"--unblock {quoted(f'{view.node.host}/{row.address}')} --stopped {quoted(view.node.host)}",
            )
        else:
            why = "no relative of the function is taken, and the operator wants the function back (--unblock)"
            yield case.judged(Status.STALE, why, repair=Repair.UNBLOCK, stop=True)


def _out_of_service(view: NodeView, row: PciRow, clock: Clock) -> str:
    """Return the reason that the spec has for the function or its card; empty without one."""
    names = {name for name in (view.node.host, view.node.hypervisor_hostname) if name}
    addresses = (row.address.lower(), (row.parent_addr or "").lower())
    entries = (entry_of(clock.out_of_service_by_machine, names, address) for address in addresses)
    return next((entry.why for entry in entries if entry), "")
