"""Verdicts as data, as sentences, and without their repair."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpustack.novadb.model import Instance, PciRow
from gpustack.novadb.view import HostState
from gpustack.repair.verdict import Allocation, Origin, Question, Repair, Seen, Status, Verdict, words
from support import neighbourhood

ROW = PciRow(
    id=45,
    compute_node_id=1,
    address="0000:84:00.0",
    vendor_id="10de",
    product_id="11b4",
    dev_type="type-PCI",
    status="allocated",
    instance_uuid="vm",
    request_id="r1",
    parent_addr=None,
    deleted=0,
    updated_at=neighbourhood.NOW,
    created_at=None,
)
BARE = Verdict(
    klass="B",
    title="a leak",
    status=Status.STALE,
    cell="cell1",
    host="gpu1",
    node="gpu1.example",
    host_state=HostState.DOWN,
    evidence=("first", "second"),
    because="nobody uses it",
)
FULL = replace(
    BARE,
    rows=(ROW,),
    owner="vm",
    repair=Repair.FREE,
    migrations=(7, 8),
    stop=True,
    advice="start nova-compute",
    allocation=Allocation(provider="p", name="gpu1_84", addresses="0000:84:00.0", consumer="vm"),
    starts=True,
    questions=(Question(host="gpu2"), Question(host="gpu1"), Question(host="gpu2", absent="vm")),
)
SHARED = {
    "class": "B",
    "title": "a leak",
    "status": "stale",
    "cell": "cell1",
    "host": "gpu1",
    "node": "gpu1.example",
    "host_state": "down",
    "evidence": ["first", "second"],
    "because": "nobody uses it",
}


@pytest.mark.parametrize(
    ("verdict", "data"),
    [
        (
            BARE,
            {
                "devices": [],
                "instance": None,
                "repair": None,
                "migrations": [],
                "stop_service": False,
                "asks": [],
                "advice": "",
                "allocation": None,
            },
        ),
        (
            FULL,
            {
                "devices": [{"id": 45, "address": "0000:84:00.0", "status": "allocated", "dev_type": "type-PCI"}],
                "instance": "vm",
                "repair": "free",
                "migrations": [7, 8],
                "stop_service": True,
                "asks": ["gpu2", "gpu1"],
                "advice": "start nova-compute",
                "allocation": {
                    "provider": "p",
                    "name": "gpu1_84",
                    "addresses": "0000:84:00.0",
                    "consumer": "vm",
                },
            },
        ),
    ],
    ids=["bare", "full"],
)
def test_a_saved_plan_has_all_that_a_repair_is_recognized_by(verdict: Verdict, data: dict[str, object]) -> None:
    assert json.loads(json.dumps(verdict.to_dict())) == {**SHARED, **data}


def test_an_undecided_verdict_repairs_nothing() -> None:
    undecided = FULL.undecided("the host is silent", "ask again")
    shown = {**FULL.to_dict(), "status": "undecided", "because": "the host is silent", "advice": "ask again"}
    assert undecided.to_dict() == {**shown, "repair": None, "migrations": [], "stop_service": False}
    assert not undecided.starts
    assert FULL.undecided("unread").advice == ""
    assert not BARE.starts


@pytest.mark.parametrize(
    ("deleted", "state"),
    [
        (0, "allocated"),
        (45, "soft-deleted, with status allocated"),
        (None, "soft-deleted, with status allocated"),
    ],
)
def test_a_row_is_described_as_nova_sees_it(deleted: int | None, state: str) -> None:
    described = words(ROW._replace(deleted=deleted))
    assert described == f"row 45, 0000:84:00.0 (10de:11b4, type-PCI), is {state}"


@pytest.mark.parametrize(("cell", "recorded"), [("cell1", ""), ("cell2", "cell2")])
def test_the_place_of_an_owner_outlives_a_new_name_of_its_cell(cell: str, recorded: str) -> None:
    owner = neighbourhood.view({"owners": {"vm": {"host": "gpu3"}}}).owners["vm"].instance
    assert isinstance(owner, Instance)
    assert Origin.place(owner._replace(cell=cell), "cell1") == ("gpu3", "gpu3", recorded)


def test_a_fact_is_one_row_or_none() -> None:
    assert Seen.of("services", {"host": "gpu1"}) == Seen(table="services", match=(("host", "gpu1"),), count=1)
    assert Seen.of("services", {"host": "gpu1"}, 0).count == 0
    assert Seen(table="services", match=()).count == 1
