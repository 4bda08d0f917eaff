"""The role's own rules: what it says about its variables is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.base.files import collection_dir
from gpustack.connect.playbooks.record import Phase

TOP = Path(__file__).parents[3]
COLLECTION = collection_dir()
ROLE = COLLECTION / "roles/gpustack"
MODULES = {path.stem for kind in ("modules", "action") for path in (COLLECTION / "plugins" / kind).glob("*.py")}
TEXTS = [*COLLECTION.glob("roles/*/*/*.yml"), *COLLECTION.glob("playbooks/*.yml")]


def _read(path: str) -> Any:
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


SPECS: dict[str, Any] = _read("meta/argument_specs.yml")["argument_specs"]


def test_defaults_and_readmes_come_from_the_argument_specs() -> None:
    tool = TOP / "tools" / "role-variables"
    process = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"run tools/role-variables: {process.stdout}{process.stderr}"


def test_every_entry_point_has_its_tasks() -> None:
    for entry in SPECS:
        assert (ROLE / "tasks" / f"{entry}.yml").is_file()


def test_phases_of_tasks_are_known_to_the_runner() -> None:
    texts = [path.read_text(encoding="utf-8") for path in TEXTS]
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
    used -= set(re.findall(r"nova_gpustack\.passthrough\.(\w+)", text)) - defined
    described = {name for entry in SPECS.values() for name in entry["options"]}
    assert used - defined <= described
    resolved = re.findall(r"gpustack_settings\.(\w+)", text + shared)
    assert {name.removeprefix("gpustack_") for name in described} == {*resolved} - {"host"}


@pytest.mark.parametrize(
    ("link", "package"), [("gpustack_collector", "hosts/facts/collector"), ("gpustack_initramfs", "linux/initramfs")]
)
def test_the_host_runs_the_same_modules(link: str, package: str) -> None:
    local, shipped = (
        {path.name: path.read_bytes() for path in directory.glob("*.py")}
        for directory in (TOP / "gpustack" / package, COLLECTION / "plugins/module_utils" / link)
    )
    assert local == shipped
    assert local


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(COLLECTION)))
def test_modules_and_roles_have_full_names_and_no_variable_has_theirs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not MODULES & set(re.findall(r"(?:register: |loop_var: |^ *)(gpustack_\w+)\b", text, re.MULTILINE))
    if path.parent.name != "meta":
        assert not re.findall(r"^ +name: gpustack\w*$", text, re.MULTILINE)
