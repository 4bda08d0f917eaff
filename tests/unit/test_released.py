"""Files that released versions wrote, by the rows of docs/howto/upgrade.md: this version reads and undoes them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from older_files import RELEASED, ROWS, table, versions

from gpustack.changes import journal
from gpustack.changes.change import CloudChange
from gpustack.changes.undo import plan_undo
from gpustack.cli.app import main
from gpustack.cli.change import former, kinds
from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.prove.undone import verify_undone
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.prepare.host.undo import plan_undo as plan_undo_of_host
from support.boot_simulation import Machine
from support.host_cases import SPEC

OTHERS = {"README.md", "api.sql", "cell.sql", "cell-before.sql", "gpustack", "playbooks"}
"""Databases of clean-up, and what test_action_plugins.py runs."""
TESTED: set[str] = set()


def reads(row: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test of a row, for each release of which the file is kept."""
    TESTED.add(row)
    return pytest.mark.parametrize("version", versions(row))


@pytest.fixture
def now() -> datetime:
    """The time at which a test begins: a report of a service is not older than the test."""
    return datetime.now(UTC).replace(tzinfo=None)


def databases(version: str, place: Path, cell: str, now: datetime) -> list[str]:
    """Make the databases of a release; returns the options that name them."""
    for name, file in (("api", "api"), ("cell", cell)):
        script = (RELEASED / version / f"{file}.sql").read_text(encoding="utf-8").replace("/place", str(place))
        with contextlib.closing(sqlite3.connect(place / f"{name}.sqlite")) as connection:
            connection.executescript(later(script, now) if name == "cell" else script)
    (place / "nova.conf").write_text(f"[api_database]\nconnection = sqlite:///{place}/api.sqlite\n")
    return ["--config-file", str(place)]


def later(script: str, now: datetime) -> str:
    """A cell's database as it would be at a time: its services have just reported, except those that were down."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        newest = max(value for (value,) in connection.execute("SELECT last_seen_up FROM services") if value)
        age = now - datetime.fromisoformat(newest)
        for column in ("last_seen_up", "updated_at"):
            present = connection.execute(f"SELECT id, {column} FROM services WHERE {column} IS NOT NULL").fetchall()
            times = [(str(datetime.fromisoformat(value) + age), number) for number, value in present]
            connection.executemany(f"UPDATE services SET {column} = ? WHERE id = ?", times)
        return "\n".join(connection.iterdump())


def rows(place: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(place / "cell.sqlite")) as connection:
        return list(connection.iterdump())


def expected(version: str, cell: str, now: datetime) -> list[str]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(later((RELEASED / version / f"{cell}.sql").read_text(encoding="utf-8"), now))
        return list(connection.iterdump())


@reads("spec")
def test_a_spec_is_valid(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", str(RELEASED / version / "gpustack.yaml")]) == 0


@reads("snapshot")
def test_a_snapshot_leads_to_a_plan(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec, facts = (str(RELEASED / version / name) for name in ("gpustack.yaml", "snapshot.json"))
    assert main(["host", "plan", spec, "--snapshot", facts, "-f", "json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["operations"]


def prepared(version: str) -> tuple[Machine, Machine]:
    """A host as it was, and as the release prepared it."""
    kept: dict[str, Any] = json.loads((RELEASED / version / "prepared.json").read_text(encoding="utf-8"))
    after = Machine(kept["after"])
    after.images = kept["images"]
    return Machine(kept["before"]), after


@reads("prepared host")
def test_a_prepared_host_is_verified_and_planned(version: str) -> None:
    _, machine = prepared(version)
    assert verify_host(SPEC, machine.host, machine.images).passed
    plan = plan_host(SPEC, machine.host)
    assert not plan.refused
    machine.carry_out(plan)
    assert plan_host(SPEC, machine.host).operations == ()
    assert verify_host(SPEC, machine.host, machine.images).passed


@reads("prepared host")
def test_a_prepared_host_is_restored(version: str) -> None:
    before, machine = prepared(version)
    assert machine.texts() != before.texts()
    plan = plan_undo_of_host(machine.host)
    assert (plan.refused, plan.findings) == (False, ())
    machine.carry_out(plan)
    assert machine.texts() == before.texts()
    assert verify_undone(machine.host, machine.images).passed


@reads("journal of clean-up")
def test_a_journal_of_clean_up_is_undone(
    version: str, tmp_path: Path, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    options = databases(version, tmp_path, "cell", now)
    assert rows(tmp_path) != expected(version, "cell-before", now)
    assert main(["cleanup", "undo", str(RELEASED / version / "cleanup.jsonl"), *options, "--yes"]) == 0
    assert rows(tmp_path) == expected(version, "cell-before", now)


@reads("plan of clean-up")
def test_a_saved_plan_of_clean_up_is_applied(
    version: str, tmp_path: Path, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    options = databases(version, tmp_path, "cell-before", now)
    journal = ["--journal", str(tmp_path / "journal.jsonl"), "--no-hypervisor", "--yes", "--wait", "0"]
    assert main(["cleanup", "apply", str(RELEASED / version / "plan.json"), *options, *journal]) == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "cell.sqlite")) as connection:
        rows = {
            number: rest for number, *rest in connection.execute("SELECT id, status, instance_uuid FROM pci_devices")
        }
    planned = json.loads((RELEASED / version / "plan.json").read_text(encoding="utf-8"))["verdicts"]
    assert planned
    assert [rows[verdict["devices"][0]["id"]] for verdict in planned] == [["available", None]] * len(planned)
    assert len(re.findall(r"^class A .*: done: ", capsys.readouterr().err, re.MULTILINE)) == len(planned)


def undo(version: str, name: str, place: Path) -> tuple[CloudChange, ...]:
    shutil.copy(RELEASED / version / name, place)
    (place / name).chmod(0o600)
    changes, final = plan_undo(journal.find(str(place / name), former()), kinds())
    assert not final
    return changes


@reads("journal of idle instances")
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


@reads("journal of images")
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


@reads("record of a change")
def test_a_record_of_each_kind_is_undone(version: str, tmp_path: Path) -> None:
    shutil.copy(RELEASED / version / "changes.jsonl", tmp_path)
    record = journal.find(str(tmp_path / "changes.jsonl"), former())
    assert record.state == "done"
    made, final = plan_undo(record, kinds())
    assert len(made) + len(final) == len(record.head.changes) > 10
    assert made


def test_each_row_has_a_test_and_each_kept_file_a_row() -> None:
    assert ROWS.keys() == TESTED
    kept = {path.name for path in RELEASED.glob("*/*")}
    assert kept - OTHERS <= {file for file, _ in ROWS.values()}
    assert {row for row in ROWS if versions(row)} == set(re.findall(r"^\| ([a-z -]+) \| [0-9]", table(), re.MULTILINE))


def test_files_of_each_release_are_kept() -> None:
    changelog = (RELEASED.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## (\S+) \(", changelog, re.MULTILINE)) == sorted(
        path.name for path in RELEASED.iterdir() if path.is_dir()
    )
