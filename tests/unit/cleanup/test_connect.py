"""Databases that are named wrongly: what is said, and that nothing comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.cleanup import connect
from gpustack.cli.app import main
from gpustack.errors import DatabaseError


def test_a_missing_sqlite_file_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nova.sqlite"
    assert main(["cleanup", "plan", "--db-url", f"sqlite:///{missing}"]) == DatabaseError.exit_code
    assert "there is no such database file" in capsys.readouterr().err
    assert not missing.exists()


@pytest.mark.parametrize("password", ["p@ss", "@", "p@ss@word"])
def test_of_a_password_that_ends_the_url_early_nothing_is_shown(password: str) -> None:
    with pytest.raises(DatabaseError, match="percent-encoded") as told:
        connect.database("cell1", f"mysql+pymysql://nova:{password}@db.example.org/nova")
    assert "ss" not in str(told.value).replace("password", "")


def test_a_percent_encoded_password() -> None:
    made = connect.database("cell1", "mysql+pymysql://nova:p%40ss@db.example.org/nova")
    assert (made.url.password, made.url.host) == ("p@ss", "db.example.org")


def test_an_api_database_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sa.create_engine(f"sqlite:///{tmp_path}/other.sqlite").begin() as connection:
        connection.execute(sa.text("CREATE TABLE pci_devices (id INTEGER)"))
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[api_database]\nconnection = sqlite:///{tmp_path}/other.sqlite\n")
    assert main(["cleanup", "plan", "--config-file", str(conf)]) == DatabaseError.exit_code
    assert "API database" in (said := capsys.readouterr().err)
    assert "no Nova database" in said


def test_a_damaged_plan_is_told_before_any_database_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"verdicts": []}))
    assert main(["cleanup", "apply", str(plan), "--db-url", f"sqlite:///{tmp_path}/nothing.sqlite"]) != 0
    assert "no plan of gpustack cleanup" in capsys.readouterr().err
