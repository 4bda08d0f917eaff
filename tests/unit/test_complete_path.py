"""The tutorial's page "The complete path, for real" shows a recording of the lab."""

from __future__ import annotations

import importlib.util
import json
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
LOADER = SourceFileLoader("complete_path", str(TOP / "tools/complete-path"))
SPEC = importlib.util.spec_from_loader("complete_path", LOADER)
assert SPEC is not None
complete_path = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(complete_path)


def step(command: str, *output: str) -> dict[str, object]:
    return {"command": command, "minute": 0.5, "seconds": 12, "code": 0, "output": list(output)}


SCAN, BOOT = step("gpustack scan lab1", "lab1 ready"), step("openstack server create vm0", "a", "b", "", "vm0", "")


def test_the_page_shows_the_stored_recording() -> None:
    text = complete_path.PAGE.read_text(encoding="utf-8")
    assert complete_path.page(text, json.loads(complete_path.RECORDING.read_text(encoding="utf-8"))) == text


def test_every_command_of_the_recording_succeeded() -> None:
    recorded = json.loads(complete_path.RECORDING.read_text(encoding="utf-8"))
    assert [found["command"] for found in recorded if found["code"]] == []


def test_the_recording_names_no_directory_of_its_machine() -> None:
    assert not re.search(r"/(work|var/tmp|home)/|127\.0\.0\.1:\d", complete_path.RECORDING.read_text(encoding="utf-8"))


def test_a_comment_chooses_the_next_command() -> None:
    text = "Before.\n<!-- recorded: gpustack scan -->\nBetween.\n<!-- recorded: gpustack scan -->\n"
    shown = complete_path.page(text, [BOOT, SCAN, step("gpustack scan lab2", "lab2 ready")])
    shown_commands = re.findall(r"```console\n(.*?)```\n", shown, flags=re.DOTALL)
    assert shown_commands == ["$ gpustack scan lab1\nlab1 ready\n", "$ gpustack scan lab2\nlab2 ready\n"]
    assert re.sub(r"```console\n.*?```\n", "", shown, flags=re.DOTALL) == text


def test_omitted_lines_are_marked() -> None:
    shown = complete_path.page("<!-- recorded: openstack server\nkeep: vm0 -->\n", [BOOT])
    assert shown.splitlines()[3:] == ["$ openstack server create vm0", "…", "vm0", "```"]


def test_a_changed_recording_replaces_blocks_and_times() -> None:
    text = "<!-- recorded: gpustack scan -->\n\n<!-- times -->\n\nEnd.\n"
    first = complete_path.page(text, [SCAN])
    assert "| 0.5 | `gpustack scan` | 12 s |\n\nEnd." in first
    again = step("gpustack scan lab1", "not ready")
    assert complete_path.page(first, [again]) == complete_path.page(text, [again])
    assert complete_path.page(first, [SCAN]) == first


@pytest.mark.parametrize("steps", [[], [BOOT], [SCAN, BOOT]])
def test_a_command_that_was_not_recorded_is_refused(steps: list[dict[str, object]]) -> None:
    with pytest.raises(SystemExit, match="starts with: gpustack scan"):
        complete_path.page("<!-- recorded: gpustack scan -->\n" * 2, steps)


def test_directories_ports_and_escapes_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "lab0" / "cloud"
    directory.mkdir(parents=True)
    later = {"command": "b", "started": 130.0, "seconds": 2.4, "code": 0, "output": "\x1b[2Jx\r\n"}
    first = {
        "command": f"ansible-playbook -i {directory}/inventory.yml {TOP}/playbooks/nova.yml",
        "started": 100.0,
        "seconds": 61.6,
        "code": 0,
        "output": f"{directory.parent}/control-plane/nova.conf \nhttp://127.0.0.1:43117/v3\n",
    }
    source = directory / "recording.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in (later, first)))
    assert complete_path.stored(source) == [
        {
            "command": "ansible-playbook -i inventory.yml playbooks/nova.yml",
            "minute": 0.0,
            "seconds": 62,
            "code": 0,
            "output": ["control-plane/nova.conf", "http://127.0.0.1:PORT/v3"],
        },
        {"command": "b", "minute": 0.5, "seconds": 2, "code": 0, "output": ["x"]},
    ]
