"""Changes of tenancy: in order, checked, and back again. The aggregates and traits are in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.changes.change import CloudChange, reversed_order
from gpustack.cloud.compute import Hypervisor
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.offer.tenancy.model import MARK
from support.change_runs import results
from support.cloud_model import Hosts

KINDS = ("aggregate", "aggregate_host", "aggregate_metadata", "trait")
NODE = Hypervisor(uuid="p", node="gpu1", host="gpu1")
_LISTED: list[CloudChange] = [
    TraitChange.of(NODE, "CUSTOM_T", "w", wanted=True),
    AggregateChange.of("new", None, "w"),
    MetadataChange.of("new", {MARK: "CUSTOM_T"}, {}, "w"),
    HostChange.of("new", "gpu1", "w", wanted=True),
    MetadataChange.of("new", {"trait:CUSTOM_T": "required"}, {MARK: "CUSTOM_T"}, "w"),
    HostChange.of("old", "gpu1", "w", wanted=False),
    TraitChange.of(NODE, "CUSTOM_OLD", "w", wanted=False),
    AggregateChange.of("old", {MARK: "CUSTOM_OLD"}, "w"),
]
OPERATIONS = [
    replace(change, tag=str(number), needs=(str(number - 1),) if number else ())
    for number, change in enumerate(_LISTED)
]


class _Cloud(Hosts):
    """A stand-in for Nova's aggregates and Placement's traits, with its state to compare."""

    def state(self) -> tuple[object, ...]:
        entries = {name: (found.hosts, dict(found.metadata)) for name, found in self.known.items()}
        return entries, {trait: set(providers) for trait, providers in self.traits.items() if providers}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> _Cloud:
    old = Aggregate(name="old", hosts=frozenset({"gpu1"}), metadata={MARK: "CUSTOM_OLD"}, id=1)
    stand_in = _Cloud(known={"old": old}, traits={"CUSTOM_OLD": {"p"}})
    monkeypatch.setattr("gpustack.offer.tenancy.changes.compute", stand_in)
    monkeypatch.setattr("gpustack.offer.tenancy.changes.placement", stand_in)
    return stand_in


def run(made: Any) -> list[str]:
    return results(made, dict.fromkeys(KINDS))


def test_changes_are_made_in_order_and_reverted(cloud: _Cloud) -> None:
    before = cloud.state()
    made = OPERATIONS
    assert run(made) == ["done"] * 8
    metadata = {MARK: "CUSTOM_T", "trait:CUSTOM_T": "required"}
    assert cloud.state() == ({"new": (frozenset({"gpu1"}), metadata)}, {"CUSTOM_T": {"p"}})
    assert run(made)[0] == "unchanged"
    assert run(reversed_order(made)) == ["done"] * 8
    assert cloud.state() == before


def test_a_change_of_others_stops_what_comes_after_it(cloud: _Cloud) -> None:
    made = OPERATIONS
    cloud.create_aggregate(None, "new")
    cloud.change_aggregate(None, 2, "set_metadata", {"metadata": {"of": "others"}})
    assert run(made) == ["done", "skipped", *["not begun"] * 6]


def test_an_aggregate_with_hosts_is_not_deleted(cloud: _Cloud) -> None:
    assert run(OPERATIONS[-1:]) == ["skipped"]
    assert "old" in cloud.known


@pytest.mark.parametrize(
    "change",
    [
        MetadataChange(why="", name="a", seen={"availability_zone": "x"}, wanted={"availability_zone": "y"}),
        AggregateChange(why="", name="a", seen=None, wanted={"ssd": "true"}),
        TraitChange(why="", name="t", seen=False, wanted=True, about={"host": "h", "trait": "HW_CPU_X86_VMX"}),
    ],
)
def test_an_edited_journal_changes_nothing_of_others(change: Any) -> None:
    assert change.permitted()


def test_what_a_plan_makes_is_permitted() -> None:
    assert not any(change.permitted() for change in OPERATIONS)
