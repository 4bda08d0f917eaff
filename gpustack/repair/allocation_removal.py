"""Remove one allocation in Placement, and restore it.

Each write carries the consumer generation that was read, so Placement refuses it (409) if the consumer changed
meanwhile.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from gpustack.base.errors import CloudError
from gpustack.changes.change import Begin, ChangeResult, Ended
from gpustack.cloud import Connection, placement
from gpustack.novadb.sources import Cell
from gpustack.repair import permission
from gpustack.repair.journal import JournalEntry, payload
from gpustack.repair.outcome import GONE, Repairing, key, refused, skipped
from gpustack.repair.plan import leftovers_of
from gpustack.repair.verdict import PlannedVerdict, Status, Verdict


def unset(cell: Cell, wanted: PlannedVerdict, api: Repairing, begin: Begin) -> Ended:
    """Remove the allocation of a planned verdict, if it is still stale.

    :raises CloudError: if Placement cannot be reached before the removal.
    """
    held, cloud = wanted["allocation"], api.cloud
    if cloud is None:
        return skipped("Placement is not named: add --os-cloud")
    if held is None:
        return skipped("the plan names no allocation")
    # Read before the new verdict: a later change of the consumer also changes its generation.
    before = placement.allocations_of(cloud, held["consumer"])
    if held["provider"] not in before["allocations"]:
        return GONE
    verdict, change = _judged(cell, wanted, api, cloud)
    if verdict is None:
        return skipped(f"changed since the plan; {change}")
    usages = permission.answers(verdict, api.ask, api.selection.gone)
    if refusal := refused(permission.settle(verdict, usages)):
        return refusal
    # The questions took time: Nova's tables must still have what the verdict depends on.
    again, change = _judged(cell, wanted, api, cloud)
    if again is None:
        return skipped(f"changed while the hosts were asked; {change}")
    witness = "; ".join(permission.witnesses(verdict, usages))
    known = {"consumer": held["consumer"], "provider": held["provider"], "before": before}
    begin(payload(cell, verdict, (), (), known, witness))
    remaining = {uuid: kept for uuid, kept in before["allocations"].items() if uuid != held["provider"]}
    removed, how = _put(cloud, held["consumer"], before, before, remaining)
    if removed is None:
        return _unknown(how)
    if not removed:
        detail = f"{how or 'the consumer changed meanwhile'}; nothing was written"
        return Ended(ChangeResult.FAILED if how else ChangeResult.SKIPPED, detail)
    return Ended(ChangeResult.DONE, "; ".join(filter(None, ("the allocation was removed", how, witness))))


def _unknown(how: str) -> Ended:
    remedy = "make Placement reachable, then see what was written with gpustack undo ID --check"
    lost = CloudError(f"whether it was carried out is not known: {how}", remedy=remedy)
    return Ended(ChangeResult.UNKNOWN, how, lost)


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


def _judged(cell: Cell, wanted: PlannedVerdict, api: Repairing, cloud: Connection) -> tuple[Verdict | None, str]:
    """Return the planned verdict as it is judged now, if it is still stale; else None, and what has changed."""
    hosts = frozenset({wanted["host"]})
    selection = replace(api.selection, hosts=hosts, instance=None, classes=frozenset())
    leftovers = leftovers_of(api.sources, cell, selection, cloud)
    verdict = next((leftover for leftover in leftovers if key(leftover.to_dict()) == key(wanted)), None)
    if verdict is not None and verdict.status is Status.STALE:
        return verdict, ""
    same = (other for other in leftovers if other.allocation and asdict(other.allocation) == wanted["allocation"])
    return None, next((f"now it is {other.status}: {other.because}" for other in same), "it is in order now")


def put_back(cloud: Connection, entry: JournalEntry, begin: Begin | None) -> Ended:
    """Restore the allocation that a journal entry records, if the consumer has the others that it had after the repair.

    :param begin: records that the undo begins; None to check only.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    known = entry.allocation or {}
    consumer, provider, before = known["consumer"], known["provider"], known["before"]
    current = placement.allocations_of(cloud, consumer)
    if _resources(current).get(provider) == _resources(before)[provider]:
        return Ended(ChangeResult.UNCHANGED, "the allocation is as it was before the repair")
    others = {uuid: resources for uuid, resources in _resources(before).items() if uuid != provider}
    if _resources(current) != others:  # the generation may be higher: other repairs of the consumer are writes too
        return skipped(f"used since: consumer {consumer} has changed; nothing was restored")
    like = {**before, "consumer_generation": current.get("consumer_generation")}
    restored = {**current["allocations"], provider: before["allocations"][provider]}
    if begin is None:
        return Ended(ChangeResult.DONE, f"would be restored: the allocation of {provider} to consumer {consumer}")
    begin({"consumer": consumer, "provider": provider})
    written, how = _put(cloud, consumer, current, like, restored)
    if written is None:
        return _unknown(how)
    if not written:
        return skipped(how or "used since: the device is allocated to another, or reserved; nothing was restored")
    return Ended(ChangeResult.DONE, "the allocation is as it was before the repair")


def _resources(answer: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    return {uuid: allocation["resources"] for uuid, allocation in answer["allocations"].items()}
