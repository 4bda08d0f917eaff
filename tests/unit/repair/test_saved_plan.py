"""A saved plan: carried out as far as was asked for, and what is not carried out is told."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest

from gpustack.base.errors import JournalError
from gpustack.cli.app import main
from gpustack.novadb.sources import Sources
from gpustack.repair.hypervisor import Hypervisors
from support.cellfile import CellFile, answering, fill, nova_conf

VM = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell_file)
    with cell_file.engine.begin() as connection:  # --instance takes a real id
        for table, column in (
            ("instances", "uuid"),
            ("instance_extra", "instance_uuid"),
            ("pci_devices", "instance_uuid"),
        ):
            connection.exec_driver_sql(f"UPDATE {table} SET {column} = '{VM}' WHERE {column} = 'vm-a'")
    nova_conf(tmp_path, {"cell1": cell_file.url})
    assert main(["cleanup", "plan", "--config-file", str(tmp_path), "--out", str(tmp_path / "plan.json")]) == 0
    return cell_file


def apply(directory: Path, *arguments: str) -> int:
    options = ["--config-file", str(directory), "--journal", str(directory / "journal.jsonl"), "--no-hypervisor"]
    return main(["cleanup", "apply", str(directory / "plan.json"), *options, "--wait", "0", *arguments])


def reported_outcomes(capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Which classes and hosts the outcomes are of."""
    lines = re.findall(r"^(class .*? on \S+)(?: \S+)*: done: ", capsys.readouterr().err, re.MULTILINE)
    return set(lines)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--host", "orphan"), {"class C (orphan-node) on orphan"}),
        (("--class", "ghost-owner"), {"class E (ghost-owner) on old"}),
        (("--instance", VM.upper()), {"class A (left-behind) on old"}),
        (("--host", "old", "--class", "G", "--class", "C"), {"class G (stuck-claim) on old"}),
    ],
)
def test_only_what_was_chosen_is_carried_out(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: set[str]
) -> None:
    capsys.readouterr()
    assert apply(tmp_path, "--yes", *arguments) == 0
    assert reported_outcomes(capsys) == expected


@pytest.mark.parametrize(
    "named", [("--host", "old", "--host", "odl"), ("--stopped", "odl"), ("--unblock", "odl/0000:03:00.0")]
)
def test_a_host_that_no_cell_has_is_refused(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str], named: tuple[str, ...]
) -> None:
    before = cell.dump()
    assert apply(tmp_path, "--yes", *named) == 2
    assert "no cell has a compute node of host odl" in capsys.readouterr().err
    assert cell.dump() == before


@pytest.mark.parametrize("known", [True, False])
def test_a_plan_of_another_region_is_not_carried_out(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str], known: bool
) -> None:
    """Its cell has the same name, and its hosts too. A plan of 0.1.0 has no uuid of its cell."""
    sql = "UPDATE cell_mappings SET uuid = 'of another region'"
    with contextlib.closing(sqlite3.connect(tmp_path / "api.sqlite")) as api, api:
        api.execute(sql)
    path, before = tmp_path / "plan.json", cell.dump()
    if not known:
        path.write_text(re.sub(r',\s*"database": "[^"]*"', "", path.read_text()))
    for preview in ("--check", "--sql"):
        apply(tmp_path, preview, "--class", "ghost-owner")
        output = capsys.readouterr()
        assert ("omitted: cell cell1 of the plan is not among the named databases: class E" in output.err) is known
        assert ("UPDATE" in output.out) is (preview == "--sql" and not known)
    assert apply(tmp_path, "--yes", "--class", "ghost-owner") == (14 if known else 0)
    reason = "cell cell1 is not among the named databases, with the uuid 11111111-1111-1111-1111-111111111111"
    assert (reason in capsys.readouterr().err) is known
    assert (cell.dump() == before) is known


def test_nothing_of_it_was_chosen(cell: CellFile, tmp_path: Path) -> None:
    before = cell.dump()
    assert apply(tmp_path, "--yes", "--class", "K") == 0
    assert cell.dump() == before


def test_another_cell_was_chosen(cell: CellFile, tmp_path: Path) -> None:
    second_cell = CellFile(f"sqlite:///{tmp_path}/other.sqlite")
    (tmp_path / "api.sqlite").unlink()
    nova_conf(tmp_path, {"cell1": cell.url, "cell2": second_cell.url})
    assert apply(tmp_path, "--yes", "--cell", "cell2") == 0


def test_an_unknown_cell_is_reported(cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = json.loads((tmp_path / "plan.json").read_text())
    for verdict in saved["verdicts"]:
        verdict["cell"] = "cell7"
    (tmp_path / "plan.json").write_text(json.dumps(saved))
    before = cell.dump()
    assert apply(tmp_path, "--yes") == 14
    assert "cell cell7 is not among the named databases" in capsys.readouterr().err
    assert cell.dump() == before


def test_a_script_tells_what_it_leaves_out(cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert apply(tmp_path, "--sql", "--class", "A") == 0
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET task_state = 'rebuilding' WHERE uuid = ?", (VM,))
    capsys.readouterr()
    assert apply(tmp_path, "--sql", "--class", "A") == 13
    output = capsys.readouterr()
    assert VM not in output.out
    assert "omitted, changed" in output.err


@pytest.mark.parametrize(("mode", "omitted"), [("--check", 1), ("--sql", 2)])
def test_a_preview_reports_what_a_run_would_omit(
    cell: CellFile,
    tmp_path: Path,
    mode: str,
    omitted: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A repair that changed since the plan, and one that needs --stopped: the playbook checks before it stops."""
    answer = answering(Sources.from_nova_conf([tmp_path]))
    monkeypatch.setattr(Hypervisors, "ask", lambda _self, host: answer(host))
    command = ["cleanup", "apply", str(tmp_path / "plan.json"), "--config-file", str(tmp_path), mode]
    assert main([*command, "--class", "A"]) == 0
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET task_state = 'rebuilding' WHERE uuid = ?", (VM,))
    capsys.readouterr()
    assert main([*command, "--class", "A", "--class", "F"]) == 13
    printed = capsys.readouterr()
    assert "omitted, changed since the plan was made: class A (left-behind) on old" in printed.err
    assert ("omitted: stop nova-compute on stopped first" in printed.err) is (mode == "--sql")
    assert "stop nova-compute on stopped first, then add --stopped stopped" in printed.err
    assert f"omitted repairs: {omitted} of 3" in printed.err


def test_a_preview_without_the_cloud_of_an_allocation_names_the_option(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = json.loads((tmp_path / "plan.json").read_text())
    held = {"provider": "p", "name": "old_0000:01:00.0", "addresses": "0000:01:00.0", "consumer": VM}
    placed = {"class": "Q", "repair": "unset-allocation", "allocation": held, "devices": []}
    saved["verdicts"] = [{**next(v for v in saved["verdicts"] if v["class"] == "A"), **placed}]
    (tmp_path / "plan.json").write_text(json.dumps(saved))
    assert apply(tmp_path, "--check") == 13
    assert "omitted: Placement is not named: add --os-cloud: class Q" in capsys.readouterr().err


def test_a_script_writes_no_row_below_a_nova_compute_that_runs(
    cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answering(Sources.from_nova_conf([tmp_path]))
    monkeypatch.setattr(Hypervisors, "ask", lambda _self, host: answer(host))
    script = ["cleanup", "apply", "--config-file", str(tmp_path), "--sql", "--class", "F"]
    assert main(script) == 13
    output = capsys.readouterr()
    assert "UPDATE" not in output.out
    assert "then add --stopped stopped" in output.err
    assert main([*script, "--stopped", "stopped"]) == 0
    assert "UPDATE" in capsys.readouterr().out


def test_a_name_does_not_end_a_comment_of_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell_file.device(cell_file.host("a\nDROP TABLE x;"), "0000:01:00.0", "allocated", instance_uuid="it's 5% \\")
    nova_conf(tmp_path, {"cell1": cell_file.url})
    assert main(["cleanup", "apply", "--config-file", str(tmp_path), "--sql"]) == 0
    script = capsys.readouterr().out
    assert "\nDROP" not in re.sub("'[^']*'", "", script)  # it stays inside the texts that are compared
    with contextlib.closing(sqlite3.connect(tmp_path / "cell.sqlite")) as connection:
        connection.executescript(script)
        assert connection.execute("SELECT status, instance_uuid FROM pci_devices").fetchall() == [("available", None)]


def test_pools_that_changed_are_not_called_in_order(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE pci_devices SET updated_at = datetime('now') WHERE instance_uuid = 'vm-b'")
    assert apply(tmp_path, "--yes", "--class", "P") == 14
    assert "class P (pool-drift) on up: skipped: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host_state", "weird"),
        ("title", ...),
        ("repair", "unset-allocation"),
        ("devices", 5),
        ("devices", [{"id": 1}]),
        ("cell", ["c"]),
    ],
)
def test_a_damaged_plan(
    cell: CellFile, tmp_path: Path, field: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = json.loads((tmp_path / "plan.json").read_text())
    for verdict in saved["verdicts"]:
        verdict.pop(field) if value is ... else verdict.update({field: value})
    (tmp_path / "plan.json").write_text(json.dumps(saved))
    assert apply(tmp_path, "--yes") == JournalError.exit_code
    assert "a damaged one" in capsys.readouterr().err


@pytest.mark.parametrize("lines", ["[1]\n", "5\n", '{"gpustack_cleanup_journal": 1}\n{"begin": 1}\n', "{}\n[]\n"])
def test_what_is_no_journal(tmp_path: Path, lines: str, cell: CellFile, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.jsonl").write_text(lines)
    undo = ["cleanup", "undo", str(tmp_path / "other.jsonl"), "--config-file", str(tmp_path)]
    assert main(undo) == JournalError.exit_code
    assert "unexpected" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "--class", "Q"),
        ("plan", "--class", "O"),
        ("plan", "--instance", "vm-a"),
        ("apply", "--instance", "name", "--yes"),
        ("watch", "--class", "Q", "--metrics", "x.prom"),
        ("apply", "--max-count", "0"),
        ("apply", "--max-count", "-1"),
        ("watch", "--metrics", "x.prom", "--interval", "-1"),
        ("watch", "--metrics", "x.prom", "--interval", "nan"),
        ("watch", "--metrics", "x.prom", "--count", "0"),
    ],
)
def test_what_can_not_be_asked_for(cell: CellFile, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """And is not answered with "nothing to do"."""
    assert main(["cleanup", arguments[0], "--config-file", str(tmp_path), *arguments[1:]]) == 2


def test_a_preview_names_the_restart_that_a_person_makes(
    cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answering(Sources.from_nova_conf([tmp_path]))
    monkeypatch.setattr(Hypervisors, "ask", lambda _self, host: answer(host))
    capsys.readouterr()
    assert main(["cleanup", "apply", "--config-file", str(tmp_path), "--check", "--class", "P"]) == 0
    assert "\n  → restart nova-compute on up; instances keep running\n" in capsys.readouterr().err
