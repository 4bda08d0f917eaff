"""The checks that the rules share: each limit, and each reason that an operator reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpustack.novadb.view import HostState, NodeView, Owner
from gpustack.repair import evidence
from gpustack.repair.evidence import Case, about
from gpustack.repair.verdict import Repair, Status
from support.neighbourhood import HOUR, NOW, ago, clock, view

ROW = {"status": "allocated", "owner": "vm"}
MOVES = ["completed", "failed", "confirmed", "error"]


def owner(**entry: Any) -> Owner:
    return view({"owners": {"vm": entry}}).owners["vm"]


@pytest.mark.parametrize(
    ("entry", "reasons"),
    [
        ({"moves": [{"status": status} for status in MOVES]}, []),
        ({"moves": [{"status": "error"}, {"status": "migrating"}]}, ["migration 2 is under way (migrating)"]),
        ({"moves": [{"status": "Done"}]}, ["migration 1 is of a status that gpustack does not know (Done)"]),
        ({"task": "spawning"}, ["instance vm has a task under way (spawning)"]),
        ({"state": "resized"}, ["instance vm is resized"]),
        ({"state": "building"}, ["instance vm is building"]),
        ({"hidden": True}, ["instance vm is hidden: a move between cells is under way"]),
        ({"task": "deleting", "state": "building", "hidden": True, "deleted": HOUR}, []),
        ({"absent": True}, []),
        (
            {"in_several_cells": True, "absent": True},
            ["instance vm is in more than one cell: a move between cells may be under way"],
        ),
    ],
)
def test_work_under_way_protects_an_owner(entry: dict[str, Any], reasons: list[str]) -> None:
    assert evidence.in_flight(owner(**entry)) == reasons


def test_a_row_without_owner_has_neither_work_nor_doubts() -> None:
    assert evidence.in_flight(None) == evidence.doubts(None) == []
    assert evidence.doubts(owner()) == []
    assert evidence.doubts(owner(unknown="cell2 could not be read")) == ["cell2 could not be read"]


WRITTEN = "was written less than 300 seconds ago"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (
            {"rows": [{**ROW, "age": 299}]},
            f"row 1, 0000:81:00.0 (10de:11b4, type-PCI), is allocated, and {WRITTEN}",
        ),
        ({"owners": {"vm": {"moves": [{"status": "error", "age": 299}]}}}, f"migration 1 {WRITTEN}"),
        ({"owners": {"vm": {"age": 299}}}, f"instance vm {WRITTEN}"),
        ({"node": {"age": 299}}, f"compute node gpu1 {WRITTEN}: the host may be up"),
        ({"node": {"age": 299}, "service": {"forced_down": True}}, f"compute node gpu1 {WRITTEN}: the host may be up"),
        ({"service": {"written": 299}}, f"the nova-compute service of gpu1 {WRITTEN}: the host may be up"),
        (
            {"node": {"deleted": 299}},
            "compute node gpu1 was deleted less than 300 seconds ago: it may come back",
        ),
    ],
)
def test_writes_within_the_grace_time_protect_a_row(case: dict[str, Any], reason: str) -> None:
    case = {"rows": [ROW], "owners": {"vm": {}}, **case}
    seen = view(case)
    assert evidence.fresh(seen, seen.rows[0], clock(case)) == [reason]
    after = replace(clock(case), now=NOW + timedelta(seconds=1))
    assert evidence.fresh(seen, seen.rows[0], after) == []
    shorter = replace(clock(case), grace=timedelta(seconds=299))
    assert evidence.protection(seen, seen.rows[0], shorter) == []


@pytest.mark.parametrize(
    "case",
    [
        {"owners": {"vm": {"host": "gpu1", "age": 9}}},  # instances on the node are written all the time
        {"node": {"age": 9}, "service": {"seen": 5}},
        {"node": {"age": 9, "deleted": HOUR}, "service": {"written": 9}},
        {"node": {"age": 9}, "service": None},
    ],
    ids=["on the node", "up", "deleted node", "no service"],
)
def test_recent_writes_that_are_normal_protect_nothing(case: dict[str, Any]) -> None:
    seen = view({"rows": [ROW], "owners": {"vm": {}}, **case})
    assert evidence.fresh(seen, seen.rows[0], clock(case)) == []


def test_a_free_row_has_no_owner_whose_writes_matter() -> None:
    seen = view({"rows": [{"status": "available"}], "owners": {"vm": {"age": 9}}})
    assert evidence.owner_of(seen, seen.rows[0]) is None
    assert evidence.protection(seen, seen.rows[0], clock({})) == []


def test_all_reasons_for_protection_are_named() -> None:
    seen = view({"rows": [{**ROW, "age": 9}], "owners": {"vm": {"task": "spawning", "host": "gpu1"}}})
    task, written = evidence.protection(seen, seen.rows[0], clock({}))
    assert (task, WRITTEN in written) == ("instance vm has a task under way (spawning)", True)


def test_young_rows_and_owners() -> None:
    case = {"rows": [{**ROW, "age": 299}, {**ROW, "age": 300}], "owners": {"vm": {"age": 299}}}
    seen = view(case)
    row, instance = (f"{name} was written within the grace time" for name in ("row 1", "instance vm"))
    assert evidence.young(seen.rows, seen.owners["vm"], clock({})) == [row, instance]
    assert evidence.young(seen.rows, owner(), clock({})) == evidence.young(seen.rows, None, clock({})) == [row]
    assert evidence.young((), owner(absent=True), clock({})) == []


@pytest.mark.parametrize(
    ("row", "entry", "since"),
    [
        ({"age": 40}, {"age": 50, "moves": [{"status": "error", "age": 60}]}, 40),
        ({"age": 60}, {"age": 40, "moves": [{"status": "error", "age": 50}]}, 40),
        ({"age": 60}, {"age": 50, "moves": [{"status": "error", "age": 40}]}, 40),
        ({"age": None, "created": None}, {"absent": True}, None),
        ({"age": None, "created": 70}, {"absent": True, "moves": [{"status": "error", "age": None}]}, 70),
    ],
)
def test_stale_since_the_last_of_all_writes(row: dict[str, Any], entry: dict[str, Any], since: int | None) -> None:
    seen = view({"rows": [{**ROW, **row}], "owners": {"vm": entry}})
    assert evidence.stale_since(seen.rows[0], seen.owners["vm"]) == ago(since)


@pytest.mark.parametrize(("grace", "patience"), [(0, 300), (100, 300), (101, 303), (300, 900)])
def test_a_periodic_task_is_overdue_after_three_grace_times(grace: int, patience: int) -> None:
    limits = replace(clock({}), grace=timedelta(seconds=grace))
    assert not evidence.overdue(ago(patience), limits)
    assert evidence.overdue(ago(patience + 1), limits)
    assert not evidence.overdue(None, limits)


def requesting(wants: list[str | None] | None, held: list[str | None]) -> NodeView:
    """An instance of this node with requests, and rows that were claimed for requests."""
    rows = [{**ROW, "request": request} for request in held]
    return view({"rows": rows, "owners": {"vm": {"host": "gpu1", "wants": wants}}})


@pytest.mark.parametrize(
    ("wants", "held", "beyond", "missing", "surplus"),
    [
        (["r1"], ["r1"], (), 0, ()),
        (["r1"], ["r1", "old"], (2,), 0, (2,)),
        (["r1"], ["old", "r1", "older"], (1, 3), 0, (1, 3)),
        (["r1"], ["old"], (1,), 1, None),
        (["r1"], ["r1", "r1"], (1, 2), 0, None),  # which of both is the surplus is unknown
        (["r1"], ["r1", "r1", "old"], (1, 2, 3), 0, None),
        (["r1", "r1"], ["r1"], (), 1, None),
        (["r1", "r1"], ["r1", "r1"], (), 0, ()),
        (["r1", "r2"], ["r1"], (), 1, None),
        (["r1", "r2", "r3"], ["old"], (1,), 3, None),
        (["r1"], [], (), 1, None),
        ([None], [None], (), 0, None),  # before Zed, neither has an id
        ([None], [""], (), 0, None),
        ([""], [None], (), 0, None),
        ([None, "r1"], ["r1", None, "old"], (3,), 0, None),
        ([], ["old"], (1,), 0, None),
    ],
)
def test_rows_are_matched_with_requests_by_id(
    wants: list[str | None],
    held: list[str | None],
    beyond: tuple[int, ...],
    missing: int,
    surplus: tuple[int, ...] | None,
) -> None:
    seen = requesting(wants, held)
    asking, rows = seen.owners["vm"], seen.rows
    owned = evidence.belongings(asking, rows)
    assert owned is not None
    assert (tuple(row.id for row in owned.beyond), owned.missing) == (beyond, missing)
    found = evidence.surplus(asking, rows)
    assert (None if found is None else tuple(row.id for row in found)) == surplus
    assert evidence.lacks(seen, asking) == (missing > 0)
    assert list(evidence.lacking(seen)) == [asking] * (missing > 0)


@pytest.mark.parametrize("held", [[], ["r1"]])
def test_unreadable_requests_decide_nothing(held: list[str | None]) -> None:
    seen = requesting(None, held)
    asking = seen.owners["vm"]
    assert evidence.belongings(asking, seen.rows) is evidence.surplus(asking, seen.rows) is None
    assert evidence.lacks(seen, asking)
    assert list(evidence.lacking(seen)) == ([] if held else [asking])  # with devices, class F reports it


@pytest.mark.parametrize(
    ("entry", "here"),
    [
        ({"host": "gpu1"}, True),
        ({"host": "GPU1"}, True),
        ({"host": "gpu1.example.org"}, True),
        ({"host": "gpu2", "node": "gpu1"}, True),
        ({"host": "gpu1", "node": None}, True),
        ({"host": None, "node": "gpu1"}, True),
        ({"host": None, "node": None}, False),
        ({"host": "gpu2"}, False),
        ({"host": "gpu11"}, False),
        ({"host": "gpu1", "deleted": HOUR}, False),
        ({"absent": True}, False),
    ],
)
def test_an_instance_may_be_here_under_another_name(entry: dict[str, Any], here: bool) -> None:
    seen = view({"owners": {"vm": entry}})
    assert evidence.renamed(seen, seen.owners["vm"]) is here
    assert len(list(evidence.lacking(seen))) == here
    deleted = view({"owners": {"vm": entry}, "node": {"deleted": HOUR}})
    assert list(evidence.lacking(deleted)) == []
    nameless = replace(seen, node=replace(seen.node, host=None, hypervisor_hostname=None))
    assert not evidence.renamed(nameless, seen.owners["vm"])


@pytest.mark.parametrize(
    ("source", "destination", "pins"),
    [("gpu1", "gpu2", (2,)), ("gpu2", "GPU1", (2,)), ("gpu1.example", "gpu3", (2,)), ("gpu2", "gpu3", ())],
)
def test_only_migrations_in_error_of_this_node_pin(source: str, destination: str, pins: tuple[int, ...]) -> None:
    ends = {"from": source, "to": destination}
    moves = [{"status": status, **ends} for status in ("migrating", "error", "failed")]
    seen = view({"owners": {"vm": {"moves": moves}}})
    assert evidence.pinning(seen, seen.owners["vm"]) == pins


def test_rows_that_a_starting_nova_compute_misreads() -> None:
    rows = [
        {**ROW, "status": "free"},
        {**ROW, "status": "free", "deleted": 1},
        {"status": "unavailable"},
        {**ROW, "written": "VM"},
        {"status": "available"},
    ]
    assert [row.id for row in evidence.misread(view({"rows": rows, "owners": {"vm": {}}}))] == [1, 4]
    assert [row.id for row in evidence.misread(view({"rows": rows[:3], "owners": {"vm": {}}}))] == [1]


def test_work_that_a_stop_of_nova_compute_interrupts() -> None:
    moves = [
        {"of": "x", "status": status, "from": "gpu1", "to": "gpu2"}
        for status in ("running", "finished", "error", "completed", "accepted")
    ]
    owners = {"here": {"host": "gpu1", "task": "rebuilding"}, "calm": {"host": "gpu1"}, "away": {"task": "rebuilding"}}
    assert list(evidence.interrupted(view({"owners": owners, "moves": moves}))) == [
        "instance here has a task under way (rebuilding)",
        "migration 90 of instance x is under way (running)",
        "migration 94 of instance x is under way (accepted)",
    ]


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({}, f"nova-compute on gpu1 is down; it was last seen {ago(HOUR)}"),
        ({"service": {"seen": 5}}, f"nova-compute on gpu1 is up; it was last seen {ago(5)}"),
        ({"service": {"seen": None}}, "nova-compute on gpu1 is down; it was last seen never"),
        (
            {"doubt": "no service reports"},
            f"whether nova-compute on gpu1 runs is not known; it was last seen {ago(HOUR)}",
        ),
        ({"service": None}, "compute node gpu1 (id 1) has no nova-compute service"),
        ({"service": None, "node": {"deleted": HOUR}}, "compute node gpu1 (id 1) is deleted"),
    ],
)
def test_a_compute_node_is_described(case: dict[str, Any], words: str) -> None:
    assert evidence.node_words(view(case), clock(case)) == words


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "instance vm is active, on gpu2 (gpu2), cell cell1; it asks for 1 device"),
        (
            {"host": None, "state": "error"},
            "instance vm is error, on no host (no node), cell cell1; it asks for 1 device",
        ),
        ({"wants": None}, "instance vm is active, on gpu2 (gpu2), cell cell1; its requests can't be read"),
        ({"deleted": HOUR}, "instance vm is deleted"),
        ({"absent": True}, "instance vm does not exist in any cell"),
        ({"unknown": "cell2 could not be read"}, "cell2 could not be read"),
    ],
)
def test_an_owner_is_described(entry: dict[str, Any], words: str) -> None:
    assert evidence.owner_words(owner(**entry)) == words


def test_evidence_of_a_row_names_all_that_concerns_it() -> None:
    moves = [{"status": "error", "to": "gpu3"}]
    seen = view({"rows": [ROW, {"status": "available"}], "owners": {"vm": {"moves": moves}}})
    row, free = seen.rows
    away = row._replace(id=9, address="0000:91:00.0")
    seen = replace(seen, elsewhere={"vm": (("gpu2", away),), "other": (("gpu3", away),)})
    state = f"nova-compute on gpu1 is down; it was last seen {ago(HOUR)}"
    assert evidence.evidence_lines(seen, row, clock({})) == [
        f"row 1, 0000:81:00.0 (10de:11b4, type-PCI), is allocated; last written {ago(HOUR)}",
        state,
        "instance vm is active, on gpu2 (gpu2), cell cell1; it asks for 1 device",
        "migration 1 (migration, gpu1 to gpu3) is error",
        "the instance also holds, on gpu2, row 9, 0000:91:00.0 (10de:11b4, type-PCI), is allocated",
    ]
    unwritten = free._replace(updated_at=None, created_at=None)
    first = "row 2, 0000:82:00.0 (10de:11b4, type-PCI), is available; last written at an unknown time"
    assert evidence.evidence_lines(seen, unwritten, clock({})) == [first, state]


UNKNOWN = "the state of nova-compute there is unknown: "


def of_vm(case: dict[str, Any], seen: NodeView | None = None) -> Case:
    case = {"rows": [ROW], "owners": {"vm": {}}, **case}
    seen = seen or view(case)
    return Case(klass="A", title="left behind", view=seen, clock=clock(case), rows=seen.rows)


@pytest.mark.parametrize(
    ("case", "status", "because"),
    [
        (
            {"owners": {"vm": {"unknown": "cell2 was not read"}}, "service": None},
            Status.UNDECIDED,
            "cell2 was not read",
        ),
        (
            {"owners": {"vm": {"task": "spawning"}}, "service": None},
            Status.PROTECTED,
            "instance vm has a task under way",
        ),
        (
            {"rows": [{**ROW, "age": 299}]},
            Status.PROTECTED,
            "row 1, 0000:81:00.0 (10de:11b4, type-PCI), is allocated, and",
        ),
        ({"rows": [ROW, {**ROW, "age": 299}]}, Status.PROTECTED, "row 2, "),
        ({"doubt": "no service reports"}, Status.UNDECIDED, f"{UNKNOWN}no service reports"),
        ({"service": None}, Status.UNDECIDED, f"{UNKNOWN}this compute node has no service"),
        ({"service": {"seen": -HOUR, "written": HOUR}}, Status.UNDECIDED, f"{UNKNOWN}its last report is yet to come"),
    ],
    ids=["owner", "work", "row", "second row", "doubt", "no service", "time"],
)
def test_rules_are_held_back(case: dict[str, Any], status: Status, because: str) -> None:
    verdict = of_vm(case).held_back()
    assert verdict is not None
    assert (verdict.status, verdict.repair) == (status, None)
    assert verdict.because.startswith(because)


def test_a_service_of_another_host_shows_nothing() -> None:
    seen = view({"rows": [ROW], "owners": {"vm": {}}})
    assert seen.service is not None
    others = replace(seen, node=replace(seen.node, service_id=7), service=replace(seen.service, id=8))
    verdict = of_vm({}, others).held_back()
    assert verdict is not None
    assert verdict.because.startswith(f"{UNKNOWN}another service has written this compute node")


@pytest.mark.parametrize("case", [{}, {"service": {"seen": 5}}, {"service": None, "node": {"deleted": HOUR}}])
def test_a_rule_decides_on_what_is_known(case: dict[str, Any]) -> None:
    assert of_vm(case).held_back() is None


def test_each_reason_is_named_once() -> None:
    verdict = of_vm({"rows": [ROW, ROW], "owners": {"vm": {"age": 299, "task": "spawning"}}}).held_back()
    assert verdict is not None
    assert verdict.because == (
        "instance vm has a task under way (spawning); instance vm was written less than 300 seconds ago"
    )


def test_a_verdict_is_on_the_rows_of_its_case() -> None:
    case = of_vm({"rows": [ROW, ROW], "node": {"name": "gpu1.example"}})
    verdict = case.verdict(Status.STALE, "nothing needs it", repair=Repair.FREE, stop=True, migrations=(3,))
    assert (verdict.klass, verdict.title, verdict.because) == ("A", "left behind", "nothing needs it")
    assert (verdict.cell, verdict.host, verdict.node) == ("cell1", "gpu1", "gpu1.example")
    assert verdict.host_state is case.host_state is HostState.DOWN
    assert (verdict.rows, verdict.owner) == (case.view.rows, "vm")
    assert (verdict.repair, verdict.stop, verdict.migrations) == (Repair.FREE, True, (3,))
    assert (verdict.advice, verdict.then, verdict.starts) == ("", "", False)
    assert len(verdict.evidence) == 4  # both rows, the compute node and the owner
    plain = case.verdict(Status.HEALS, "by itself", starts=True, advice="wait", then="start it")
    assert (plain.repair, plain.stop, plain.migrations) == (None, False, ())
    assert (plain.advice, plain.then, plain.starts) == ("wait", "start it", True)


def test_a_compute_node_without_names_has_empty_ones() -> None:
    seen = view({})
    nameless = replace(seen, node=replace(seen.node, host=None, hypervisor_hostname=None))
    known = about("A", "", nameless, clock({}))
    assert (known["host"], known["node"]) == ("", "")


@pytest.mark.parametrize(("seen", "up"), [(5, True), (HOUR, False)])
def test_nova_compute_that_is_up_holds_the_rows(seen: int, up: bool) -> None:
    assert of_vm({"service": {"seen": seen}}).up is up
