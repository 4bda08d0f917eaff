"""Remove one allocation in Placement, and restore it.

Each write carries the consumer generation that was read, so Placement refuses it (409) if the consumer changed
meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CloudError
from gpustack.cloud import placement
from gpustack.novadb.sources import Sources
from gpustack.repair import permission
from gpustack.repair.hypervisor import Ask
from gpustack.repair.journal import Journal, JournalEntry
from gpustack.repair.outcome import Outcome, Result, gone, key, refused, skipped
from gpustack.repair.plan import Selection, leftovers_of
from gpustack.repair.verdict import PlannedAllocation, PlannedVerdict, Status, Verdict

if TYPE_CHECKING:
    from openstack.connection import Connection

    from gpustack.novadb.cells import Cell


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

    :raises CloudError: if Placement cannot be reached before the removal.
    """
    if cloud is None:
        return skipped(wanted, "Placement is not named: add --os-cloud")
    held = wanted["allocation"]
    if held is None:
        return skipped(wanted, "the plan names no allocation")
    # Read before the new verdict: a later change of the consumer also changes its generation.
    before = placement.allocations_of(cloud, held["consumer"])
    if held["provider"] not in before["allocations"]:
        return gone(wanted)
    verdict, change = _judged(sources, cell, wanted, selection, cloud)
    if verdict is None:
        return skipped(wanted, f"changed since the plan; {change}")
    usages = permission.answers(verdict, ask, selection.gone)
    if refusal := refused(permission.settle(verdict, usages)):
        return refusal
    # The questions took time: Nova's tables must still have what the verdict depends on.
    again, change = _judged(sources, cell, wanted, selection, cloud)
    if again is None:
        return skipped(wanted, f"changed while the hosts were asked; {change}")
    return _removed(cell, verdict, held, before, journal, cloud, "; ".join(permission.witnesses(verdict, usages)))


def _removed(
    cell: Cell,
    verdict: Verdict,
    held: PlannedAllocation,
    before: Mapping[str, Any],
    journal: Journal,
    cloud: Connection,
    witness: str,
) -> Outcome:
    """Write the consumer's other allocations, with an entry in the journal."""
    consumer, provider = held["consumer"], held["provider"]
    remaining = {uuid: allocation for uuid, allocation in before["allocations"].items() if uuid != provider}
    kind = {"consumer": consumer, "provider": provider, "before": before}
    number = journal.begin(cell.name, str(cell.uuid), verdict.to_dict(), (), (), kind, witness)
    removed, how = _put(cloud, consumer, before, before, remaining)
    if removed is None:
        journal.end(number, "unknown", how)
        remedy = f"see what was removed with gpustack cleanup undo {quote(str(journal.path))} --check"
        lost = CloudError(f"whether repair {number} was carried out is not known: {how}", remedy=remedy)
        return Outcome(verdict=verdict, result=Result.UNKNOWN, detail=how, lost=lost)
    if not removed:
        journal.end(number, "skipped", how or "changed meanwhile")
        detail = f"{how or 'the consumer changed meanwhile'}; nothing was written"
        return Outcome(verdict=verdict, result=Result.FAILED if how else Result.SKIPPED, detail=detail)
    journal.end(number, "done", how)
    detail = "; ".join(filter(None, ("the allocation was removed", how, witness)))
    return Outcome(verdict=verdict, result=Result.REPAIRED, detail=detail)


# Seconds after which the outcome of a request whose answer was lost stays unknown, and for which a request that
# Placement still carries out may take.
PATIENCE, SETTLES = 60.0, 5.0


def _put(
    cloud: Connection, consumer: str, current: Mapping[str, Any], like: Mapping[str, Any], wanted: Mapping[str, Any]
) -> tuple[bool | None, str]:
    """Write the allocations of a consumer; if the answer is lost, read them back.

    :param current: the consumer before.
    :param like: what :func:`gpustack.cloud.placement.put` compares.
    :return: whether they are written, None if that is not known, and how that was determined if the answer was lost.
    """
    try:
        return placement.put(cloud, consumer, like, wanted), ""
    except CloudError as error:
        reason = f"Placement's answer was lost ({error.what})"
    started = time.monotonic()
    while True:
        waited = time.monotonic() - started
        try:
            now = _resources(placement.allocations_of(cloud, consumer))
        except CloudError as error:
            if waited >= PATIENCE:
                return None, f"{reason}, and the allocations could not be read back: {error.what}"
        else:
            if now == _resources({"allocations": wanted}):
                return True, f"{reason}; read back: the allocations are as written"
            if now != _resources(current):
                return None, f"{reason}, and somebody else has changed the consumer since"
            if waited >= SETTLES:
                return False, f"{reason}; read back: the allocations are as they were"
        time.sleep(min(1.0, SETTLES))


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


def put_back(cloud: Connection, entry: JournalEntry, *, check: bool = False) -> tuple[bool | None, str]:
    """Restore the allocation that a journal entry records, if nothing has changed the consumer since.

    :param check: whether to write nothing, and to return True if it would be restored.
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
    if check:
        return True, f"the allocation of {provider} to consumer {consumer}"
    written, how = _put(cloud, consumer, current, like, restored)
    if written is None:
        raise CloudError(f"whether repair {entry.number} was undone is not known: {how}", remedy="undo it again")
    if not written:
        return False, how or "the device is allocated to another by now, or reserved; nothing was restored"
    return True, "the allocation is as it was before the repair"


def _resources(answer: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    return {uuid: allocation["resources"] for uuid, allocation in answer["allocations"].items()}
