"""Which hosts are asked before a repair, and about which devices; which repairs a start of nova-compute forbids."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpustack.novadb.view import HostState, NodeView
from gpustack.repair import questions, rules
from gpustack.repair.verdict import HeldDevice, Origin, Question, Repair, Status, Verdict
from support import allocation, neighbourhood

ONE, TWO, THREE = (f"0000:8{number}:00.0" for number in (1, 2, 3))
MODEL = "10de:11b4"
UP = {"service": {"seen": 5}}
STOPPED = {"service": {"seen": 300}, "stopped": ["gpu1"]}
OWNED = {"status": "allocated", "owner": "vm", "request": "old"}
KEPT = {"status": "allocated", "owner": "vm", "request": "r1"}
MOVE = {"status": "error", "from": "gpu2", "to": "gpu1"}
SPARED = "nova-compute does the same when it starts, before it offers the device"
OF_DELETED = "no nova-compute reads the rows of a deleted compute node"


def judged(case: dict[str, Any], klass: str, seen: NodeView | None = None) -> Verdict:
    """The verdict of a class on an instance's row; the compute node and its service were last written an hour ago."""
    case = {"rows": [OWNED], "owners": {"vm": {}}, **case}
    verdicts = rules.judge(seen or neighbourhood.view(case), neighbourhood.clock(case))
    return next(verdict for verdict in verdicts if verdict.klass == klass)


def question(**values: Any) -> Question:
    """A question to gpu1, whose nova-compute is down, about the free device of an instance that is elsewhere."""
    known = {"names": {"gpu1"}, "offered": {ONE: MODEL}, "absent": "vm", "state": HostState.DOWN, **values}
    frozen = {name: frozenset(value) if isinstance(value, set) else value for name, value in known.items()}
    return Question(**{"host": "gpu1", **frozen})


START = question(offered={}, absent=None, kept={}, rows={ONE: MODEL}, state=HostState.UP)
OTHER_END = question(host="gpu2", names={"gpu2"}, offered={}, absent=None, state=HostState.UP)


@pytest.mark.parametrize(
    ("case", "klass", "expected"),
    [
        ({}, "A", [question(spared=SPARED)]),
        ({"node": {"name": "gpu1.example"}}, "A", [question(names={"gpu1", "gpu1.example"}, spared=SPARED)]),
        (
            {"rows": [{**OWNED, "address": "0000:AF:00.0"}]},
            "A",
            [question(offered={"0000:af:00.0": MODEL}, spared=SPARED)],
        ),
        ({"rows": [{**OWNED, "owner": "VM"}], "owners": {"VM": {}}}, "A", [question(spared=SPARED)]),
        # Both hosts of a migration, and all devices of the instance, which Nova frees together.
        ({"owners": {"vm": {"moves": [MOVE]}}}, "B", [question(), OTHER_END]),
        ({**UP, "owners": {"vm": {"moves": [MOVE]}}}, "B", [question(state=HostState.UP), OTHER_END]),
        (
            {**UP, "rows": [OWNED, OWNED], "owners": {"vm": {"absent": True, "moves": [MOVE]}}},
            "E",
            [question(offered={ONE: MODEL, TWO: MODEL}, state=HostState.UP), replace(OTHER_END, absent="vm")],
        ),
        (
            {"services": {"gpu2": {}}, "owners": {"vm": {"host": "gpu3", "moves": [MOVE]}}},
            "B",
            [question(), replace(OTHER_END, absent="vm", state=HostState.DOWN)],
        ),
        (
            {**UP, "stuck_after": 3600, "owners": {"vm": {"moves": [{**MOVE, "status": "migrating"}]}}},
            "A",
            [question(state=HostState.UP), replace(OTHER_END, younger=timedelta(seconds=3540))],
        ),
        # A row that Nova does not manage: only the use by its instance counts, or by an unknown process.
        (
            {"rows": [{**OWNED, "deleted": 1}]},
            "D",
            [question(offered={}, near={ONE}, rows={ONE: MODEL}, by={"vm", ""}, spared=SPARED)],
        ),
        (
            {"rows": [{**OWNED, "deleted": 1}, {"status": "available"}]},
            "D",
            [question(offered={}, near={ONE}, rows={TWO: MODEL}, by={"vm", ""}, spared=SPARED)],
        ),
        (
            {"rows": [{**OWNED, "deleted": 1}, KEPT], "owners": {"vm": {"host": "gpu1"}}},
            "D",
            [question(offered={}, near={ONE}, rows={TWO: MODEL}, by={"vm", ""}, absent=None)],
        ),
        (
            {"node": {"deleted": 7200}, "service": None},
            "C",
            [
                question(
                    offered={}, near={ONE}, rows={ONE: MODEL}, by={"vm", ""}, state=HostState.GONE, spared=OF_DELETED
                )
            ],
        ),
        (
            {"node": {"deleted": 7200}, "service": None, "rows": [{"status": "available"}]},
            "C",
            [
                question(
                    offered={},
                    near={ONE},
                    rows={ONE: MODEL},
                    by={""},
                    absent=None,
                    state=HostState.GONE,
                    spared=OF_DELETED,
                )
            ],
        ),
        # nova-compute is started: each device in use must have a row that names its user.
        (
            {**STOPPED, "rows": [KEPT, OWNED], "owners": {"vm": {"host": "gpu1"}}},
            "F",
            [
                question(offered={TWO: MODEL}, absent=None, state=HostState.STOPPED),
                replace(START, kept={ONE: "vm", TWO: "vm"}, rows={ONE: MODEL, TWO: MODEL}, state=HostState.STOPPED),
            ],
        ),
        (
            {**STOPPED, "rows": [{"status": "available", "owner": "vm"}], "owners": {"vm": {"absent": True}}},
            "J",
            [question(state=HostState.STOPPED), replace(START, state=HostState.STOPPED)],
        ),
        ({**UP, "rows": [{"status": "allocated"}]}, "J", [START]),
        (
            {**UP, "rows": [{"status": "allocated"}, {**OWNED, "address": "0000:AF:00.0"}]},
            "J",
            [replace(START, rows={ONE: MODEL, "0000:af:00.0": MODEL})],  # the periodic frees that of another host
        ),
        (
            {
                **UP,
                "rows": [{"status": "allocated"}, {**OWNED, "owner": "vm"}],
                "owners": {"vm": {"moves": [{"status": "error"}]}},
            },
            "J",
            [replace(START, kept={TWO: "vm"}, rows={ONE: MODEL, TWO: MODEL})],  # the migration keeps it
        ),
        (
            {
                **UP,
                "rows": [{"status": "allocated"}, {**OWNED, "owner": "vm"}],
                "owners": {"vm": {"moves": [{"status": "failed"}, {"status": "error", "from": "gpu3"}]}},
            },
            "J",
            [replace(START, rows={ONE: MODEL, TWO: MODEL})],
        ),
        (
            {
                **UP,
                "rows": [{"status": "allocated"}, KEPT],
                "owners": {"vm": {"host": "gpu1", "moves": [{"status": "error", "type": "live-migration"}]}},
            },
            "J",
            [replace(START, kept={TWO: "vm"}, rows={ONE: MODEL, TWO: MODEL}, resident={"vm": frozenset({TWO})})],
        ),
        (
            {
                **UP,
                "rows": [{"status": "allocated"}, KEPT],
                "owners": {
                    "vm": {"host": "gpu1", "state": "stopped", "moves": [{"status": "error", "type": "live-migration"}]}
                },
            },
            "J",
            [replace(START, kept={TWO: "vm"}, rows={ONE: MODEL, TWO: MODEL})],
        ),
        (
            {
                **UP,
                "rows": [{"status": "allocated"}, KEPT],
                "owners": {
                    "vm": {
                        "host": "gpu1",
                        "moves": [{"status": "error"}, {"status": "completed", "type": "live-migration"}],
                    }
                },
            },
            "J",
            [replace(START, kept={TWO: "vm"}, rows={ONE: MODEL, TWO: MODEL})],
        ),
    ],
)
def test_hosts_are_asked_about_what_a_repair_may_free(
    case: dict[str, Any], klass: str, expected: list[Question]
) -> None:
    verdict = judged(case, klass)
    assert verdict.status is Status.STALE
    assert verdict.questions == tuple(expected)
    assert verdict.seen


PF, VF = "0000:c1:00.0", "0000:c1:00.4"
PARENT = {"status": "unavailable", "type": "type-PF", "address": "0000:C1:00.0"}
CHILD = {"status": "unavailable", "type": "type-VF", "address": "0000:c1:00.4", "parent": "0000:C1:00.0"}


@pytest.mark.parametrize(
    ("rows", "offered", "near"),
    [
        ([{**PARENT, **OWNED}, CHILD], {PF, VF}, {PF}),  # the virtual function is offered with it
        ([PARENT, {**CHILD, **OWNED}], {PF, VF}, {PF}),
        ([{**PARENT, **OWNED}, {**CHILD, "status": "available"}], {PF}, {VF}),
        ([{**PARENT, "status": "available"}, {**CHILD, **OWNED}], {VF}, {PF}),
        ([{**PARENT, **OWNED}, {**CHILD, "deleted": 1, "owner": "gone"}], {PF}, set()),
        ([{**PARENT, **OWNED}, {**CHILD, "status": "available", "parent": "0000:c2:00.0"}], {PF}, set()),
    ],
)
def test_relatives_of_a_freed_function_are_asked_about(
    rows: list[dict[str, Any]], offered: set[str], near: set[str]
) -> None:
    (asked,) = judged({"rows": rows, "owners": {"vm": {}, "gone": {"absent": True}}}, "A").questions or ()
    assert (asked.offered.keys(), asked.near) == (offered, near)


def test_devices_on_the_other_host_of_a_migration_are_asked_about() -> None:
    case = {**UP, "rows": [OWNED], "owners": {"vm": {"host": "gpu3", "moves": [MOVE]}}}
    seen = neighbourhood.view(case)
    (row,) = seen.rows
    others = [
        (host, row._replace(id=number, compute_node_id=2, address=f"0000:AF:00.{number}", deleted=number == 9 and 9))
        for number, host in ((5, "GPU2"), (6, "gpu3"), (7, "gpu2.example"), (9, "gpu2"))
    ]
    _here, there = judged(case, "B", replace(seen, elsewhere={"vm": tuple(others)})).questions or ()
    assert there == replace(OTHER_END, offered={"0000:af:00.5": MODEL}, absent="vm")


@pytest.mark.parametrize(("host", "absent"), [("gpu1", None), ("gpu2", "stranger")])
def test_an_allocation_is_removed_only_if_its_instance_uses_no_device(host: str, absent: str | None) -> None:
    case = {**UP, "rows": [{"status": "available"}, {"status": "available", "address": "0000:AF:00.0"}]}
    owner = {"stranger": {"host": host, "age": 400, "wants": []}}
    (verdict,) = allocation.verdicts({**case, "owners": owner, "providers": [ONE]}, [{"stranger": 1}])
    assert verdict.repair is Repair.UNSET_ALLOCATION
    assert verdict.questions == (question(near={ONE}, by={"stranger", ""}, absent=absent, state=HostState.UP),)


# --- without an answer -----------------------------------------------------------------------------------------------


def spared(case: dict[str, Any] | None = None, **changes: Any) -> str:
    """The reason for the verdict on a row of an instance that is elsewhere, on a host that is down."""
    case = {"rows": [OWNED], "owners": {"vm": {}}, **(case or {})}
    view, clock = neighbourhood.view(case), neighbourhood.clock(case)
    verdict = judged({}, "A")
    return questions._spared(dataclasses.replace(verdict, **{"rows": view.rows, **changes}), view, clock)


@pytest.mark.parametrize(
    ("case", "repair"),
    [
        ({}, Repair.FREE),
        ({"service": {"forced_down": True}}, Repair.FREE),
        (STOPPED, Repair.FREE),
        ({"node": {"deleted": 7200}, "service": None}, Repair.RETIRE),
        ({"rows": [{"status": "allocated"}]}, Repair.FREE),
        ({"owners": {"vm": {}, "lacking": {"host": "gpu1"}}}, Repair.CLEAR_DELETED),
        ({"owners": {"vm": {"moves": [{"status": "error", "to": "gpu3", "from": "gpu2"}]}}}, Repair.FREE),
    ],
)
def test_a_host_that_is_down_frees_the_device_by_itself(case: dict[str, Any], repair: Repair) -> None:
    assert spared(case, repair=repair) == (SPARED if "node" not in case else OF_DELETED)


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ({}, {"stop": True}),
        ({}, {"migrations": (5,)}),
        ({}, {"repair": Repair.CLEAR_OWNER}),
        ({}, {"repair": Repair.FAIL_MIGRATION}),
        (UP, {}),
        ({"service": None, "stopped": ["gpu1"]}, {}),
        ({"doubt": "no service reports"}, {}),
        ({"owners": {"vm": {}, "lacking": {"host": "gpu1"}}}, {}),
        ({"owners": {"vm": {"host": "GPU1", "wants": ["old"]}}}, {}),
        ({"owners": {"vm": {"task": "spawning"}}}, {}),
        ({"owners": {"vm": {"moves": [{"status": "error"}]}}}, {}),
    ],
    ids=str,
)
def test_a_repair_that_nova_would_not_make_needs_an_answer(case: dict[str, Any], change: dict[str, Any]) -> None:
    assert spared(case, **change) == ""


# --- starts of nova-compute ------------------------------------------------------------------------------------------

RESTART = {**UP, "rows": [{"status": "allocated"}], "owners": {}}


@pytest.mark.parametrize(
    ("more", "status", "because", "advice"),
    [
        (
            {"owners": {"x": {"host": "gpu1"}}},
            Status.REPORT,
            "instance x lacks a device, or may",
            "before class L is settled",
        ),
        ({"owners": {"x": {"host": "gpu1", "task": "spawning"}}}, Status.PROTECTED, "instance x lacks a device", ""),
        (
            {"rows": [{"status": "allocated"}, {"status": "free"}]},
            Status.REPORT,
            "row 2, ",
            "before class U is settled",
        ),
        (
            {"owners": {"x": {"host": "gpu1", "task": "rebuilding", "wants": []}}},
            Status.REPORT,
            "a stop of nova-compute would break off work: instance x has a task under way (rebuilding)",
            "before this work ends",
        ),
    ],
)
def test_nova_compute_is_not_started_where_that_does_harm(
    more: dict[str, Any], status: Status, because: str, advice: str
) -> None:
    assert judged(RESTART, "J").repair is Repair.RESTART
    verdict = judged({**RESTART, **more}, "J")
    assert (verdict.status, verdict.repair, verdict.stop, verdict.then) == (status, None, False, "")
    assert verdict.because.startswith("nobody owns the device; nova-compute frees it when it starts; but ")
    assert because in verdict.because
    assert advice in verdict.advice
    assert bool(verdict.advice) is bool(advice)
    assert verdict.questions is None


def test_a_host_that_is_down_has_no_work_that_its_start_interrupts() -> None:
    work = {"x": {"host": "gpu1", "task": "rebuilding", "wants": []}}
    verdict = judged({**RESTART, "service": {}, "owners": work}, "J")
    assert (verdict.status, verdict.starts) == (Status.HEALS, True)
    lacking = judged({**RESTART, "service": {}, "owners": {"x": {"host": "gpu1"}}}, "J")
    assert (lacking.status, lacking.starts) == (Status.REPORT, False)


def test_a_repair_without_a_start_is_made_beside_an_instance_that_lacks_a_device() -> None:
    verdict = judged({"owners": {"vm": {}, "x": {"host": "gpu1"}}}, "A")
    assert (verdict.status, verdict.repair) == (Status.STALE, Repair.FREE)


def test_advice_to_restart_waits_for_the_answer_of_the_host() -> None:
    verdict = judged({**UP, "owners": {"vm": {"deleted": 7200}}}, "R")
    assert verdict.status is Status.REPORT
    assert verdict.questions == (START,)
    look = 'look for "Error updating resources for node" in the log of nova-compute, and fix that first'
    ask = "before nova-compute is restarted, run gpustack cleanup plan --ask-hosts --host gpu1"
    assert verdict.advice == f"{look}; {ask}"
    assert verdict.then == f"{look}; if there is none, restart nova-compute"


@pytest.mark.parametrize("status", [Status.PROTECTED, Status.UNDECIDED, Status.STUCK])
def test_other_verdicts_ask_nobody_and_advise_no_start(status: Status) -> None:
    case = {"rows": [OWNED], "owners": {"vm": {}}}
    verdict = replace(judged(case, "A"), questions=None, status=status, then="restart nova-compute", seen=())
    assert questions.prepared(verdict, neighbourhood.view(case), neighbourhood.clock(case)) == replace(verdict, then="")


def test_questions_are_determined_once() -> None:
    verdict = judged({}, "A")
    moved = neighbourhood.view({**UP, "rows": [OWNED], "owners": {"vm": {"host": "gpu1"}}})
    assert questions.prepared(verdict, moved, neighbourhood.clock({})) is verdict


# --- what the journal records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "place"),
    [({}, ("gpu2", "gpu2", "")), ({"deleted": 7200}, None), ({"absent": True}, None)],
)
def test_the_origin_of_a_repair_is_recorded(owner: dict[str, Any], place: tuple[str, str, str] | None) -> None:
    verdict = judged({"owners": {"vm": owner}}, "A" if place else "E")
    assert verdict.origin == Origin(node_id=1, node_uuid="node", node_deleted=False, owner=place)
    assert verdict.held == ()


def test_a_deleted_compute_node_and_the_held_devices_are_recorded() -> None:
    retired = judged({"node": {"deleted": 7200}, "service": None}, "C").origin
    assert retired is not None
    assert retired.node_deleted
    (held,) = judged({"owners": {"vm": {"moves": [MOVE]}}}, "B").held
    assert held == HeldDevice(
        host="gpu1",
        id=1,
        compute_node_id=1,
        address=ONE,
        status="allocated",
        instance_uuid="vm",
        request_id="old",
        deleted=0,
    )


def test_the_users_of_related_functions_are_recorded() -> None:
    virtual = {"address": "0000:81:00.1", "parent": ONE, "type": "type-VF"}
    taken = {"status": "allocated", "owner": "other", "request": "r1", **virtual}
    rows = [{**OWNED, "type": "type-PF"}, taken, {"status": "available", **virtual, "address": "0000:81:00.2"}]
    origin = judged({"rows": rows, "owners": {"vm": {}, "other": {"host": "gpu1"}}}, "A").origin
    assert origin is not None
    assert origin.beside == {"0000:81:00.1": "other"}


def test_the_users_of_an_allocated_device_are_recorded() -> None:
    taken = [{**KEPT, "owner": "x"}, {**KEPT, "owner": "y", "address": "0000:99:00.0"}, {"status": "available"}]
    owners = {"x": {"host": "gpu1"}, "y": {"host": "gpu1"}, "stranger": {"age": 400}}
    (verdict,) = allocation.verdicts(
        {**UP, "rows": taken, "owners": owners, "providers": [ONE]}, [{"stranger": 1, "x": 1}]
    )
    assert verdict.origin is not None
    assert verdict.origin.users == ("x",)
