"""A journal or plan that somebody else has written or changed: undo writes what repairs write, and nothing more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.base.errors import CloudError, JournalError
from gpustack.cli.app import main
from gpustack.cloud import placement
from gpustack.repair.repair import Change
from support.cellfile import CellFile, fill, nova_conf

Lines = list[dict[str, Any]]


@pytest.fixture
def repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[CellFile, Path]:
    """A cell and the journal of its repair."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell)
    nova_conf(tmp_path, {"cell1": cell.url})
    path = tmp_path / "journal.jsonl"
    options = ["--config-file", str(tmp_path), "--journal", str(path), "--no-hypervisor"]
    assert main(["cleanup", "apply", *options, "--class", "A", "--yes", "--wait", "0"]) == 0
    capsys.readouterr()
    return cell, path


def undo(path: Path) -> int:
    return main(["cleanup", "undo", str(path), "--config-file", str(path.parent), "--yes"])


def other_table(lines: Lines) -> None:
    before, after = {"id": 1, "task_state": None, "host": "x"}, {"host": "x"}
    lines[1]["payload"]["changes"] = [{"table": "instances", "id": 1, "seen": {}, "new": after}]
    lines[1]["payload"]["before"] = [{**before, "host": "mine"}]


def other_column(lines: Lines) -> None:
    lines[1]["payload"]["changes"][0]["new"]["address"] = "0000:ff:00.0"
    lines[1]["payload"]["before"][0]["address"] = "0000:00:00.0"


def fewer_rows(lines: Lines) -> None:
    lines[1]["payload"]["before"] = []


def incomplete_row(lines: Lines) -> None:
    del lines[1]["payload"]["before"][0]["status"]


def nested_value(lines: Lines) -> None:
    lines[1]["payload"]["before"][0]["status"] = {"a": ["b"]}


def unknown_argument(lines: Lines) -> None:
    lines[1]["payload"]["changes"][0]["guarded"] = 5
    lines[1]["payload"]["changes"][0]["id"] = "1"


def other_path(lines: Lines) -> None:
    lines[1]["payload"]["allocation"] = {
        "consumer": "../resource_providers/x",
        "provider": "p",
        "before": {"allocations": {}},
    }


def part_of_a_device(lines: Lines) -> None:
    lines[1]["payload"]["held"] = [{"id": 1, "host": "new"}]


def unknown_number(lines: Lines) -> None:
    names = ("host", "address", "status", "instance_uuid", "request_id")
    lines[1]["payload"]["held"] = [{**dict.fromkeys(names, "x"), "id": 1 << 70, "compute_node_id": 1, "deleted": 0}]


def not_a_time(lines: Lines) -> None:
    lines[1]["payload"]["before"][0]["updated_at"] = {"datetime": 5}


@pytest.mark.parametrize(
    "tamper",
    [
        other_table,
        other_column,
        fewer_rows,
        incomplete_row,
        nested_value,
        unknown_argument,
        other_path,
        part_of_a_device,
        unknown_number,
        not_a_time,
    ],
)
def test_a_tampered_journal_writes_nothing(
    tamper: Callable[[Lines], None], repaired: tuple[CellFile, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cell, path = repaired
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    tamper(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = cell.dump()
    assert undo(path) == JournalError.exit_code
    assert cell.dump() == before
    assert "fault of gpustack" not in capsys.readouterr().err


def test_an_untouched_journal_is_undone(repaired: tuple[CellFile, Path]) -> None:
    assert undo(repaired[1]) == 0


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "5\n", "[]\n", '{"gpustack_cleanup_journal": 1}\n5\n']
)
def test_what_is_no_journal_and_no_plan(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    nova_conf(tmp_path, {})
    assert undo(path) == JournalError.exit_code
    assert main(["cleanup", "apply", str(path), "--config-file", str(tmp_path)]) == JournalError.exit_code
    assert "fault of gpustack" not in capsys.readouterr().err


def test_repairs_can_not_be_made_that_undo_would_refuse() -> None:
    with pytest.raises(ValueError, match="no repair writes"):
        Change(table="instances", id=1, seen={}, new={"host": "x"})


def answers(document: object) -> Any:
    def refuses() -> object:
        if isinstance(document, Exception):
            raise document
        return document

    response = SimpleNamespace(status_code=200, json=refuses, headers={})
    return SimpleNamespace(placement=SimpleNamespace(request=lambda path, method, **_more: response))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"allocations": 5},
        {"allocations": {"gpu": {}}},
        {"allocations": {"../x": {"resources": {}}}},
        {"allocations": {"gpu": {"resources": {"VCPU": "1"}}}},
        {"allocations": {"gpu": {"resources": {"VCPU": 10**400}}}},
        {"resource_providers": [{"uuid": "u", "name": 5, "root_provider_uuid": "r"}]},
        {"resource_providers": 5},
        RecursionError(),
    ],
)
def test_a_malformed_answer_of_placement_is_the_clouds_error(document: object) -> None:
    with pytest.raises(CloudError):
        placement.allocations_of(answers(document), "vm")
    with pytest.raises(CloudError):
        list(placement.providers(answers(document)))


def test_what_placement_says_of_a_consumer_is_read_by_what_is_written_back() -> None:
    document = {
        "allocations": {"gpu": {"generation": 3, "resources": {"CUSTOM_PCI": 1}}},
        "consumer_generation": 2,
        "project_id": "p",
        "user_id": "u",
        "aura": [[]],
    }
    assert placement.allocations_of(answers(document), "vm") == {
        "allocations": {"gpu": {"resources": {"CUSTOM_PCI": 1}}},
        "consumer_generation": 2,
        "project_id": "p",
        "user_id": "u",
    }
    assert placement.allocations_of(answers({"allocations": {}}), "vm") == {"allocations": {}}
