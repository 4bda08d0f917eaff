"""Databases: each is reached and its schema known; a machine without a configuration is no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.operate.doctor import databases
from gpustack.operate.doctor.check import Check, State
from support.cellfile import CellFile, nova_conf


def checks(*paths: Path, url: str | None = None) -> list[Check]:
    return list(databases.checks(paths, url))


def test_the_api_database_and_each_cell(tmp_path: Path) -> None:
    nova_conf(tmp_path, {"cell1": CellFile(f"sqlite:///{tmp_path}/cell.sqlite").url})
    results = checks(tmp_path)
    assert [(check.name, check.state) for check in results] == [("API database", State.OK), ("Cell cell1", State.OK)]
    assert results[1].seen.startswith("readable, sqlite, schema of ")


def test_a_cell_that_can_not_be_read_keeps_no_other_from_being_checked(tmp_path: Path) -> None:
    good = CellFile(f"sqlite:///{tmp_path}/cell.sqlite").url
    nova_conf(tmp_path, {"cell1": "mysql://nova:geheim@127.0.0.1:9/nova", "cell2": good})
    results = {check.name: check for check in checks(tmp_path)}
    assert (results["Cell cell1"].state, results["Cell cell1"].exit_code) == (State.ERROR, 30)
    assert results["Cell cell2"].state is State.OK
    assert "geheim" not in str(results)


def test_one_cell_by_its_url(tmp_path: Path) -> None:
    assert [check.state for check in checks(url=CellFile(f"sqlite:///{tmp_path}/cell.sqlite").url)] == [State.OK]


@pytest.mark.parametrize("content", [None, "[DEFAULT]\nhost = gpu01\n"])
def test_a_machine_without_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    usual = tmp_path / "nova"
    monkeypatch.setattr(databases, "USUAL", usual)
    if content:
        usual.mkdir()
        (usual / "nova.conf").write_text(content)
    (check,) = checks()
    assert check.state is State.NOT_CONFIGURED
    unset = f"{usual}/nova.conf: [api_database] connection is not set"
    assert check.seen == (unset if content else f"no {usual} on this machine")
    assert (checks(usual)[0].exit_code in (20, 30)) if content else True
