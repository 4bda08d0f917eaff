"""The action plugins, without a host: a missing gpustack, and one of another version than the playbooks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import gpustack
from gpustack.connect.playbooks.inventory import interpreter
from support.playbook_place import environment

RELEASED = Path(__file__).parents[2] / "released"
NAME = "nova_gpustack.passthrough"


def played(place: Path, task: str, plugins: Path | None = None) -> str:
    """The error of a play with one task, in which modules in the directory of the play replace installed ones."""
    play = "[{hosts: localhost, gather_facts: false, tasks: [{%s: {}}, {file: {path: reached, state: touch}}]}]"
    (place / "play.yml").write_text(play % task)
    old = {"ANSIBLE_ACTION_PLUGINS": str(plugins)} if plugins else {}
    process = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "play.yml"],
        cwd=place,
        env={**environment(place), "PYTHONPATH": str(place), **old},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode != 0
    assert not {"Traceback", "ImportError"} & {*(process.stdout + process.stderr).replace(":", " ").split()}
    assert "fatal: [localhost]" not in process.stdout, "Ansible stops before it carries the task out for a host"
    assert not (place / "reached").exists()
    return " ".join(process.stderr.split())


def test_missing_gpustack_is_reported_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "gpustack.py").write_text("raise ImportError('as if it were not installed')\n", encoding="utf-8")
    printed = played(tmp_path, f"{NAME}.gpustack_plan")
    assert f"gpustack is not installed for the Python that runs Ansible, {sys.executable}" in printed


def test_another_project_of_the_same_name_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gpustack-2.3.0.dist-info").mkdir()
    (tmp_path / "gpustack-2.3.0.dist-info/METADATA").write_text("Name: gpustack\nVersion: 2.3.0\n", encoding="utf-8")
    printed = played(tmp_path, f"{NAME}.gpustack_plan")
    assert "contains the distribution gpustack, another project" in printed
    assert "in an environment of its own" in printed


def test_playbooks_of_0_1_0_stop_with_both_versions(tmp_path: Path) -> None:
    printed = played(tmp_path, "gpustack_plan", RELEASED / "0.1.0/playbooks/action_plugins")
    assert f"the playbooks are of gpustack 0.1.0, but gpustack {gpustack.__version__} is installed" in printed
    assert "`gpustack playbook path`" in printed


def test_a_library_of_0_1_0_stops_the_playbooks_with_both_versions(tmp_path: Path) -> None:
    """The first task of a playbook reads the host; its plugin runs on the controller."""
    shutil.copytree(RELEASED / "0.1.0/gpustack", tmp_path / "gpustack")
    printed = played(tmp_path, f"{NAME}.gpustack_facts")
    assert f"the playbooks are of gpustack {gpustack.__version__}, but gpustack 0.1.0 is installed" in printed
    assert f"-m pip install nova-gpustack=={gpustack.__version__}`" in printed
    assert "`gpustack playbook path`" in printed


def test_the_error_of_a_hostile_host_steers_no_terminal(tmp_path: Path) -> None:
    program = tmp_path / "python"
    answer = {"failed": True, **dict.fromkeys(("msg", "stderr", "exception"), "x \x1b[2J\x9b2J\u202e")}
    program.write_text(f"#!{interpreter()}\nprint({json.dumps(answer)!r})\n", encoding="utf-8")
    program.chmod(0o755)
    ansible = [str(Path(sys.executable).with_name("ansible")), "-i", "evil,", "-c", "local", "evil"]
    process = subprocess.run(
        [*ansible, "-e", f"ansible_python_interpreter={program}", "-m", f"{NAME}.gpustack_facts"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    printed = process.stdout + process.stderr
    assert process.returncode == 2
    assert "[2J" in printed
    assert not {"\x1b", "\x9b", "\u202e"} & {*printed}, printed


def test_the_playbooks_have_the_version_of_the_library() -> None:
    text = (RELEASED.parents[1] / "playbooks/plugin_utils/gpustack_base.py").read_text(encoding="utf-8")
    assert f'VERSION = "{gpustack.__version__}"\n' in text
