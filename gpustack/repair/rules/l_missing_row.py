"""Class L: an instance has fewer devices in the database than it requests; report only.

A device that it uses may be available by its row, and be given to a second instance.
"""

from collections.abc import Iterator

from gpustack.base.text import counted
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import Clock, NodeView, Owner
from gpustack.repair.evidence import about, belongings, in_flight, lacking, node_words, owner_words
from gpustack.repair.verdict import Status, Verdict, words

CLASS = "L"
TITLE = "in use, perhaps, and offered as free"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on instances on this node with fewer rows than they request."""
    for owner in lacking(view):
        uuid, held = owner.uuid, view.held.get(owner.uuid, ())
        moving = in_flight(owner)
        recent = owner.instance is not None and clock.recent(owner.instance.updated_at)
        if recent:
            moving.append("the instance was written within the grace time")
        yield Verdict(
            **about(CLASS, TITLE, view, clock),
            status=Status.PROTECTED if moving else Status.UNDECIDED if owner.requests is None else Status.REPORT,
            owner=uuid,
            evidence=(owner_words(owner), node_words(view, clock), *(words(row) for row in held)),
            because="; ".join(moving) or _because(owner, held),
            advice=""
            if moving
            else "disable nova-compute on this host for scheduling, look at the instance's domain, "
            "then cold-migrate the instance",
        )


def _because(owner: Owner, held: tuple[PciRow, ...]) -> str:
    if (owned := belongings(owner, held)) is None:
        return f"the PCI requests of instance {owner.uuid} can't be read, and it has no device: one may be in use"
    verb = "has" if owned.missing == 1 else "have"
    others = f"; {counted(len(owned.beyond), 'row')} of it beyond its requests" if owned.beyond else ""
    return (
        f"the instance asks for {counted(owner.wanted, 'device')}, and {owned.missing} of them {verb} no row{others}: "
        "a device in use may go to another instance"
    )
