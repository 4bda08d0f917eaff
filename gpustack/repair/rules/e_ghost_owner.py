"""Class E: the owner does not exist any more.

Causes: an instance deleted while its host was down, archived instances, restored databases. An instance deleted
directly in the database may leave a migration in ``error``, which pins the device as in class B.
"""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, doubts, pinning
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "E"
TITLE = "held by an instance that does not exist"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on live, taken rows whose owner is deleted or in no cell."""
    for row, owner in view.displaced:
        if owner.alive or doubts(owner):
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        if case.up and (pins := pinning(view, owner)):
            why = "no cell has a live instance with this uuid, and only its migration in error holds the device"
            yield case.judged(Status.STALE, why, repair=Repair.FAIL_MIGRATION, migrations=pins)
        elif case.up:
            yield case.judged(Status.HEALS, "nova-compute is up, and frees the row in its next periodic (60 seconds)")
        else:
            why = "no cell has a live instance with this uuid, and no nova-compute runs here that would free the row"
            yield case.judged(Status.STALE, why, repair=Repair.FREE)
