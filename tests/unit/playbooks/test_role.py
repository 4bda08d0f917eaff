"""The role's own rules: what it says about its variables is so."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from gpustack.base.files import share_dir
from gpustack.connect.playbooks.record import Phase

PLAYBOOKS = share_dir("playbooks")
ROLE = PLAYBOOKS / "roles/gpustack"


def _read(path: str) -> Any:
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


SPECS: dict[str, Any] = _read("meta/argument_specs.yml")["argument_specs"]


def test_defaults_and_readmes_come_from_the_argument_specs() -> None:
    tool = PLAYBOOKS.parent / "tools" / "role-variables"
    process = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"run tools/role-variables: {process.stdout}{process.stderr}"


def test_every_entry_point_has_its_tasks() -> None:
    for entry in SPECS:
        assert (ROLE / "tasks" / f"{entry}.yml").is_file()


def test_phases_of_tasks_are_known_to_the_runner() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PLAYBOOKS.rglob("*.yml")]
    assert {phase for text in texts for phase in re.findall(r"gpustack_phase: (\w+)", text)} == set(Phase)


def test_every_variable_that_is_used_is_described_or_made() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROLE / "tasks").glob("*.yml"))
    used = set(re.findall(r"\bgpustack_[a-z_]+", text))
    defined = set(re.findall(r"(?:register|loop_var): (gpustack_\w+)", text)) | set(
        re.findall(r"^ +(gpustack_\w+):", text, re.MULTILINE)
    )
    shared = (ROLE / "vars/main.yml").read_text(encoding="utf-8")
    used |= set(re.findall(r"\bgpustack_[a-z_]+", shared))
    defined |= set(re.findall(r"^(gpustack_\w+):", shared, re.MULTILINE))
    modules = {
        path.stem for directory in ("library", "action_plugins") for path in (PLAYBOOKS / directory).glob("*.py")
    }
    described = {name for entry in SPECS.values() for name in entry["options"]}
    assert used - defined - modules <= described
    resolved = re.findall(r"gpustack_settings\.(\w+)", text + shared)
    assert {name.removeprefix("gpustack_") for name in described} == {*resolved} - {"host"}


@pytest.mark.parametrize(
    ("link", "package"), [("gpustack_collector", "hosts/facts/collector"), ("gpustack_initramfs", "linux/initramfs")]
)
def test_the_host_runs_the_same_modules(link: str, package: str) -> None:
    local, shipped = (
        {path.name: path.read_bytes() for path in directory.glob("*.py")}
        for directory in (share_dir("playbooks").parent / "gpustack" / package, PLAYBOOKS / "module_utils" / link)
    )
    assert local == shipped
    assert local
