"""Repairs in the one life cycle of changes: asked for, recorded, listed, undone; a lost database ends a run."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from gpustack.base.errors import DatabaseError
from gpustack.changes import journal
from gpustack.changes.change import ChangeResult
from gpustack.changes.journal import PlannedChange
from gpustack.cli.app import main
from gpustack.novadb.sources import Sources
from gpustack.repair import apply
from gpustack.repair.changes import failed_migrations, planned
from gpustack.repair.outcome import Repairing
from gpustack.repair.verdict import PlannedVerdict, Repair
from support.cellfile import CellFile, fill, nova_conf
from support.cleanup_runs import attempted, results, run, wanted


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CellFile:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell_file)
    nova_conf(tmp_path, {"cell1": cell_file.url})
    return cell_file


def gpustack(tmp_path: Path, *arguments: str) -> int:
    return main([*arguments, "--config-file", str(tmp_path)])


def applied(tmp_path: Path, *arguments: str) -> int:
    return gpustack(tmp_path, "cleanup", "apply", "--no-hypervisor", "--class", "A", "--wait", "0", *arguments)


def last() -> journal.RunRecord:
    _, record = next(journal.records())
    assert isinstance(record, journal.RunRecord)
    return record


def test_a_repair_is_listed_and_undone_by_its_id(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cell.dump()
    assert applied(tmp_path, "--yes") == 0
    record, repaired = last(), cell.dump()
    assert (record.head.command, record.state) == ("cleanup apply", "done")
    assert record.path.parent == tmp_path / "state/gpustack/changes"
    assert f"to undo: gpustack undo {record.head.id}" in capsys.readouterr().err
    assert main(["history", "-f", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["ID"], entry["State"], entry["Cloud"].split()[0]) == (record.head.id, "done", "cell1")
    assert gpustack(tmp_path, "undo", record.head.id, "--check") == 0
    assert ": would be restored: " in capsys.readouterr().err
    assert cell.dump() == repaired != before
    assert gpustack(tmp_path, "undo", record.head.id, "--yes") == 0
    assert cell.dump() == before
    assert last().head.undoes == record.head.id


def test_the_undo_of_clean_up_reverts_the_last_repair(cell: CellFile, tmp_path: Path) -> None:
    before = cell.dump()
    assert applied(tmp_path, "--yes") == 0
    assert gpustack(tmp_path, "cleanup", "undo", "--yes") == 0
    assert cell.dump() == before


def test_a_column_of_another_type_does_not_prevent_a_repair(cell: CellFile, tmp_path: Path) -> None:
    """Nova has no binary column in these tables; a distributor's Nova may."""
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE pci_devices ADD COLUMN theirs BLOB DEFAULT x'00ff'")
    before = cell.dump()
    assert applied(tmp_path, "--yes") == 0
    assert cell.dump() != before
    assert gpustack(tmp_path, "cleanup", "undo", "--yes") == 0
    assert cell.dump() == before


def test_the_undo_of_a_repair_cannot_be_undone(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert applied(tmp_path, "--yes") == 0
    capsys.readouterr()
    assert gpustack(tmp_path, "cleanup", "undo", "--yes") == 0
    assert "to undo" not in capsys.readouterr().err
    before = cell.dump()
    assert gpustack(tmp_path, "undo", last().head.id, "--yes") == 0
    assert "cannot be undone: undo the repair of class A" in capsys.readouterr().err
    assert cell.dump() == before


@pytest.mark.parametrize(("answer", "code"), [("", 2), ("n\n", 1), ("y\n", 0)])
@pytest.mark.parametrize("undo", [False, True])
def test_a_repair_and_its_undo_are_asked_for(
    cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, undo: bool
) -> None:
    class Answer(io.StringIO):
        def isatty(self) -> bool:
            return bool(answer)

    if undo:
        assert applied(tmp_path, "--yes") == 0
    before = cell.dump()
    monkeypatch.setattr("sys.stdin", Answer(answer))
    assert (gpustack(tmp_path, "cleanup", "undo") if undo else applied(tmp_path)) == code
    assert (cell.dump() == before) is (code != 0)


@pytest.mark.parametrize("option", ["--check", "--dry-run"])
def test_a_check_writes_neither_rows_nor_a_journal(cell: CellFile, tmp_path: Path, option: str) -> None:
    before = cell.dump()
    assert applied(tmp_path, option) in (0, 13)
    assert (cell.dump(), list(journal.records())) == (before, [])


def test_a_lost_database_ends_the_run(cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that were not begun are listed; the error of the run is that of the database."""
    sources = Sources.from_nova_conf([tmp_path])
    repairs = wanted(sources)[:3]
    assert len(repairs) == 3

    def lost(*arguments: object) -> None:
        raise DatabaseError("the server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(apply, "_repair", lost)
        first, *rest = attempted(sources, tmp_path / "journal", repairs)
        assert (first.result, first.detail) == (ChangeResult.FAILED, "the server is gone")
        assert {(one.result, one.detail) for one in rest} == {(ChangeResult.NOT_BEGUN, "the server is gone")}
        with pytest.raises(DatabaseError, match="the server is gone"):
            run(sources, tmp_path / "second", repairs)
    assert results(tmp_path / "journal") == []


def test_allocations_are_removed_last_and_every_repair_has_a_key(cell: CellFile, tmp_path: Path) -> None:
    first, *_ = repairs = wanted(Sources.from_nova_conf([tmp_path]))
    allocation = {"provider": "p", "name": "gpu_0000:01:00.0", "addresses": "0000:01:00.0", "consumer": "vm"}
    removal = {**first, "repair": Repair.UNSET_ALLOCATION.value, "allocation": allocation}
    changes = planned([removal, *repairs])  # type: ignore[list-item]
    assert changes[-1].verdict == removal
    assert changes[-1].details() == ["- allocation of gpu_0000:01:00.0 (was vm)"]
    assert len({change.key for change in changes}) == len(changes)
    assert {change.key for change in changes} == {f"repair:{number}" for number in range(1, len(changes) + 1)}


def test_only_failed_migrations_are_waited_for(cell: CellFile, tmp_path: Path) -> None:
    sources = Sources.from_nova_conf([tmp_path])
    outcomes = run(sources, tmp_path / "journal", wanted(sources))
    held = failed_migrations(outcomes)
    assert held
    assert {verdict["repair"] for verdict in held} == {Repair.FAIL_MIGRATION}
    assert apply.unfreed(held, sources, 0) == held
    assert failed_migrations([replace(one, result=ChangeResult.FAILED) for one in outcomes]) == []


def test_only_a_record_of_a_repair_is_undone(cell: CellFile, tmp_path: Path) -> None:
    sources = Sources.from_nova_conf([tmp_path])
    (repair, *_more) = planned(wanted(sources))
    assert repair.permitted().startswith("a line does not belong to a journal of repairs: ")
    assert replace(repair, payload={"cell": 7}).permitted()
    with pytest.raises(ValueError, match="undone only"):
        replace(repair, verdict=None).attempt(Repairing(sources=sources), lambda payload: None)
    run(sources, tmp_path / "journal", wanted(sources)[:1])
    (payload,) = journal.read(tmp_path / "journal").payloads.values()
    recorded = replace(repair, payload=payload)
    undo = recorded.reverse()
    assert recorded.permitted() == undo.permitted() == ""
    assert (undo.seen, undo.wanted) == (repair.wanted, repair.seen)
    assert undo.describe() == f"undo the repair of {repair.name}"


ALLOCATION = {"name": "gpu1_0000:81:00.0", "consumer": "vm", "provider": "gpu", "addresses": "0000:81:00.0"}
VERDICT = {
    "cell": "cell1",
    "class": "B",
    "host": "gpu1",
    "instance": "vm",
    "devices": [{"id": 1, "address": "0000:81:00.0", "status": "allocated"}],
    "repair": "fail-migration",
    "migrations": [7],
    "allocation": None,
    "stop_service": False,
    "asks": ["gpu1"],
}


@pytest.mark.parametrize(
    ("changes", "name", "before", "after"),
    [
        (
            {},
            "class B (migration-pinned) on gpu1 0000:81:00.0",
            {"0000:81:00.0": "allocated, instance vm", "migration 7": "unfinished"},
            {"0000:81:00.0": "available", "migration 7": "failed"},
        ),
        (
            {"repair": "free", "migrations": [], "instance": None},
            "class B (migration-pinned) on gpu1 0000:81:00.0",
            {"0000:81:00.0": "allocated"},
            {"0000:81:00.0": "available"},
        ),
        (
            {"host": "", "repair": "retire", "migrations": []},
            "class B (migration-pinned) on cell cell1 0000:81:00.0",
            {"0000:81:00.0": "allocated, instance vm"},
            {"0000:81:00.0": "available, soft-deleted"},
        ),
        (
            {"devices": [], "repair": "unset-allocation", "allocation": ALLOCATION},
            "class B (migration-pinned) on gpu1",
            {"allocation of gpu1_0000:81:00.0": "vm"},
            {},
        ),
    ],
)
def test_a_repair_is_shown_with_the_states_of_its_devices(
    changes: dict[str, object], name: str, before: dict[str, str], after: dict[str, str]
) -> None:
    (repair,) = planned([{**VERDICT, **changes}])  # type: ignore[list-item]
    assert (repair.name, repair.seen, repair.wanted) == (name, before, after)
    assert repair.describe() == f"{name}: {repair.why}"


def test_a_repair_of_many_devices_has_a_short_name_in_its_record() -> None:
    devices = [{"id": n, "address": f"{n:08x}:00:00.0", "status": "allocated"} for n in range(1000)]
    (change,) = planned([cast("PlannedVerdict", {**VERDICT, "devices": devices})])
    line = PlannedChange.model_validate(change.to_record())
    assert (line.name.startswith("class B (migration-pinned) on gpu1 00000000:00:00.0"), len(line.seen)) == (True, 1001)


def test_only_the_repairs_of_the_named_cells_are_undone(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = CellFile(f"sqlite:///{tmp_path}/other.sqlite")
    other.device(other.host("other"), "0000:01:00.0", "allocated", instance_uuid=other.instance("vm-o", "new"))
    (tmp_path / "api.sqlite").unlink()
    nova_conf(tmp_path, {"cell1": cell.url, "cell2": other.url})
    before = [cell.dump(), other.dump()]
    assert applied(tmp_path, "--yes") == 0
    record, repaired = last(), other.dump()
    assert gpustack(tmp_path, "cleanup", "undo", "--cell", "cell1", "--yes") == 14
    assert "in cell cell2, which is not among the named databases" in capsys.readouterr().err
    assert [cell.dump(), other.dump()] == [before[0], repaired]
    assert gpustack(tmp_path, "undo", record.head.id, "--yes") == 0
    assert [cell.dump(), other.dump()] == before
