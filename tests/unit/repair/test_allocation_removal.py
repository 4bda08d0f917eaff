"""Removal of an allocation: what changes while the hosts are asked stops it."""

from __future__ import annotations

import pytest

from gpustack.repair import allocation_removal
from gpustack.repair.allocation_removal import unset
from gpustack.repair.hypervisor import Usage
from gpustack.repair.outcome import Result
from gpustack.repair.plan import Selection
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

    outcome = unset(
        *(None, None, verdict.to_dict(), Selection(), None),  # type: ignore[arg-type]
        ask=lambda _host: Usage(functions=functions),
        cloud=object(),  # type: ignore[arg-type]
    )

    assert outcome.result is Result.SKIPPED
    assert "changed while the hosts were asked; it is in order now" in outcome.detail
    assert not judgements
