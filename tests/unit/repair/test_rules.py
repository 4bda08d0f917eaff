"""Every class, and for every class what looks like it and must be left alone, as cases in data (``cases/*.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpustack.repair import rules
from gpustack.repair.rules._stuck import PAGE
from gpustack.repair.verdict import Status, Verdict
from support import allocation, neighbourhood
from support.cleanup_cases import CASES


def short(verdict: Verdict) -> str:
    """``A stale free rows 1 2 stop``: what a case says of a verdict."""
    fields = [verdict.klass, verdict.status.value]
    if verdict.repair:
        fields.append(verdict.repair.value)
    fields += [str(row.id) for row in verdict.rows]
    if verdict.migrations:
        fields += ["moves", *map(str, verdict.migrations)]
    if verdict.stop:
        fields.append("stop")
    return " ".join(fields)


def judged(case: dict[str, Any]) -> list[Verdict]:
    """The verdicts of all classes that a case has the facts of."""
    of_placement = allocation.verdicts(case, case["placement"]) if "placement" in case else []
    return [*rules.judge(neighbourhood.view(case), neighbourhood.clock(case)), *of_placement]


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case: dict[str, Any]) -> None:
    verdicts = judged(case)
    assert sorted(map(short, verdicts)) == sorted(case["verdicts"]), [v.because for v in verdicts]


@pytest.mark.parametrize("case", CASES)
def test_a_row_is_reported_once_and_with_reasons(case: dict[str, Any]) -> None:
    verdicts = judged(case)
    ids = [row.id for verdict in verdicts for row in verdict.rows]
    assert len(ids) == len(set(ids))
    for verdict in verdicts:
        assert verdict.because
        assert verdict.evidence
        assert (verdict.repair is not None) == (verdict.status.value == "stale")


@pytest.mark.parametrize("owner", [{"task": "resize_migrating"}, {"in_several_cells": True, "host": "gpu9"}])
@pytest.mark.parametrize(("stuck_after", "limit"), [(3600, 86400), (600, 14400), (0, 0)])
def test_longer_limit_is_named_in_seconds(owner: dict[str, Any], stuck_after: int, limit: int) -> None:
    def verdict(age: int) -> Verdict:
        case = {
            "stuck_after": stuck_after,
            "service": {"seen": 5},
            "rows": [{"status": "allocated", "owner": "vm"}],
            "owners": {"vm": {**owner, "age": age, "moves": [{"status": "migrating", "from": "gpu2", "age": age}]}},
        }
        (verdict,) = judged(case)
        return verdict

    assert verdict(limit).status is Status.STUCK
    assert verdict(limit).because.endswith(f", for at least {limit} seconds (24 times --stuck-after)")
    if limit:
        assert verdict(limit - 1).status is Status.PROTECTED


@pytest.mark.parametrize(("seen", "state"), [(7200, "has been down since 2"), (None, "is down and has never reported")])
def test_down_host_is_named_with_its_last_report(seen: int | None, state: str) -> None:
    case = {
        "stuck_after": 3600,
        "services": {"gpu2": {"seen": seen}},
        "rows": [{"status": "allocated", "owner": "vm"}],
        "owners": {"vm": {"host": "gpu2", "task": "powering-on"}},
    }
    (verdict,) = judged(case)
    assert verdict.status is Status.STUCK
    assert f"nova-compute on gpu2 {state}" in verdict.because
    assert verdict.because.endswith(" and must continue the work")


LONG = {"task": "resize_migrating", "age": 4000}
COPY = {"status": "migrating", "from": "gpu2", "to": "gpu1", "age": 5000}


def of_instance(entry: Mapping[str, Any], **case: Any) -> Verdict:
    """The verdict on a row of gpu1 that names an instance."""
    rows = [{"status": "allocated", "owner": "vm"}]
    (verdict,) = judged({"stuck_after": 3600, "service": {"seen": 5}, "rows": rows, "owners": {"vm": entry}, **case})
    return verdict


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({**LONG, "moves": [COPY]}, ("resize_migrating", 4000, ("gpu2", "gpu1"), True)),
        ({**LONG, "moves": [COPY, {**COPY, "age": 3700}]}, ("resize_migrating", 3700, ("gpu2", "gpu1"), True)),
        ({**LONG, "age": 3600}, ("resize_migrating", 3600, ("gpu2",), True)),
        ({**LONG, "age": 3599}, None),
        ({**LONG, "moves": [{**COPY, "age": 3599}]}, None),
        ({"task": "unshelving", "age": 4000}, ("unshelving", 4000, ("gpu2",), False)),
        ({**LONG, "host": "gpu3", "moves": [COPY]}, ("resize_migrating", 4000, ("gpu2", "gpu1"), True)),
        ({**LONG, "host": None}, ("resize_migrating", 4000, (), True)),
        ({**LONG, "moves": [{**COPY, "type": "evacuation"}]}, ("resize_migrating", 4000, ("gpu1",), True)),
        ({**LONG, "in_several_cells": True}, ("resize_migrating", 4000, (), True)),
        ({"age": 4000, "in_several_cells": True}, ("", 4000, (), False)),
        ({"task": "folding_proteins", "age": 4000}, ("folding_proteins", 4000, ("gpu2",), False)),
        ({"age": 4000, "state": "resized", "moves": [{**COPY, "status": "finished"}]}, None),
        ({"age": 4000}, None),
    ],
)
def test_work_that_may_wait_for_a_nova_compute_is_described(
    entry: dict[str, Any], expected: tuple[str, int, tuple[str, ...], bool] | None
) -> None:
    waiting = of_instance(entry).waiting
    if expected is None or waiting is None:
        assert waiting is expected
        return
    task, age, hosts, by_compute = expected
    assert (waiting.instance, waiting.task, waiting.since) == ("vm", task, neighbourhood.ago(age))
    assert (waiting.age, waiting.younger) == (timedelta(seconds=age), timedelta(seconds=age - 60))
    assert (waiting.hosts, waiting.by_compute) == (hosts, by_compute)
    assert waiting.advice


def test_a_lost_move_is_recorded_as_it_was_seen() -> None:
    verdict = of_instance({"moves": [{**COPY, "age": 3700}]})
    move, since = verdict.lingering, neighbourhood.ago(3700)
    assert move is not None
    assert (move.status, move.source_compute, move.updated_at) == ("migrating", "gpu2", since)
    assert "the instance is at its source, gpu2" in verdict.because
    assert (verdict.again, verdict.waiting) == (None, None)


@pytest.mark.parametrize(
    ("elsewhere", "crossing", "age", "status"),
    [
        (True, False, 86399, "protected"),
        (True, False, 86400, "stuck"),
        (False, True, 86399, "protected"),
        (False, True, 86400, "stuck"),
        (False, False, 3600, "stale"),
    ],
)
def test_hosts_of_another_cell_may_continue_the_work(elsewhere: bool, crossing: bool, age: int, status: str) -> None:
    case = {
        "stuck_after": 3600,
        "service": {"seen": 5},
        "rows": [{"status": "allocated", "owner": "vm"}],
        "owners": {"vm": {"age": age, "moves": [{**COPY, "age": age}]}},
    }
    seen = neighbourhood.view(case)
    owner = seen.owners["vm"]
    move = replace(owner.migrations[0], cross_cell_move=crossing)
    moved = replace(owner, migrations=(move,), migrations_elsewhere=(replace(move, id=2),) if elsewhere else ())
    (verdict,) = rules.judge(replace(seen, owners={"vm": moved}), neighbourhood.clock(case))
    assert verdict.status == status, verdict.because
    if status == "protected":
        assert verdict.waiting is not None
        assert verdict.waiting.hosts == ()


@pytest.mark.parametrize(
    ("case", "again"),
    [
        ({"rows": [{"status": "allocated", "owner": "vm", "age": 20}]}, 280),
        ({"rows": [{"status": "allocated", "owner": "vm", "age": 20}], "owners": {"vm": {"age": 10}}}, 290),
        ({"owners": {"vm": {"moves": [{"status": "error", "age": 30}, {"status": "error", "age": 40}]}}}, 270),
        ({"rows": [{"status": "allocated", "owner": "vm", "age": 20}], "owners": {"vm": {"task": "spawning"}}}, None),
        ({"service": {"seen": 5}, "node": {"age": 5}}, None),
        ({"rows": [{"status": "unavailable"}], "out_of_service": ["0000:81:00.0"]}, None),
    ],
    ids=["row", "instance", "migrations", "work", "heals", "out of service"],
)
def test_end_of_the_grace_time_is_named_if_only_it_protects(case: dict[str, Any], again: int | None) -> None:
    (verdict,) = judged({"rows": [{"status": "allocated", "owner": "vm"}], "owners": {"vm": {}}, **case})
    assert verdict.again == (None if again is None else neighbourhood.NOW + timedelta(seconds=again))


@pytest.mark.parametrize(
    ("entry", "case", "advice"),
    [
        (
            {"task": "rebuilding", "moves": [{"status": "pre-migrating", "type": "evacuation"}], "host": "gpu3"},
            {"services": {"gpu2": {}}},
            "evacuate it again; the record 1 is what its old host needs",
        ),
        (
            {"moves": [{"status": "migrating"}]},
            {},
            f"the hosts of migration 1, as {PAGE} shows; then: openstack server set --state active vm; set the",
        ),
        ({"moves": [{"status": "migrating"}], "deleted": 7200}, {}, f"as {PAGE} shows; then: set the migration"),
        (
            {"state": "resized", "moves": [{"status": "finished"}]},
            {"services": {"gpu2": {}}},
            f"confirm or revert the resize of vm; if the host is lost, follow {PAGE} for migration 1",
        ),
        ({"in_several_cells": True, "age": 90000, "task": "resize_prep"}, {}, "hosts of migration (none)"),
    ],
    ids=["evacuation", "alive", "deleted", "resized", "without migration"],
)
def test_advice_for_a_stuck_migration(entry: dict[str, Any], case: dict[str, Any], advice: str) -> None:
    verdict = of_instance(entry, **case)
    assert verdict.status is Status.STUCK
    assert advice in verdict.advice


OTHER_CARD = {"hardware": {"present": {"0000:81:00.0": "10de:20b5 type-PF"}}, "service": {"seen": 5}}
IN_USE = ": a device in use may go to another instance"


@pytest.mark.parametrize(
    ("klass", "case", "because"),
    [
        ("C", {"node": {"deleted": 7200}, "rows": [{"status": "available"}]}, "and nobody owns the device"),
        ("C", {"node": {"deleted": 7200}}, "and its owner is not on this host"),
        ("L", {"rows": [], "owners": {"vm": {"host": "gpu1"}}}, f"asks for 1 device, and 1 of them has no row{IN_USE}"),
        (
            "O",
            {**OTHER_CARD, "rows": [{"status": "available"}]},
            "the host has another device at 0000:81:00.0: 10de:20b5, type-PF",
        ),
        (
            "L",
            {"owners": {"vm": {"host": "gpu1", "wants": ["r1", "r2"]}}},
            f"2 devices, and 2 of them have no row; 1 row of it beyond its requests{IN_USE}",
        ),
    ],
)
def test_reasons_name_what_was_seen(klass: str, case: dict[str, Any], because: str) -> None:
    verdicts = judged({"rows": [{"status": "allocated", "owner": "vm"}], "owners": {"vm": {}}, **case})
    (reason,) = (verdict.because for verdict in verdicts if verdict.klass == klass)
    assert reason.endswith(because)


@pytest.mark.parametrize(
    ("node", "rows", "evidence"),
    [
        ({"pci_stats": None}, [], ("not written at all", "1 of 10de:11b4 type-PCI")),
        ({}, [{"status": "available", "age": 1}], None),
        (
            {"pci_stats": '{"nova_object.data": {"objects": []}}'},
            [{"status": "available", "type": "type-VF"}, {"status": "available"}],
            ("none", "2 of 10de:11b4 type-PCI, 1 of 10de:11b4 type-VF"),
        ),
    ],
)
def test_pools_are_shown_beside_the_free_rows(
    node: dict[str, Any], rows: list[dict[str, Any]], evidence: tuple[str, str] | None
) -> None:
    case = {"service": {"seen": 5}, "node": node, "rows": [{"status": "available"}, *rows]}
    shown = [verdict.evidence[:2] for verdict in judged(case)]
    lines = evidence and (f"the pools are {evidence[0]}", f"the free rows are {evidence[1]}")
    assert shown == ([lines] if lines else [])


BLOCKED = {"status": "unavailable", "owner": "vm", "type": "type-VF", "parent": "0000:81:00.0"}


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ([{"status": "available"}], False),
        ([{"status": "allocated", "owner": "vm", "request": "r1"}], True),
        ([{"status": "allocated", "owner": "vm", "request": "r1", "type": "type-PF"}, BLOCKED], True),
    ],
)
def test_instance_whose_device_is_gone_is_looked_at_first(rows: list[dict[str, Any]], taken: bool) -> None:
    owners = {"vm": {"host": "gpu1"}} if taken else {}
    verdicts = judged({"service": {"seen": 5}, "hardware": {"present": {}}, "rows": rows, "owners": owners})
    assert [verdict.klass for verdict in verdicts] == ["O"] * len(rows)
    for verdict in verdicts:
        assert verdict.advice.startswith("look at the instance's domain; cold-migrate it away") is taken
        assert verdict.advice.endswith("run gpustack cleanup plan --ask-hosts --host gpu1")
        assert verdict.then.endswith("restart nova-compute: it removes a free row, and adds a right one")


def test_every_class_has_a_case_that_is_wrong_and_one_that_is_left_alone() -> None:
    outcomes = {tuple(verdict.split()[:2]) for parameter in CASES for verdict in parameter.values[0]["verdicts"]}
    for rule in rules.RULES:
        if rule.CLASS == "M":
            continue  # told as A, B and C
        reported = {"stale", "report", "heals"}
        assert any((rule.CLASS, status) in outcomes for status in reported), rule.CLASS
        calm = [p for p in CASES if p.id and p.id.startswith(rule.__name__.rpartition(".")[2][0])]
        assert any(
            all(v.split()[1] in ("protected", "undecided", "heals", "report") for v in p.values[0]["verdicts"])
            for p in calm
        ), rule.CLASS


@pytest.mark.parametrize(
    ("owner", "advice"),
    [
        ({"task": "powering-on"}, "openstack server set --state active vm"),
        (
            {"task": "unshelving", "host": None, "state": "shelved_offloaded", "age": 90000},
            "task_state of the instance",
        ),
        ({"state": "building"}, "openstack server delete vm"),
    ],
)
def test_advice_for_a_stuck_task_without_a_migration(owner: dict[str, Any], advice: str) -> None:
    """There is no other host and no migration to end; an instance without a host must not be made active."""
    case = {"stuck_after": 3600, "rows": [{"status": "allocated", "owner": "vm"}], "owners": {"vm": owner}}
    (verdict,) = rules.judge(neighbourhood.view(case), neighbourhood.clock(case))
    assert verdict.status is Status.STUCK
    assert advice in verdict.advice
    assert "migration" not in verdict.advice
    assert ("--state active" in verdict.advice) == ("host" not in owner and "task" in owner)


@pytest.mark.parametrize("owner", [{"hidden": True}, {"in_several_cells": True, "task": "resize_prep", "age": 90000}])
def test_advice_for_a_stuck_move_between_cells(owner: dict[str, Any]) -> None:
    """Its migration is in the other cell, and the instance that the API reaches may be there too."""
    case = {"stuck_after": 3600, "rows": [{"status": "allocated", "owner": "vm"}], "owners": {"vm": owner}}
    (verdict,) = rules.judge(neighbourhood.view(case), neighbourhood.clock(case))
    assert verdict.status is Status.STUCK
    assert "hosts of migration" in verdict.advice
