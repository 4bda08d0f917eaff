"""Files that released versions wrote: this version reads them, and undoes what they record."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpustack.changes import journal
from gpustack.changes.change import CloudChange
from gpustack.changes.undo import plan_undo
from gpustack.cli.app import main
from gpustack.cli.change import former, kinds

RELEASED = Path(__file__).parents[1] / "released"
VERSIONS = sorted(path.name for path in RELEASED.iterdir() if path.is_dir())
pytestmark = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def now() -> datetime:
    """The time at which a test begins: a report of a service is not older than the test."""
    return datetime.now(UTC).replace(tzinfo=None)


def databases(version: str, place: Path, cell: str, now: datetime) -> list[str]:
    """Make the databases of a release; returns the options that name them."""
    for name, file in (("api", "api"), ("cell", cell)):
        script = (RELEASED / version / f"{file}.sql").read_text(encoding="utf-8").replace("/place", str(place))
        with sqlite3.connect(place / f"{name}.sqlite") as connection:
            connection.executescript(later(script, now) if name == "cell" else script)
    (place / "nova.conf").write_text(f"[api_database]\nconnection = sqlite:///{place}/api.sqlite\n")
    return ["--config-file", str(place)]


def later(script: str, now: datetime) -> str:
    """A cell's database as it would be at a time: its services have just reported, except those that were down."""
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(script)
        newest = max(value for (value,) in connection.execute("SELECT last_seen_up FROM services") if value)
        age = now - datetime.fromisoformat(newest)
        for column in ("last_seen_up", "updated_at"):
            present = connection.execute(f"SELECT id, {column} FROM services WHERE {column} IS NOT NULL").fetchall()
            times = [(str(datetime.fromisoformat(value) + age), number) for number, value in present]
            connection.executemany(f"UPDATE services SET {column} = ? WHERE id = ?", times)
        return "\n".join(connection.iterdump())


def rows(place: Path) -> list[str]:
    with sqlite3.connect(place / "cell.sqlite") as connection:
        return list(connection.iterdump())


def expected(version: str, cell: str, now: datetime) -> list[str]:
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(later((RELEASED / version / f"{cell}.sql").read_text(encoding="utf-8"), now))
        return list(connection.iterdump())


def test_a_spec_is_valid(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", str(RELEASED / version / "gpustack.yaml")]) == 0


def test_a_snapshot_leads_to_a_plan(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec, facts = (str(RELEASED / version / name) for name in ("gpustack.yaml", "snapshot.json"))
    assert main(["host", "plan", spec, "--snapshot", facts, "-f", "json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["operations"]


def test_a_journal_of_clean_up_is_undone(
    version: str, tmp_path: Path, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    options = databases(version, tmp_path, "cell", now)
    assert rows(tmp_path) != expected(version, "cell-before", now)
    assert main(["cleanup", "undo", str(RELEASED / version / "cleanup.jsonl"), *options, "--yes"]) == 0
    assert rows(tmp_path) == expected(version, "cell-before", now)


def test_a_saved_plan_of_clean_up_is_applied(
    version: str, tmp_path: Path, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    options = databases(version, tmp_path, "cell-before", now)
    journal = ["--journal", str(tmp_path / "journal.jsonl"), "--no-hypervisor", "--yes", "--wait", "0"]
    assert main(["cleanup", "apply", str(RELEASED / version / "plan.json"), *options, *journal]) == 0
    with sqlite3.connect(tmp_path / "cell.sqlite") as connection:
        freed = connection.execute("SELECT status, instance_uuid FROM pci_devices WHERE id IN (24, 33)")
        assert list(freed) == [("available", None)] * 2
    assert len(re.findall(r"^class A .*: done: ", capsys.readouterr().err, re.MULTILINE)) == 2


def undo(version: str, name: str, place: Path) -> tuple[CloudChange, ...]:
    shutil.copy(RELEASED / version / name, place)
    (place / name).chmod(0o600)
    changes, final = plan_undo(journal.find(str(place / name), former()), kinds())
    assert not final
    return changes


def test_a_journal_of_idle_instances_is_undone(version: str, tmp_path: Path) -> None:
    second, first = undo(version, "reclaim.jsonl", tmp_path)
    assert [change.object_kind for change in (second, first)] == ["unshelving"] * 2
    assert (first.name, first.seen, first.wanted) == (
        "idle-1 (11111111-0000-4000-8000-000000000000)",
        "SHELVED_OFFLOADED",
        "ACTIVE",
    )
    assert (first.id, second.id) == ("req-11111111-1111-1111-1111-111111111111", "")
    assert (first.partial, second.partial) == (False, True)


def test_a_journal_of_images_is_undone(version: str, tmp_path: Path) -> None:
    changes = undo(version, "image.jsonl", tmp_path)
    assert [(change.name, change.seen, change.wanted, change.partial) for change in changes] == [
        ("linux", {"hw_machine_type": "q35"}, {"hw_machine_type": None}, True),
        (
            "games",
            {"hw_machine_type": "q35", "os_type": "windows"},
            {"hw_machine_type": None, "os_type": "Windows"},
            False,
        ),
    ]
