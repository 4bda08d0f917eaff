"""Class U: a status that Nova does not have, or an owner in a spelling that Nova does not write.

Nova refuses to load a row with such a status (``nova/objects/fields.py``, ``PciDeviceStatus``): the nova-compute of
that host fails at its next start. Nova compares uuids including case. A starting nova-compute finds no instance whose
uuid is written in capitals, and frees the device even if it is in use.
"""

from collections.abc import Iterator

from gpustack.novadb.model import STATUSES
from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, misread
from gpustack.repair.verdict import Status, Verdict

CLASS = "U"
TITLE = "written in a way that Nova does not know"

_ADVICE = (
    "do not restart nova-compute on this host before the row is right; look which domain uses the device (virsh "
    "dumpxml), stop nova-compute, write status and owner as they are on the other rows of this host, and start it if "
    "no other instance of this host lacks a device (class L)"
)


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on live rows with a value that Nova never writes."""
    for row in misread(view):
        reasons = []
        if row.status not in STATUSES:
            reasons.append(f"Nova has no status {row.status!r}: nova-compute of this host can't load its rows")
        if row.id in view.written:
            reasons.append(
                f"the owner is written {view.written[row.id]}: a nova-compute that starts finds no such instance, and "
                "frees the device"
            )
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        yield case.verdict(Status.REPORT, "; ".join(reasons), advice=_ADVICE)
