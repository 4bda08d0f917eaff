"""Class B: a migration in ``error`` pins the device.

Since Victoria, Nova counts devices of migrations in ``error`` as used, also after restarts (commit 255b3f2f91;
``nova/db/main/api.py``, ``migration_get_in_progress_and_error_by_host_and_node``). If the migration is set to
``failed``, a running nova-compute frees row, pool and Placement allocation.
"""

from collections.abc import Iterator

from gpustack.base.by_key import by_key
from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, left_behind, pinning
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "B"
TITLE = "pinned by a migration that ended in error"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on rows whose owner is elsewhere with a migration in error from or to this compute node."""
    for uuid, rows in by_key((owner.uuid, row) for row, owner in left_behind(view)).items():
        owner = view.owners[uuid]
        if not (pins := pinning(view, owner)):
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=tuple(rows))
        if owner.instance is not None and owner.instance.vm_state == "error":
            yield case.judged(
                Status.REPORT,
                "the instance is in error after the move: it is not certain which of its two sides is the good one",
                advice="decide which side survives, reset the instance's state or rebuild it there, then plan again",
            )
        elif case.up:
            why = "only the migration in error holds the device; set to failed, nova-compute frees it by itself"
            yield case.judged(Status.STALE, why, repair=Repair.FAIL_MIGRATION, migrations=pins)
        else:
            why = "the instance is elsewhere, its move ended in error, and no nova-compute here would free the row"
            yield case.judged(Status.STALE, why, repair=Repair.FREE, migrations=pins)
