"""Every class, and for every class what looks like it and must be left alone, as cases in data (``cases/*.yaml``)."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.repair import rules
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
