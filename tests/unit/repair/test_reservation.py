"""Devices that are used once stay reserved in Placement: clean-up writes allocations there, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.cloud import placement
from gpustack.repair import rules
from gpustack.repair.allocation_removal import put_back
from gpustack.repair.journal import JournalEntry
from support import neighbourhood

GPU, NODE, RESERVED = "gpu-provider", "node-provider", {"total": 1, "reserved": 1}


class Placement:
    """Placement with one consumer and a device that is reserved: what was asked for is kept."""

    def __init__(self) -> None:
        self.inventories = {GPU: dict(RESERVED)}
        self.consumer: dict[str, Any] = {
            "allocations": {NODE: {"resources": {"VCPU": 2}}, GPU: {"resources": {"CUSTOM_PCI_10DE_11B4": 1}}},
            "consumer_generation": 3,
            "project_id": "p",
            "user_id": "u",
        }
        self.asked: list[str] = []
        self.placement = self

    def __getattr__(self, method: str) -> object:
        raise AssertionError(f"clean-up asks Placement to {method}")

    def request(self, path: str, method: str, json: Any = None, **_more: object) -> SimpleNamespace:
        self.asked.append(f"{method} {path}")
        if method == "GET":
            return SimpleNamespace(status_code=200, json=lambda: self.consumer)
        allocations = json["allocations"]
        if GPU in allocations and GPU not in self.consumer["allocations"]:  # a reserved device is given to nobody
            return SimpleNamespace(status_code=409, json=dict, reason="Conflict")
        generation = json["consumer_generation"] + 1
        self.consumer = {**self.consumer, "allocations": allocations, "consumer_generation": generation}
        return SimpleNamespace(status_code=204)


def test_an_allocation_goes_and_the_reservation_does_not() -> None:
    cloud: Any = Placement()
    before = placement.allocations_of(cloud, "vm")

    assert placement.put(cloud, "vm", before, {NODE: before["allocations"][NODE]})

    assert cloud.consumer["allocations"].keys() == {NODE}
    assert cloud.inventories == {GPU: RESERVED}
    assert cloud.asked == ["GET /allocations/vm", "PUT /allocations/vm"]
    # Not even the way back takes a reservation away: it is refused, and says why that may be.
    kind = {"consumer": "vm", "provider": GPU, "before": before}
    entry = JournalEntry(cell="", database="", verdict={}, changes=[], before=(), allocation=kind)
    ended = put_back(cloud, entry, lambda payload: None)
    assert (ended.result, "reserved" in ended.detail) == (ChangeResult.SKIPPED, True)
    assert cloud.inventories == {GPU: RESERVED}
    assert {request.split()[1] for request in cloud.asked} == {"/allocations/vm"}


@pytest.mark.parametrize("age", [5, 3600])
def test_the_row_of_a_used_device_is_as_any_free_one(age: int) -> None:
    """In the database nothing tells that a device was used: it is free, and so it is counted in the pools."""
    case = {"service": {"seen": age}, "rows": [{"status": "available"}, {"status": "available"}]}
    assert list(rules.judge(neighbourhood.view(case), neighbourhood.clock(case))) == []


def test_two_repairs_of_one_consumer_are_undone() -> None:
    """Each write raises the generation: after the first undo it is not the one that the other repair left."""
    cloud: Any = Placement()
    other = {"resources": {"CUSTOM_PCI_10DE_20B2": 1}}
    cloud.consumer["allocations"] = whole = {NODE: {"resources": {"VCPU": 2}}, "one": other, "two": other}
    entries = []
    for provider in ("one", "two"):
        before = placement.allocations_of(cloud, "vm")
        kind = {"consumer": "vm", "provider": provider, "before": before}
        entries.append(JournalEntry(cell="", database="", verdict={}, changes=[], before=(), allocation=kind))
        rest = {uuid: held for uuid, held in before["allocations"].items() if uuid != provider}
        assert placement.put(cloud, "vm", before, rest)
    ended = [put_back(cloud, entry, lambda payload: None).result for entry in reversed(entries)]
    assert ended == [ChangeResult.DONE, ChangeResult.DONE]
    assert cloud.consumer["allocations"] == whole


def test_a_consumer_with_other_allocations_is_left_alone() -> None:
    cloud: Any = Placement()
    kind = {"consumer": "vm", "provider": GPU, "before": placement.allocations_of(cloud, "vm")}
    entry = JournalEntry(cell="", database="", verdict={}, changes=[], before=(), allocation=kind)
    cloud.consumer["allocations"] = {"elsewhere": {"resources": {"VCPU": 2}}}
    ended = put_back(cloud, entry, lambda payload: None)
    assert (ended.result, "consumer vm has changed" in ended.detail) == (ChangeResult.SKIPPED, True)
    assert cloud.consumer["allocations"] == {"elsewhere": {"resources": {"VCPU": 2}}}
