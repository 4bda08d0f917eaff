"""The role's own rules: what it says about its variables is so."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from gpustack.files import share_dir
from gpustack.playbook_runner.record import Phase

PLAYBOOKS = share_dir("playbooks")
ROLE = PLAYBOOKS / "roles/gpustack"


def _read(path: str) -> Any:
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


SPECS: dict[str, Any] = _read("meta/argument_specs.yml")["argument_specs"]
DEFAULTS: dict[str, Any] = _read("defaults/main.yml")


@pytest.mark.parametrize("entry", SPECS)
def test_what_is_said_of_the_defaults_is_so(entry: str) -> None:
    for name, option in SPECS[entry]["options"].items():
        if option.get("required"):
            assert name not in DEFAULTS
        else:
            assert option["default"] == DEFAULTS[name], name


def test_every_default_is_described() -> None:
    described = {name for entry in SPECS.values() for name in entry["options"]}
    assert set(DEFAULTS) <= described


def test_every_entry_point_has_its_tasks() -> None:
    for entry in SPECS:
        assert (ROLE / "tasks" / f"{entry}.yml").is_file()


def test_entry_points_say_the_same_of_a_variable() -> None:
    said: dict[str, Any] = {}
    for entry in SPECS.values():
        for name, option in entry["options"].items():
            assert said.setdefault(name, option) == option


def test_phases_of_tasks_are_known_to_the_runner() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PLAYBOOKS.rglob("*.yml")]
    assert {phase for text in texts for phase in re.findall(r"gpustack_phase: (\w+)", text)} == set(Phase)


def test_every_variable_that_is_used_is_described_or_made() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROLE / "tasks").glob("*.yml"))
    used = set(re.findall(r"\bgpustack_[a-z_]+", text))
    made = set(re.findall(r"(?:register|loop_var): (gpustack_\w+)", text)) | set(
        re.findall(r"^ +(gpustack_\w+):", text, re.MULTILINE)
    )
    shared = (ROLE / "vars/main.yml").read_text(encoding="utf-8")
    used |= set(re.findall(r"\bgpustack_[a-z_]+", shared))
    made |= set(re.findall(r"^(gpustack_\w+):", shared, re.MULTILINE))
    modules = {
        path.stem for directory in ("library", "action_plugins") for path in (PLAYBOOKS / directory).glob("*.py")
    }
    described = {name for entry in SPECS.values() for name in entry["options"]}
    assert used - made - modules <= described
    assert described <= used


def test_the_readmes_list_every_variable() -> None:
    described = {name for entry in SPECS.values() for name in entry["options"]}
    rows = [
        re.findall(r"^\| `(gpustack_\w+)` \|.*$", path.read_text(encoding="utf-8"), re.MULTILINE)
        for path in (ROLE / "README.md", PLAYBOOKS / "README.md")
    ]
    assert set(rows[0]) == described
    assert set(rows[1]) == described | {"gpustack_hosts", "gpustack_max_fail_percentage", "gpustack_serial"}


def test_the_host_runs_the_same_collector() -> None:
    ours, theirs = share_dir("playbooks").parent / "gpustack", PLAYBOOKS / "module_utils"
    names = sorted(path.name for path in (ours / "facts/collector").glob("*.py"))
    assert names == sorted(path.name for path in (theirs / "gpustack_collector").glob("*.py"))
    for name in names:
        assert (theirs / "gpustack_collector" / name).read_bytes() == (ours / "facts/collector" / name).read_bytes()
    assert (theirs / "gpustack_initramfs.py").read_bytes() == (ours / "linux/initramfs.py").read_bytes()
