"""Removal of an allocation: what changes while the hosts are asked stops it."""

from __future__ import annotations

import pytest

from gpustack.base.errors import CloudError
from gpustack.changes.change import ChangeResult
from gpustack.cloud import placement
from gpustack.repair import allocation_removal
from gpustack.repair.allocation_removal import unset
from gpustack.repair.hypervisor import Usage
from gpustack.repair.outcome import Repairing
from gpustack.repair.verdict import Status, Verdict
from support.allocation import judged

CONSUMER = {
    "allocations": {"gpu": {"resources": {"CUSTOM_PCI_10DE_11B4": 1}}},
    "consumer_generation": 3,
    "project_id": "p",
    "user_id": "u",
}


def test_a_device_that_is_taken_while_its_host_is_asked_keeps_its_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placement's generation does not change when Nova's tables do."""
    verdict = judged({}, owners={"stranger": {"age": 400}})
    assert verdict.status is Status.STALE
    judgements: list[list[Verdict]] = [[verdict], []]
    monkeypatch.setattr(allocation_removal, "leftovers_of", lambda *_: judgements.pop(0))
    monkeypatch.setattr(allocation_removal.placement, "allocations_of", lambda *_: CONSUMER)
    monkeypatch.setattr(allocation_removal.placement, "put", lambda *_: pytest.fail("Placement was written to"))
    question, *_ = verdict.questions or ()
    functions = {**question.offered, **question.rows}

    api = Repairing(sources=None, ask=lambda _host: Usage(functions=functions), cloud=object())  # type: ignore[arg-type]

    outcome = unset(None, verdict.to_dict(), api, lambda payload: None)  # type: ignore[arg-type]

    assert outcome.result is ChangeResult.SKIPPED
    assert "changed while the hosts were asked; it is in order now" in outcome.detail
    assert not judgements


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
        monkeypatch.setattr(allocation_removal, "PATIENCE", 0.1)

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
    result, how = allocation_removal._put(object(), "vm", CONSUMER, CONSUMER, {})  # type: ignore[arg-type]
    assert result is written
    assert how.startswith("Placement's answer was lost (the connection was lost)")
    assert how.endswith(detail)


def test_a_consumer_that_changed_while_the_answer_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePlacement(monkeypatch, carried_out=False)
    fake.held = {**CONSUMER, "allocations": {"node": {"resources": {"VCPU": 1}}}}
    result, how = allocation_removal._put(object(), "vm", CONSUMER, CONSUMER, {})  # type: ignore[arg-type]
    assert (result, how.endswith("somebody else has changed the consumer since")) == (None, True)
