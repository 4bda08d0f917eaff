"""Which times of a cell are current, which verdicts are chosen, and which databases are read and never written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.novadb.clock import CURRENT
from gpustack.novadb.other_cells import Identity
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.classes import CLASSES
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Question, Repair, Status, Verdict
from support.cellfile import CellFile, nova_conf, silence
from support.neighbourhood import NOW, ago, clock, view

GPU = "0000:01:00.0"


def reports(**ages: int) -> dict[str, Any]:
    """The last report of each kind of service, by age in seconds."""
    return {f"nova-{name}": ago(age) for name, age in ages.items()}


@pytest.mark.parametrize(
    ("ages", "heard", "doubted"),
    [
        ({"conductor": 60, "compute": 9000}, 60, False),
        ({"conductor": 61, "compute": 9000}, None, True),
        ({"conductor": -60}, -60, False),
        ({"conductor": -61}, None, True),
        ({"conductor": 5, "scheduler": 3}, 3, False),
        ({"conductor": 5000, "compute": 60}, None, False),  # a cell in which only computes report
        ({"compute": 61}, None, True),
        ({}, None, True),
    ],
)
def test_a_silent_host_is_down_only_while_another_service_reports(
    ages: dict[str, int], heard: int | None, doubted: bool
) -> None:
    made = Selection().clock(NOW, reports(**ages))
    assert made.heard == ago(heard)
    assert bool(made.doubt) is doubted
    last = max(reports(**ages).values(), default="they were created")
    assert f"since {last}, and the database's clock is at 2026-11-21 12:00:00" in made.doubt or not doubted


def test_a_long_service_down_time_does_not_make_old_reports_current() -> None:
    selection = Selection(service_down_time=timedelta(hours=5), grace=timedelta(seconds=7))
    limit = int(CURRENT.total_seconds())
    assert not selection.clock(NOW, reports(conductor=limit)).doubt
    made = selection.clock(NOW, reports(conductor=limit + 1))
    assert made.doubt
    assert (made.now, made.service_down_time, made.grace) == (NOW, timedelta(hours=5), timedelta(seconds=7))


def verdict(**values: Any) -> Verdict:
    seen = view({"rows": [{"status": "allocated", "owner": "vm"}], "owners": {"vm": {}}})
    (made,) = plan.rules.judge(seen, clock({}))
    return replace(made, **values)


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        ({}, True),
        ({"classes": frozenset("AB")}, True),
        ({"classes": frozenset("B")}, False),
        ({"instance": "vm"}, True),
        ({"instance": "other"}, False),
        ({"instance": "other", "classes": frozenset("A")}, False),
        ({"hosts": frozenset({"gpu1"})}, True),
        ({"hosts": frozenset({"gpu2"})}, False),
    ],
)
def test_verdicts_of_a_saved_plan_are_chosen_like_those_of_a_new_one(selection: dict[str, Any], wanted: bool) -> None:
    made, sources = verdict(), Sources(cells=(), all_cells=())
    chosen = Selection(**selection)
    assert chosen.of_planned([made.to_dict()], sources) == ([made.to_dict()] if wanted else [])
    if chosen.hosts is None:
        assert chosen.wants(made) is wanted


DOUBT = "the database may be another cell's"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"status": Status.UNDECIDED, "because": DOUBT, "repair": None, "migrations": (), "advice": ""}),
        ({"status": Status.HEALS, "starts": True}, {"status": Status.UNDECIDED, "because": DOUBT, "starts": False}),
        ({"status": Status.PROTECTED}, {"status": Status.PROTECTED}),
        ({"status": Status.REPORT, "because": "x"}, {"status": Status.REPORT, "because": "x"}),
        (
            {"status": Status.REPORT, "because": "x", "then": "restart"},
            {"status": Status.REPORT, "because": f"x; {DOUBT}", "then": "", "questions": None},
        ),
    ],
)
def test_a_database_that_may_be_another_cells_is_not_written(values: dict[str, Any], expected: dict[str, Any]) -> None:
    made = verdict(**{"migrations": (3,), **values})
    identified = plan._identified(made, Identity(doubt=DOUBT))
    assert {name: getattr(identified, name) for name in expected} == expected
    sure = plan._identified(made, Identity())
    assert sure == made


@pytest.fixture
def cells(tmp_path: Path) -> dict[str, CellFile]:
    """Two cells, each with a leak of class A and a healthy host."""
    made = {name: CellFile(f"sqlite:///{tmp_path}/{name}.sqlite") for name in ("cell1", "cell2")}
    for name, cell in made.items():
        uuid = cell.instance(f"vm-{name}", f"other-{name}", wants=())
        cell.device(cell.host(f"old-{name}"), GPU, "allocated", instance_uuid=uuid, request_id="x")
        cell.host(f"other-{name}", seen=1)
    nova_conf(tmp_path, {name: cell.url for name, cell in made.items()})
    return made


def test_a_cell_that_cannot_be_read_is_listed(cells: dict[str, CellFile], tmp_path: Path) -> None:
    sources = Sources.from_nova_conf([tmp_path])
    complete = plan.make(sources, Selection())
    assert complete.unread == ()
    assert [(one.cell, one.klass) for one in complete.repairs] == [("cell1", "A"), ("cell2", "A")]
    assert complete.counts()["cell1", "A", "stale"] == 1
    assert complete.counts()["cell1", "B", "stale"] == 0
    (tmp_path / "cell2.sqlite").write_bytes(b"")
    part = plan.make(sources, Selection())
    ((cell, reason),) = part.unread
    assert (cell, [one.cell for one in part.verdicts], part.checked.cells) == ("cell2", ["cell1"], ["cell1"])
    assert "cell2" in reason
    assert part.to_dict()["unread"] == [{"cell": "cell2", "reason": reason}]
    (tmp_path / "cell1.sqlite").write_bytes(b"")
    with pytest.raises(DatabaseError):
        plan.make(sources, Selection())


def test_a_plan_is_saved_for_its_owner(cells: dict[str, CellFile], tmp_path: Path) -> None:
    made = plan.make(Sources.from_nova_conf([tmp_path]), Selection(classes=frozenset("A"), instance="vm-cell2"))
    made.save(tmp_path / "plan.json")
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600
    saved = json.loads((tmp_path / "plan.json").read_text())
    assert (saved["gpustack_cleanup_plan"], saved["unasked"]) == (1, None)
    assert [one["instance"] for one in saved["verdicts"]] == ["vm-cell2"]
    assert made.checked.classes == {"A"}


def test_verdicts_of_unknown_cells_stay_in_a_saved_plan(cells: dict[str, CellFile], tmp_path: Path) -> None:
    """``apply`` reports them as skipped; those of cells that were not chosen are left out."""
    sources = Sources.from_nova_conf([tmp_path])
    planned = [one.to_dict() for one in plan.make(sources, Selection()).repairs]
    planned.append({**planned[0], "cell": "unknown"})
    one_cell = replace(sources, cells=sources.cells[:1], all_cells=sources.cells)
    assert [one["cell"] for one in Selection().of_planned(planned, one_cell)] == ["cell1", "unknown"]


def test_no_report_in_a_cell_leaves_its_rows_undecided(cells: dict[str, CellFile], tmp_path: Path) -> None:
    silence(cells["cell1"])
    made = plan.make(Sources.from_nova_conf([tmp_path]), Selection())
    assert [(one.cell, one.status.value) for one in made.verdicts] == [("cell1", "undecided"), ("cell2", "stale")]


@pytest.mark.parametrize(
    ("chosen", "cloud", "answers", "expected"),
    [
        ("", False, False, frozenset(CLASSES) - set("OQST")),
        ("", True, False, frozenset(CLASSES) - {"O", "T"}),
        ("", False, True, frozenset(CLASSES) - set("OQS")),
        ("AQ", False, True, frozenset("A")),
        ("AQ", True, False, frozenset("AQ")),
        ("AB", True, True, frozenset("AB")),
    ],
)
def test_only_classes_whose_source_was_given_are_checked(
    cells: dict[str, CellFile],
    tmp_path: Path,
    chosen: str,
    cloud: bool,
    answers: bool,
    expected: frozenset[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def fails(*_: object) -> list[object]:
        asked.append("placement")
        raise CloudError("no route to Placement")

    monkeypatch.setattr(plan.placement, "providers", fails)
    selection = Selection(classes=frozenset(chosen))
    sources = Sources.from_nova_conf([tmp_path])
    made = plan.make(sources, selection, object() if cloud else None, {} if answers else None)  # type: ignore[arg-type]
    assert made.checked.classes == expected
    of_placement = sorted(expected & set("QS"))
    undecided = [(one.cell, one.klass) for one in made.verdicts if one.status is Status.UNDECIDED]
    assert undecided == [(cell, klass) for cell in ("cell1", "cell2") for klass in of_placement]
    assert asked == (["placement"] if of_placement else [])  # once for all cells
    assert (made.unasked is not None) is bool(of_placement)
    if made.unasked:
        assert made.to_dict()["unasked"] == "no route to Placement"


def test_a_plan_follows_the_answers_of_hosts() -> None:
    stale = verdict(questions=(Question(host="gpu1", offered={GPU: "10de:11b4"}),))
    made = plan.settled(plan.CleanupPlan(verdicts=(stale,)), {})
    assert [one.status for one in made.verdicts] == [Status.UNDECIDED]
    assert made.repairs == ()
    assert verdict().repair is Repair.FREE
