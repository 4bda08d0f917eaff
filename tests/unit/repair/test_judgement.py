"""What holds a rule back, in this order: unknown owners, work and recent writes, an unknown state of nova-compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.novadb.clock import HostState
from gpustack.novadb.view import NodeView
from gpustack.repair.judgement import Case, about
from gpustack.repair.verdict import Repair, Status
from support.neighbourhood import HOUR, clock, view

ROW = {"status": "allocated", "owner": "vm"}
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
