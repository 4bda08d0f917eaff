"""Removal of an allocation: what changes while the hosts are asked stops it."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.changes.change import ChangeResult, Ended
from gpustack.cloud import placement
from gpustack.repair import allocation_removal
from gpustack.repair.allocation_removal import put_back, unset
from gpustack.repair.hypervisor import Usage
from gpustack.repair.outcome import GONE, Repairing
from gpustack.repair.verdict import Status, Verdict
from support.allocation import judged

CONSUMER = {
    "allocations": {"gpu": {"resources": {"CUSTOM_PCI_10DE_11B4": 1}}},
    "consumer_generation": 3,
    "project_id": "p",
    "user_id": "u",
}


class Consumer:
    """A stand-in for Placement with one consumer, of the device ``gpu`` and of processors.

    :ivar writes: each request to write: the compared generation, and the written allocations.
    :ivar refuses: whether Placement refuses to write because the consumer has changed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **allocations: int) -> None:
        self.held = dict(allocations)
        self.generation, self.refuses, self.writes = 3, False, list[tuple[int, dict[str, int]]]()
        monkeypatch.setattr(placement, "put", self._put)
        monkeypatch.setattr(placement, "allocations_of", lambda *_: self.answer())

    def answer(self) -> dict[str, Any]:
        resources = {name: {"resources": {"CUSTOM": amount}} for name, amount in self.held.items()}
        return {"allocations": resources, "consumer_generation": self.generation, "project_id": "p", "user_id": "u"}

    def _put(self, _cloud: object, _consumer: str, like: dict[str, Any], allocations: dict[str, Any]) -> bool:
        amounts = {name: one["resources"]["CUSTOM"] for name, one in allocations.items()}
        self.writes.append((like["consumer_generation"], amounts))
        if not self.refuses:
            self.held = amounts
        return not self.refuses


STALE = judged({}, owners={"stranger": {"age": 400}})
QUESTION = (STALE.questions or ())[0]
FREE = Usage(functions={**QUESTION.offered, **QUESTION.rows})
IN_USE = replace(FREE, users={"0000:81:00.0": frozenset({"stranger"})})
PROTECTED = replace(STALE, status=Status.PROTECTED, because="a migration is under way")
ALLOCATION = STALE.allocation
assert ALLOCATION is not None
OTHER = replace(PROTECTED, allocation=replace(ALLOCATION, provider="other"))
WITNESS = "gpu1: no guest uses a device that may become free"


def removed(
    monkeypatch: pytest.MonkeyPatch, *judgements: list[Verdict], usage: Usage = FREE, **planned: Any
) -> tuple[Ended, list[Any]]:
    """The end of a planned removal, and its records; the judgements follow each other."""
    left, recorded = list(judgements), []
    monkeypatch.setattr(allocation_removal, "leftovers_of", lambda *_: left.pop(0))
    api = Repairing(sources=None, ask=lambda _host: usage, cloud=planned.pop("cloud", object()))  # type: ignore[arg-type]
    cell = SimpleNamespace(name="cell1", uuid="")
    ended = unset(cell, {**STALE.to_dict(), **planned}, api, recorded.append)  # type: ignore[arg-type]
    assert not left
    return ended, recorded


def test_only_the_allocation_of_the_device_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(monkeypatch, gpu=1, node=2)
    before = consumer.answer()
    ended, (payload,) = removed(monkeypatch, [OTHER, STALE], [STALE])
    assert (ended.result, ended.detail) == (ChangeResult.DONE, f"the allocation was removed; {WITNESS}")
    assert consumer.writes == [(3, {"node": 2})]
    assert payload["allocation"] == {"consumer": "stranger", "provider": "gpu", "before": before}
    assert (payload["witness"], payload["changes"]) == (WITNESS, [])


@pytest.mark.parametrize(
    ("judgements", "more", "result", "detail"),
    [
        ([], {"cloud": None}, ChangeResult.SKIPPED, "Placement is not named: add --os-cloud"),
        ([], {"allocation": None}, ChangeResult.SKIPPED, "the plan names no allocation"),
        ([[]], {}, ChangeResult.SKIPPED, "changed since the plan; it is in order now"),
        (
            [[PROTECTED]],
            {},
            ChangeResult.SKIPPED,
            "changed since the plan; now it is protected: a migration is under way",
        ),
        (
            [[STALE]],
            {"usage": IN_USE},
            ChangeResult.SKIPPED,
            "report: the hypervisor of gpu1 reports 0000:81:00.0 in use",
        ),
        ([[STALE]], {"usage": Usage(gap="no way")}, ChangeResult.SKIPPED, "undecided: gpu1 could not be asked: no way"),
        # Placement's generation does not change when Nova's tables do.
        ([[STALE], []], {}, ChangeResult.SKIPPED, "changed while the hosts were asked; it is in order now"),
        ([[STALE], [OTHER]], {}, ChangeResult.SKIPPED, "changed while the hosts were asked; it is in order now"),
        ([[STALE], [PROTECTED]], {}, ChangeResult.SKIPPED, "changed while the hosts were asked; now it is protected"),
    ],
)
def test_an_allocation_that_may_be_needed_stays(
    judgements: list[list[Verdict]],
    more: dict[str, Any],
    result: ChangeResult,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer(monkeypatch, gpu=1)
    ended, recorded = removed(monkeypatch, *judgements, **more)
    assert ended.result is result
    assert ended.detail.startswith(detail)
    assert consumer.writes == recorded == []


def test_an_allocation_that_is_gone_needs_no_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(monkeypatch, node=2)
    ended, recorded = removed(monkeypatch)
    assert ended == GONE
    assert consumer.writes == recorded == []


def test_a_removal_that_placement_refuses_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(monkeypatch, gpu=1)
    consumer.refuses = True
    ended, recorded = removed(monkeypatch, [STALE], [STALE])
    assert len(recorded) == 1
    assert (ended.result, ended.detail) == (
        ChangeResult.SKIPPED,
        "the consumer changed meanwhile; nothing was written",
    )


@pytest.mark.parametrize(
    ("carried_out", "back", "result", "detail"),
    [
        (True, 2, ChangeResult.DONE, f"the allocations are as written; {WITNESS}"),
        (False, 2, ChangeResult.FAILED, "the allocations are as they were; nothing was written"),
        (True, 10**6, ChangeResult.UNKNOWN, "could not be read back: no route to host"),
    ],
)
def test_a_removal_ends_as_its_lost_request(
    carried_out: bool, back: int, result: ChangeResult, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakePlacement(monkeypatch, carried_out=carried_out, back=back)
    first = iter([CONSUMER])
    monkeypatch.setattr(placement, "allocations_of", lambda *more: next(first, None) or fake._read(*more))
    ended, _recorded = removed(monkeypatch, [STALE], [STALE])
    assert (ended.result, ended.detail.endswith(detail)) == (result, True)
    assert (ended.lost is not None) is (result is ChangeResult.UNKNOWN)
    if ended.lost is not None:
        assert ended.lost.what.startswith("whether it was carried out is not known: Placement's answer was lost")
        assert "gpustack undo ID --check" in str(ended.lost.remedy)


# --- undo ------------------------------------------------------------------------------------------------------------


def restored(consumer: Consumer, *, check: bool = False) -> tuple[Ended, list[Any]]:
    """The end of the undo of a removal, when the consumer had a device and two processors, and its records."""
    recorded: list[Any] = []
    resources = {name: {"resources": {"CUSTOM": amount}} for name, amount in (("gpu", 1), ("node", 2))}
    before = {"allocations": resources, "consumer_generation": 3, "project_id": "p", "user_id": "u"}
    entry: Any = SimpleNamespace(allocation={"consumer": "vm", "provider": "gpu", "before": before})
    return put_back(object(), entry, None if check else recorded.append), recorded  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "check", "refuses", "result", "detail"),
    [
        ({"gpu": 1, "node": 2}, False, False, ChangeResult.UNCHANGED, "the allocation is as it was before the repair"),
        ({"gpu": 1}, False, False, ChangeResult.UNCHANGED, "the allocation is as it was before the repair"),
        ({"node": 2}, False, False, ChangeResult.DONE, "the allocation is as it was before the repair"),
        ({"node": 2}, True, False, ChangeResult.DONE, "would be restored: the allocation of gpu to consumer vm"),
        ({"node": 2}, False, True, ChangeResult.SKIPPED, "used since: the device is allocated to another, or reserved"),
        ({"node": 3}, False, False, ChangeResult.SKIPPED, "used since: consumer vm has changed; nothing was restored"),
        ({"gpu": 2, "node": 2}, False, False, ChangeResult.SKIPPED, "used since: consumer vm has changed"),
        ({}, False, False, ChangeResult.SKIPPED, "used since: consumer vm has changed"),
    ],
)
def test_an_allocation_is_restored_beside_the_others(
    held: dict[str, int],
    check: bool,
    refuses: bool,
    result: ChangeResult,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer(monkeypatch, **held)
    consumer.generation, consumer.refuses = 7, refuses
    ended, recorded = restored(consumer, check=check)
    assert ended.result is result
    assert ended.detail.startswith(detail)
    writes = result is ChangeResult.DONE and not check
    assert consumer.writes == ([(7, {"gpu": 1, "node": 2})] if writes or refuses else [])
    assert recorded == ([{"consumer": "vm", "provider": "gpu"}] if writes or refuses else [])


def test_a_restored_allocation_whose_answer_is_lost_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(monkeypatch, node=2)

    def away(*_: object) -> bool:
        monkeypatch.setattr(placement, "allocations_of", away)
        raise CloudError("no route to host")

    monkeypatch.setattr(placement, "put", away)
    monkeypatch.setattr(allocation_removal, "SETTLES", 0.02)
    monkeypatch.setattr(allocation_removal, "PATIENCE", 0.1)
    ended, _recorded = restored(consumer)
    assert ended.result is ChangeResult.UNKNOWN
    assert ended.lost is not None


# --- lost answers ----------------------------------------------------------------------------------------------------


class FakePlacement:
    """A fake of Placement for one consumer; the answer to its first write is lost.

    :ivar carried_out: whether that write is carried out.
    :ivar back: how many later requests are lost too.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, carried_out: bool, back: int = 1) -> None:
        self.held: dict[str, object] = dict(CONSUMER)
        self._carried_out, self._back, self._lost = carried_out, back, 0
        monkeypatch.setattr(placement, "put", self._put)
        monkeypatch.setattr(placement, "allocations_of", self._read)
        monkeypatch.setattr(allocation_removal, "SETTLES", 0.02)
        monkeypatch.setattr(allocation_removal, "PATIENCE", 60.0 if back == 1 else 0.1)

    def _put(self, _cloud: object, _consumer: str, _like: object, allocations: dict[str, object]) -> bool:
        if self._carried_out:
            self.held = {**CONSUMER, "allocations": allocations, "consumer_generation": 4}
        raise CloudError("the connection was lost")

    def _read(self, *_: object) -> dict[str, object]:
        self._lost += 1
        if self._lost <= self._back:
            raise CloudError("no route to host")
        return self.held


@pytest.mark.parametrize(
    ("carried_out", "back", "written", "detail"),
    [
        (True, 1, True, "read back: the allocations are as written"),
        (False, 1, False, "read back: the allocations are as they were"),
        (True, 10**6, None, "could not be read back: no route to host"),
    ],
)
def test_an_answer_of_placement_that_is_lost(
    carried_out: bool, back: int, written: bool | None, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakePlacement(monkeypatch, carried_out=carried_out, back=back)
    pauses: list[float] = []
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda pause: (pauses.append(pause), sleep(pause)))
    result, how = allocation_removal._put(object(), "vm", CONSUMER, CONSUMER, {})  # type: ignore[arg-type]
    assert set(pauses) == {0.02}
    assert result is written
    assert how.startswith("Placement's answer was lost (the connection was lost)")
    assert how.endswith(detail)


def test_a_consumer_that_changed_while_the_answer_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePlacement(monkeypatch, carried_out=False)
    fake.held = {**CONSUMER, "allocations": {"node": {"resources": {"VCPU": 1}}}}
    result, how = allocation_removal._put(object(), "vm", CONSUMER, CONSUMER, {})  # type: ignore[arg-type]
    assert (result, how.endswith("somebody else has changed the consumer since")) == (None, True)
