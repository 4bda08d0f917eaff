"""Every repair, script and undo on MariaDB and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.changes.change import ChangeResult
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.show import script
from gpustack.repair.verdict import Repair, Status
from support.cellfile import CellFile, nova_conf
from support.cleanup_runs import SELECTION, run, undoable, undone, wanted
from support.engines import maintenance
from support.killer import REPAIRS
from unit.repair import test_undo


def test_the_script_does_what_apply_does(cell: CellFile, url: sa.URL, tmp_path: Path) -> None:
    cell.device(cell.host("odd"), "0000:01:00.0", "allocated", instance_uuid="it's a \\ :name", request_id="x")
    nova_conf(tmp_path, {"cell1": url.render_as_string(hide_password=False)})
    sources = Sources.from_nova_conf([tmp_path])
    cleanup_plan = plan.make(sources, SELECTION)
    text = script(sources, cleanup_plan.repairs)
    statements = "\n".join(line for line in text.splitlines() if not line.startswith("--")).split(";\n")
    with cell.engine.connect() as connection:
        changed = [
            connection.exec_driver_sql(statement.strip().rstrip(";")).rowcount
            for statement in statements
            if "UPDATE" in statement
        ]
        connection.commit()
    assert changed == [1] * len(changed)
    assert len(changed) >= len(REPAIRS)
    assert {repair["repair"] for repair in wanted(sources)} <= {"restart"}


def test_the_script_has_the_escapes_of_the_server(cell: CellFile, url: sa.URL, tmp_path: Path) -> None:
    """Whether a backslash in a value is doubled is a setting of the server, and its default differs."""
    setting, default = {
        "mysql": ("SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'", "SET GLOBAL sql_mode = DEFAULT"),
        "postgresql": (
            "ALTER DATABASE cell1 SET standard_conforming_strings = off",
            "ALTER DATABASE cell1 RESET standard_conforming_strings",
        ),
    }[url.get_backend_name()]
    with maintenance(url).connect() as server:
        server.exec_driver_sql(setting)
        try:
            test_the_script_does_what_apply_does(cell, url, tmp_path)
        finally:
            server.exec_driver_sql(default)


def test_every_repair_and_its_way_back(cell: CellFile, url: sa.URL, tmp_path: Path) -> None:
    nova_conf(tmp_path, {"cell1": "{scheme}://{username}:{password}@{hostname}:{port}/cell1"})
    with (tmp_path / "nova.conf").open("a") as stream:
        main = url.render_as_string(hide_password=False).replace("/cell1", "/nova_cell0")
        stream.write(f"[database]\nconnection = {main}\n")
    sources = Sources.from_nova_conf([tmp_path])
    before = cell.dump()
    repairs = {(verdict.klass, verdict.repair) for verdict in plan.make(sources, SELECTION).repairs}
    assert {pair for pair in repairs if pair[1] is not Repair.RESTART} == set(REPAIRS)
    assert {repair for _klass, repair in repairs} == set(Repair) - {Repair.UNSET_ALLOCATION}

    outcomes = run(sources, tmp_path / "journal", wanted(sources))

    assert {o.result for o in outcomes} == {ChangeResult.DONE, ChangeResult.SKIPPED}
    remaining = {repair["repair"] for repair in wanted(sources)}
    assert remaining <= {"restart"}
    assert cell.dump() != before
    list(undone(tmp_path / "journal", sources))
    assert undoable(cell) == undoable(cell, before)


def test_a_time_that_no_calendar_has_leaves_the_other_rows_judged(cell: CellFile) -> None:
    """MariaDB's zero date and PostgreSQL's infinity, which drivers return in ways of their own."""
    cell.device(cell.host("odd"), "0000:07:00.0", "allocated", instance_uuid="vm-a", request_id="x")
    before = len(plan.make(Sources.from_url(str(cell.url)), SELECTION).verdicts)
    zero = "infinity" if cell.engine.dialect.name == "postgresql" else "0000-00-00 00:00:00"
    with cell.engine.begin() as connection:
        if cell.engine.dialect.name != "postgresql":
            connection.exec_driver_sql("SET SESSION sql_mode = ''")
        connection.exec_driver_sql(f"UPDATE pci_devices SET updated_at = '{zero}' WHERE address = '0000:07:00.0'")
    cleanup_plan = plan.make(Sources.from_url(str(cell.url)), SELECTION).verdicts
    assert [v.status for v in cleanup_plan if v.host == "odd"] == [Status.UNDECIDED]
    assert len(cleanup_plan) == before


@pytest.fixture
def sources(cell: CellFile, tmp_path: Path) -> Sources:
    return Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])


# What speaks against an undo is read and compared by statements that differ from server to server.
@pytest.mark.parametrize(("owner", "since", "why"), [test_undo.SINCE[number] for number in (0, 2, 6, 7)])
def test_undo_leaves_what_was_used_since(
    cell: CellFile, sources: Sources, tmp_path: Path, owner: str, since: list[str], why: str
) -> None:
    test_undo.test_what_was_used_since_is_left(cell, sources, tmp_path, owner, since, why)


@pytest.mark.parametrize(("owner", "since", "why"), [test_undo.SINCE[number] for number in (1, 6)])
def test_undo_compares_every_fact_again(
    cell: CellFile,
    sources: Sources,
    tmp_path: Path,
    owner: str,
    since: list[str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test_undo.test_a_change_while_it_is_undone(cell, sources, tmp_path, owner, since, why, monkeypatch)


test_an_undo_beside_a_taken_one = test_undo.test_a_physical_function_is_not_offered_again_beside_a_taken_one
