"""Changes of tenancy: in order, checked, and back again. The aggregates and traits are in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from gpustack.changes.change import CloudChange, reversed_order
from gpustack.changes.run import run as run_changes
from gpustack.cloud import Connection
from gpustack.cloud.compute import Hypervisor
from gpustack.cloud.flavors import Sizes
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.offer.tenancy.model import MARK
from support.change_runs import NoJournal, results
from support.cloud_model import Hosts
from support.flavor_model import NovaModel
from support.fleet_cloud import StandIn

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
    monkeypatch.setattr("gpustack.offer.tenancy.changes.present_flavors", lambda api: NovaModel())
    return stand_in


def run(made: Any) -> list[str]:
    return results(made, dict.fromkeys(KINDS))


def test_changes_are_made_in_order_and_reverted(cloud: _Cloud) -> None:
    before = cloud.state()
    made = OPERATIONS
    outcomes = run_changes(made, dict.fromkeys(KINDS), NoJournal())
    assert [str(outcome.result) for outcome in outcomes] == ["done"] * 8
    assert [outcome.id for outcome in outcomes] == ["", str(cloud.known["new"].id), *[""] * 6]
    metadata = {MARK: "CUSTOM_T", "trait:CUSTOM_T": "required"}
    assert cloud.state() == ({"new": (frozenset({"gpu1"}), metadata)}, {"CUSTOM_T": {"p"}})
    assert run(made)[0] == "unchanged"
    assert run(reversed_order(made)) == ["done"] * 8
    assert cloud.state() == before


def test_a_preview_of_an_undo_and_of_its_undo_finds_no_obstacle(cloud: _Cloud) -> None:
    """A journal has the id of an aggregate that was created; its hosts and metadata are changes of its name."""
    outcomes = run_changes(OPERATIONS, dict.fromkeys(KINDS), NoJournal())
    made = [replace(outcome.change, id=outcome.id or outcome.change.id, recorded=True) for outcome in outcomes]
    for _ in range(2):
        made = list(reversed_order(made))
        previewed = run_changes(made, dict.fromkeys(KINDS), None)
        assert [(outcome.result, outcome.detail) for outcome in previewed] == [("done", "")] * 8
        assert run(made) == ["done"] * 8


def test_a_change_of_others_stops_what_comes_after_it(cloud: _Cloud) -> None:
    made = OPERATIONS
    cloud.create_aggregate(None, "new")
    cloud.change_aggregate(None, 2, "set_metadata", {"metadata": {"of": "others"}})
    assert run(made) == ["done", "skipped", *["not begun"] * 6]


def test_an_undo_needs_no_aggregate_that_others_deleted(cloud: _Cloud) -> None:
    made = OPERATIONS[:5]
    assert run(made) == ["done"] * 5
    del cloud.known["new"]
    assert run(reversed_order(made)) == [*["unchanged"] * 4, "done"]
    assert run([replace(made[3], needs=())]) == ["skipped"]


def test_an_aggregate_with_another_name_is_reported_and_not_deleted(cloud: _Cloud) -> None:
    """Its own changes find it by its name only, and would end as if it were deleted."""
    outcomes = run_changes(OPERATIONS[:5], dict.fromkeys(KINDS), NoJournal())
    made = [replace(outcome.change, id=outcome.id or outcome.change.id, recorded=True) for outcome in outcomes]
    cloud.known["renamed"] = replace(cloud.known.pop("new"), name="renamed")
    outcomes = run_changes(reversed_order(made), dict.fromkeys(KINDS), NoJournal())
    assert [str(outcome.result) for outcome in outcomes] == [*["unchanged"] * 3, "skipped", "not begun"]
    assert outcomes[3].detail == "changed since the plan: name = renamed (was absent)"
    assert "renamed" in cloud.known


def test_an_aggregate_with_hosts_is_not_deleted(cloud: _Cloud) -> None:
    assert run(OPERATIONS[-1:]) == ["skipped"]
    assert "old" in cloud.known


@pytest.mark.parametrize(
    "change",
    [
        MetadataChange(why="", name="a", seen={"availability_zone": "x"}, wanted={"availability_zone": "y"}),
        AggregateChange(why="", name="a", seen=None, wanted={"ssd": "true"}),
        AggregateChange(why="", name="a", seen={MARK: "CUSTOM_T"}, wanted={MARK: "CUSTOM_U"}),
        AggregateChange(why="", name="a", seen=None, wanted=None),
        TraitChange(why="", name="t", seen=False, wanted=True, about={"host": "h", "trait": "HW_CPU_X86_VMX"}),
    ],
)
def test_an_edited_journal_changes_nothing_of_others(change: Any) -> None:
    assert change.permitted()


def test_what_a_plan_makes_is_permitted() -> None:
    assert not any(change.permitted() for change in OPERATIONS)


def test_changes_are_shown_by_kind() -> None:
    shown = [(change.describe(), change.details(), change.to_dict()) for change in OPERATIONS]
    assert [text for text, _, _ in shown] == [
        "add the trait CUSTOM_T to gpu1: w",
        "create the aggregate new",
        "change the metadata of the aggregate new: w",
        "add gpu1 to the aggregate new",
        "change the metadata of the aggregate new: w",
        "remove gpu1 from the aggregate old: w",
        "remove the trait CUSTOM_OLD from gpu1: w",
        "delete the aggregate old",
    ]
    mark, required = [f"+ {MARK} = CUSTOM_T"], ["+ trait:CUSTOM_T = required"]
    assert [lines for _, lines, _ in shown] == [[], [], mark, [], required, [], [], []]
    trait = {"why": "w", "host": "gpu1", "provider": "p"}
    host = {"why": "w", "host": "gpu1"}
    assert [data for _, _, data in shown] == [
        {"kind": "add_trait", **trait, "trait": "CUSTOM_T"},
        {"kind": "create_aggregate", "why": "w", "aggregate": "new"},
        {"kind": "set_metadata", "why": "w", "aggregate": "new", "values": {MARK: "CUSTOM_T"}, "before": {}},
        {"kind": "add_host", **host, "aggregate": "new"},
        {
            "kind": "set_metadata",
            "why": "w",
            "aggregate": "new",
            "values": {"trait:CUSTOM_T": "required"},
            "before": {},
        },
        {"kind": "remove_host", **host, "aggregate": "old"},
        {"kind": "remove_trait", **trait, "trait": "CUSTOM_OLD"},
        {"kind": "delete_aggregate", "why": "w", "aggregate": "old", "metadata": {MARK: "CUSTOM_OLD"}},
    ]


def test_metadata_shows_only_what_there_was() -> None:
    change = MetadataChange.of("a", {MARK: "T", f"{MARK}2": None}, {MARK: "S", "ssd": "true"}, "w")
    assert change.to_dict()["before"] == {MARK: "S"}
    assert change.details() == [f"~ {MARK} = T (was S)"]


@pytest.mark.parametrize("change", OPERATIONS[1:3] + OPERATIONS[5:6])
def test_an_undo_leaves_aggregates_of_others(cloud: _Cloud, change: CloudChange) -> None:
    """Also one with gpustack's values: somebody may have edited the journal."""
    content = {"availability_zone": "a"}
    for number, name in enumerate(("new", "old"), 10):
        cloud.known[name] = Aggregate(name=name, hosts=frozenset({"gpu1"}), metadata=content, id=number)
    alone = replace(change, needs=(), recorded=True)
    edited = replace(alone, seen=alone.read(cast("Connection", None)))
    (outcome,) = run_changes([edited], dict.fromkeys(KINDS), NoJournal())
    assert (outcome.result, outcome.detail) == ("skipped", "the aggregate does not have gpustack's mark")
    assert {found.metadata["availability_zone"] for found in cloud.known.values()} == {"a"}


@pytest.mark.parametrize(("hosts", "result"), [((), "done"), (("theirs",), "skipped")])
def test_an_aggregate_that_others_filled_since_the_plan_is_theirs(
    cloud: _Cloud, hosts: tuple[str, ...], result: str
) -> None:
    """One without content may be that of an interrupted run, so the plan takes it over."""
    mark = MetadataChange.of("new", {MARK: "CUSTOM_T"}, {}, "w")
    cloud.known["new"] = Aggregate(name="new", hosts=frozenset(hosts), id=9)
    assert run([mark]) == [result]
    assert (MARK in cloud.known["new"].metadata) == (result == "done")
    assert run([replace(mark, recorded=True)]) == ["unchanged" if result == "done" else "skipped"]


def test_an_undo_marks_the_aggregate_again_that_a_prune_shares(cloud: _Cloud) -> None:
    metadata = {MARK: "CUSTOM_T", "availability_zone": "a"}
    cloud.known["shared"] = Aggregate(name="shared", hosts=frozenset({"gpu1"}), metadata=metadata, id=9)
    change = MetadataChange.of("shared", {MARK: None}, metadata, "w", shared="yes")
    assert run([change]) == ["done"]
    assert run([replace(back, recorded=True) for back in reversed_order([change])]) == ["done"]
    assert cloud.known["shared"].metadata == metadata


def test_the_last_host_keeps_a_trait_that_flavors_require(cloud: _Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.traits["CUSTOM_OLD"] = {"p", "q"}
    sizes = Sizes(vcpus=1, ram=1, disk=1)
    old = PresentFlavor(id="1", name="g", sizes=sizes, extra_specs={"trait:CUSTOM_OLD": "required"})
    monkeypatch.setattr("gpustack.offer.tenancy.changes.present_flavors", lambda api: NovaModel([old]))
    removals = [replace(OPERATIONS[6], id=provider, tag=provider, needs=()) for provider in "qp"]
    outcomes = run_changes(removals, dict.fromkeys(KINDS), NoJournal())
    assert [outcome.result for outcome in outcomes] == ["done", "skipped"]
    assert outcomes[1].detail == "no other host has it, and flavors require it: g"


def test_an_aggregate_with_hosts_is_kept_and_they_are_named(cloud: _Cloud) -> None:
    cloud.known["old"] = replace(cloud.known["old"], hosts=frozenset({"gpu2", "gpu1"}))
    (outcome,) = run_changes([replace(OPERATIONS[-1], needs=())], dict.fromkeys(KINDS), NoJournal())
    assert (outcome.result, outcome.detail) == ("skipped", "it contains gpu1, gpu2")


def test_what_disappeared_meanwhile_is_not_changed(cloud: _Cloud) -> None:
    """Between the check and the write; before the check, such a change is skipped."""
    before = cloud.state()
    cloud.known.clear()
    for change in OPERATIONS[2:6] + OPERATIONS[-1:]:
        removal = isinstance(change, HostChange) and not change.wanted
        assert change.read(cast("Connection", None)) is (False if removal else None)
        assert change.carry_out(cast("Connection", None)) == ""
        assert run([replace(change, needs=())])[0] in ("skipped", "unchanged")
    assert (cloud.known, cloud.state()[1]) == ({}, before[1])


def test_an_undo_of_a_deletion_restores_the_mark(cloud: _Cloud) -> None:
    deletion = replace(OPERATIONS[-1], needs=())
    cloud.known["old"] = replace(cloud.known["old"], hosts=frozenset())
    before = cloud.state()
    assert run([deletion]) == ["done"]
    (back,) = reversed_order([deletion])
    (outcome,) = run_changes([replace(back, recorded=True)], dict.fromkeys(KINDS), NoJournal())
    assert (outcome.result, outcome.id) == ("done", str(cloud.known["old"].id))
    assert cloud.state() == before


SERVICE = {"id": "1", "host": "gpu1", "status": "enabled", "state": "up"}


@pytest.mark.parametrize("present", [True, False])
def test_an_undo_leaves_out_hosts_that_are_gone(present: bool) -> None:
    stand_in = StandIn({"compute /os-services": (200, {"services": [SERVICE] if present else []})})
    if present:
        stand_in.answers["placement /resource_providers/p/traits"] = (200, {"traits": []})
    cloud = stand_in.connection
    for change in OPERATIONS:
        adds = change.object_kind in ("aggregate_host", "trait") and change.wanted
        assert change.remaining(cloud) == (None if adds and not present else change)
