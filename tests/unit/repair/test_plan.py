"""Which times of a cell are current, which verdicts are chosen, and which databases are read and never written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.novadb import tables
from gpustack.novadb.hardware import Hardware
from gpustack.novadb.other_cells import Identity
from gpustack.novadb.sources import Sources
from gpustack.novadb.view import CURRENT
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


def _fill(cells: dict[str, CellFile]) -> None:
    """A node with free devices, one with a row without owner, and one that its counts show to be healthy."""
    first, second = cells["cell1"].host("gpu1", seen=1), cells["cell1"].host("gpu2", seen=1)
    for number in (1, 2):
        cells["cell1"].device(first, f"0000:0{number}:00.0")
    cells["cell1"].instance("vm", "gpu1")
    cells["cell1"].device(first, "0000:03:00.0", "allocated", instance_uuid="vm", request_id="r1")
    cells["cell1"].device(second, "0000:01:00.0", "allocated")
    cells["cell1"].device(second, "0000:02:00.0", "available", instance_uuid="gone", deleted=9)
    third = cells["cell1"].host("gpu3", seen=1)
    cells["cell1"].instance("vm3", "gpu3")
    cells["cell1"].device(third, "0000:01:00.0", "allocated", instance_uuid="vm3", request_id="r1")
    pools = json.dumps({"nova_object.data": {"objects": []}})
    with cells["cell1"].engine.begin() as connection:
        connection.execute(tables.compute_nodes.update().values(pci_stats=pools))


def test_what_was_checked_is_counted(cells: dict[str, CellFile], tmp_path: Path) -> None:
    """Also of a node that is left out by its counts; soft-deleted rows do not count."""
    _fill(cells)
    sources = Sources.from_nova_conf([tmp_path])
    checked = plan.make(sources, Selection()).checked
    others = {("cell1", "old-cell1"), ("cell2", "old-cell2")}
    assert checked.hosts == {("cell1", "gpu1"), ("cell1", "gpu2"), ("cell1", "gpu3"), *others}
    assert (checked.devices, str(checked)) == (7, "2 cells, 5 hosts, 7 devices checked")
    of_instance = plan.make(sources, Selection(instance="vm")).checked
    assert (of_instance.hosts, of_instance.devices) == ({("cell1", "gpu1")}, 3)


def test_known_hardware_is_compared_also_on_a_node_without_odd_rows(cells: dict[str, CellFile], tmp_path: Path) -> None:
    _fill(cells)
    bare = Hardware(present={}, read_at=ago(-3600))
    sources = replace(Sources.from_nova_conf([tmp_path]), hardware={"gpu3": bare, "gpu9": bare})
    made = plan.make(sources, Selection(classes=frozenset("O")))
    assert {(one.host, one.klass) for one in made.verdicts} == {("gpu3", "O")}
    cells["cell1"].host("gpu9", seen=1)
    assert ("cell1", "gpu9") in plan.make(sources, Selection()).checked.hosts
    assert ("cell1", "gpu9") not in plan.make(sources, Selection(instance="vm")).checked.hosts


@pytest.mark.parametrize(("hosts", "read", "given"), [(None, 1, []), (frozenset({"gpu1"}), 0, None)])
def test_placement_is_read_once_for_all_cells_unless_hosts_are_chosen(
    cells: dict[str, CellFile],
    tmp_path: Path,
    hosts: frozenset[str] | None,
    read: int,
    given: list[object] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, seen = list[str](), list[object]()

    def providers(*_: object) -> list[object]:
        reads.append("providers")
        return []

    def leftovers(_sources: object, cell: Any, _selection: object, _cloud: object, devices: object) -> list[object]:
        seen.append((cell.name, devices))
        return []

    monkeypatch.setattr(plan.placement, "providers", providers)
    monkeypatch.setattr(plan, "leftovers_of", leftovers)
    plan.make(Sources.from_nova_conf([tmp_path]), Selection(hosts=hosts), object())  # type: ignore[arg-type]
    assert len(reads) == read
    assert seen == [("cell1", given), ("cell2", given)]


@pytest.mark.parametrize("count", [2, 6])
def test_connections_grow_with_the_cells_and_not_with_their_square(count: int, tmp_path: Path) -> None:
    urls = {}
    for name in (f"cell{number}" for number in range(count)):
        cell = CellFile(f"sqlite:///{tmp_path}/{name}.sqlite")
        cell.device(cell.host(f"host-of-{name}"), GPU, "allocated", instance_uuid=f"gone-{name}", request_id="r1")
        urls[name] = cell.url
    sources = Sources.from_nova_conf([nova_conf(tmp_path, urls)])
    opened: list[object] = []
    listener = lambda *_event: opened.append(1)  # noqa: E731
    sa.event.listen(sa.Pool, "connect", listener)
    try:
        assert len(plan.make(sources, Selection()).verdicts) == count
    finally:
        sa.event.remove(sa.Pool, "connect", listener)
    assert len(opened) == count + 1  # and the API database


def test_statements_grow_with_the_cells_and_not_with_their_square(tmp_path: Path) -> None:
    """Each cell is compared with all others, whose services are read once, and opened only for owners."""

    def statements(count: int) -> int:
        directory, urls = tmp_path / str(count), {}
        directory.mkdir()
        for name in (f"cell{number}" for number in range(count)):
            cell = CellFile(f"sqlite:///{directory}/{name}.sqlite")
            cell.device(cell.host(f"host-of-{name}", seen=1), GPU)
            cell.insert("services", host=f"host-of-{name}", binary="nova-compute", uuid=f"service-of-{name}")
            urls[name] = cell.url
        sources, executed = Sources.from_nova_conf([nova_conf(directory, urls)]), list[object]()
        listener = lambda *event: executed.append(event[2])  # noqa: E731
        sa.event.listen(sa.Engine, "before_cursor_execute", listener)
        try:
            plan.make(sources, Selection())
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", listener)
        return len(executed)

    two, four, eight = map(statements, (2, 4, 8))
    assert eight - four == 2 * (four - two)
