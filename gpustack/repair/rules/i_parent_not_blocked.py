"""Class I: a physical function is available while one of its virtual functions is taken (bugs 1565785, 1567549)."""

from collections.abc import Iterator

from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, in_flight, owner_of
from gpustack.repair.verdict import Repair, Status, Verdict

CLASS = "I"
TITLE = "offered, though a virtual function of it is taken"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on available physical functions with a taken child."""
    for address, children in view.children.items():
        parent = view.by_address.get(address)
        taken = [child for child in children if child.taken]
        if parent is None or parent.status != "available" or not taken:
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(parent,))
        moving = [reason for child in taken for reason in in_flight(owner_of(view, child))]
        if moving or any(clock.recent(child.changed_at) for child in taken):
            yield case.judged(
                Status.PROTECTED, "; ".join(moving) or "a virtual function was written within the grace time"
            )
        else:
            why = f"virtual function {taken[0].address} is taken: the physical function must not go to another guest"
            yield case.judged(Status.STALE, why, repair=Repair.BLOCK_PARENT, stop=True)
