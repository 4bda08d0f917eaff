"""Remove one allocation in Placement, and restore it.

Each write carries the consumer generation that was read, so Placement refuses it (409) if the consumer changed
meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpustack.cleanup import permission as asking
from gpustack.cleanup import placement
from gpustack.cleanup.hypervisor import Ask
from gpustack.cleanup.journal import Journal, JournalEntry
from gpustack.cleanup.outcome import Outcome, Result, key, stub
from gpustack.cleanup.plan import Selection, Sources, leftovers_of
from gpustack.cleanup.verdict import PlannedVerdict, Status, Verdict

if TYPE_CHECKING:
    from openstack.connection import Connection

    from gpustack.cleanup.cells import Cell


def unset(
    sources: Sources,
    cell: Cell,
    wanted: PlannedVerdict,
    selection: Selection,
    journal: Journal,
    ask: Ask,
    cloud: Connection | None,
) -> Outcome:
    """Remove the allocation of a planned verdict, if it is still stale.

    :raises CloudError: if Placement cannot be reached or refuses. The removal is then either done or not done.
    """
    if cloud is None:
        detail = "Placement is not named: add --os-cloud"
        return Outcome(verdict=stub(wanted), result=Result.SKIPPED, detail=detail)
    held = wanted["allocation"]
    if held is None:
        return Outcome(verdict=stub(wanted), result=Result.SKIPPED, detail="the plan names no allocation")
    consumer, provider = held["consumer"], held["provider"]
    # Read before the new verdict: a later change of the consumer also changes its generation.
    before = placement.allocations_of(cloud, consumer)
    if provider not in before["allocations"]:
        return Outcome(verdict=stub(wanted), result=Result.GONE, detail="nothing is wrong any more")
    verdict, change = _judged(sources, cell, wanted, selection, cloud)
    if verdict is None:
        return Outcome(verdict=stub(wanted), result=Result.SKIPPED, detail=f"changed since the plan; {change}")
    usages = asking.answers(verdict, ask, selection.gone)
    settled = asking.settle(verdict, usages)
    if settled.status is not Status.STALE:
        result = Result.UNDECIDED if settled.status is Status.UNDECIDED else Result.SKIPPED
        return Outcome(verdict=settled, result=result, detail=f"{settled.because}; {settled.advice}")
    # The questions took time: Nova's tables must still have what the verdict depends on.
    again, change = _judged(sources, cell, wanted, selection, cloud)
    if again is None:
        detail = f"changed while the hosts were asked; {change}"
        return Outcome(verdict=stub(wanted), result=Result.SKIPPED, detail=detail)
    witness = "; ".join(asking.witnesses(verdict, usages))
    remaining = {uuid: allocation for uuid, allocation in before["allocations"].items() if uuid != provider}
    kind = {"consumer": consumer, "provider": provider, "before": before}
    number = journal.begin(cell.name, str(cell.uuid), verdict.to_dict(), (), (), kind, witness)
    if not placement.put(cloud, consumer, before, remaining):
        journal.end(number, "skipped", "changed meanwhile")
        detail = "the consumer changed meanwhile; nothing was written"
        return Outcome(verdict=verdict, result=Result.SKIPPED, detail=detail)
    journal.end(number, "done")
    return Outcome(verdict=verdict, result=Result.REPAIRED, detail=f"the allocation was removed; {witness}")


def _judged(
    sources: Sources, cell: Cell, wanted: PlannedVerdict, selection: Selection, cloud: Connection
) -> tuple[Verdict | None, str]:
    """Return the planned verdict as it is judged now, if it is still stale; else None, and what has changed."""
    hosts = frozenset({wanted["host"]})
    leftovers = leftovers_of(sources, cell, replace(selection, hosts=hosts, instance=None, classes=frozenset()), cloud)
    verdict = next((leftover for leftover in leftovers if key(leftover.to_dict()) == key(wanted)), None)
    if verdict is not None and verdict.status is Status.STALE:
        return verdict, ""
    same_allocation = (
        leftover
        for leftover in leftovers
        if leftover.allocation and leftover.allocation.to_dict() == wanted["allocation"]
    )
    return None, next(
        (f"now it is {leftover.status}: {leftover.because}" for leftover in same_allocation), "it is in order now"
    )


def put_back(cloud: Connection, entry: JournalEntry) -> tuple[bool | None, str]:
    """Restore the allocation that a journal entry records, if nothing has changed the consumer since.

    :return: True if it was restored, None if it was never removed, False if the consumer or the device changed.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    known = entry.allocation or {}
    consumer, provider, before = known["consumer"], known["provider"], known["before"]
    current = placement.allocations_of(cloud, consumer)
    if _resources(current).get(provider) == _resources(before)[provider]:
        return None, "the allocation is as it was before the repair"
    others = {uuid: resources for uuid, resources in _resources(before).items() if uuid != provider}
    generation = before["consumer_generation"] + 1 if others else None
    if _resources(current) != others or current.get("consumer_generation") != generation:
        return False, f"consumer {consumer} has changed since; nothing was restored"
    like = {**before, "consumer_generation": generation}
    restored = {**current["allocations"], provider: before["allocations"][provider]}
    if not placement.put(cloud, consumer, like, restored):
        return False, "the device is allocated to another by now, or reserved; nothing was restored"
    return True, "the allocation is as it was before the repair"


def _resources(answer: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    return {uuid: allocation["resources"] for uuid, allocation in answer["allocations"].items()}
