"""Python, packages and Ansible of this machine; Ansible is really started."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote, split

import pytest

from gpustack.operate.doctor import machine
from gpustack.operate.doctor.check import State


def test_this_environment_is_ready() -> None:
    checks = list(machine.checks())
    assert [check.name for check in checks] == ["gpustack", "Python", "Python packages", "Ansible"]
    assert {check.state for check in checks} == {State.OK}
    assert checks[-1].seen.startswith("core 2.")


def test_another_project_of_the_same_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    metadata = tmp_path / "gpustack-2.3.0.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: gpustack\nVersion: 2.3.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    check = machine.itself()
    assert (check.state, check.exit_code) == (State.ERROR, 1)
    assert "the distribution gpustack 2.3.0, another project" in check.seen
    assert "environments of their own" in check.remedy


def test_packages_that_are_missing_or_of_another_version() -> None:
    unreadable = "no requirement at all;"
    check = machine.packages(
        ["cliff>=999", "no-such-package>=1", 'pydantic>=99; extra == "demo"', "PyYAML", unreadable]
    )
    assert check.state is State.ERROR
    assert "cliff is " in check.seen
    assert "expected >=999; no-such-package is missing" in check.seen
    assert "pydantic" not in check.seen
    assert check.exit_code == 1
    sound = machine.packages(["PyYAML", 'cliff>=999; python_version < "3"', "cliff>=1", unreadable])
    assert (sound.state, sound.seen) == (State.OK, "2 of 2 in supported versions")


def test_gpustack_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DISTRIBUTION", "no-such-distribution")
    checks = {check.name: check for check in machine.checks()}
    assert (list(checks), checks["Python packages"].state) == (
        ["gpustack", "Python packages", "Ansible"],
        State.WARNING,
    )
    assert checks["Python packages"].seen == "no-such-distribution is not installed in this environment"


def test_the_metadata_of_the_distribution_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both distributions are made: one needs a Python that does not exist, and the other in a later version."""
    for name, lines in {
        "needy-1.0": ["Requires-Python: >=99", "Requires-Dist: candidate>=2", "Requires-Dist: no-such-package"],
        "candidate-2.1rc1": [],
    }.items():
        metadata = tmp_path / f"{name}.dist-info/METADATA"
        metadata.parent.mkdir()
        project, _, version = name.partition("-")
        metadata.write_text("\n".join([f"Name: {project}", f"Version: {version}", *lines, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(machine, "DISTRIBUTION", "needy")
    _itself, python, packages, _ansible = machine.checks()
    assert (python.state, "expected >=99" in python.seen) == (State.ERROR, True)
    assert packages.seen == "no-such-package is missing"  # a release candidate of a later version is enough
    monkeypatch.setattr(machine.platform, "python_version", lambda: "3.15.0rc1")
    assert machine.python(">=3.11").state is State.OK


def test_a_python_that_is_not_supported() -> None:
    assert machine.python(">=99").state is State.ERROR
    assert machine.python("").state is State.OK


def test_the_reason_of_ansible_has_all_its_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("forks = 1\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    assert "File contains no section headers. file: '<string>', line: 1" in machine.ansible().seen


def test_an_ansible_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "my sources" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("ANSIBLE_FORKS", "many")
    check = machine.ansible()
    assert (check.state, check.exit_code) == (State.ERROR, 1)
    assert check.seen.startswith("Ansible does not start: ")
    assert split(check.remedy) == ["run", str(python), "-P", "-m", "ansible", "playbook", "--version"]
