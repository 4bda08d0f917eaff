"""``gpustack playbook path`` and ``gpustack monitoring path``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpustack.cli import paths


def test_the_directories_are_there(gpustack):
    ran = gpustack("playbook", "path", "-f", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert list(document) == ["playbooks", "roles", "templates"]
    assert all(Path(path).is_dir() for path in document.values())


def test_one_directory_for_a_script(gpustack):
    ran = gpustack("playbook", "path", "-f", "value", "-c", "playbooks")
    assert Path(ran.out.strip()).name == "playbooks"


def test_a_name_prints_one_path(gpustack):
    ran = gpustack("playbook", "path", "prepare")
    assert ran.out.endswith("/playbooks/prepare.yml\n")
    assert Path(ran.out.rstrip("\n")).is_file()
    ran = gpustack("playbook", "path", "repare")
    assert (ran.code, ran.out) == (2, "")
    assert "names: playbooks, roles, templates, cleanup, facts, image, nova, plan, prepare, undo, verify" in ran.err


def test_an_installation_without_them(gpustack, monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "collection_dir", lambda: tmp_path)
    ran = gpustack("playbook", "path")
    assert ran.code == 1
    assert f"{tmp_path}/playbooks: the playbooks are missing from this installation" in ran.err


def test_an_unknown_field(gpustack):
    ran = gpustack("playbook", "path", "-c", "colour")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no column colour" in ran.err


Gpustack = Callable[..., Any]


def test_the_files_are_there(gpustack: Gpustack) -> None:
    paths = json.loads(gpustack("monitoring", "path", "-f", "json").out)
    assert {name: Path(path).is_file() for name, path in paths.items()} == {"alerts": True, "dashboard": True}


@pytest.mark.parametrize("name", ["alerts", "dashboard"])
def test_a_name_prints_only_its_path(gpustack: Gpustack, name: str) -> None:
    (path,) = gpustack("monitoring", "path", name).out.splitlines()
    assert Path(path).is_file()


def test_an_unknown_name_is_refused(gpustack: Gpustack) -> None:
    ran = gpustack("monitoring", "path", "rules")
    assert (ran.code, ran.out) == (2, "")
    assert "alerts, dashboard" in ran.err.replace("'", "")  # older Pythons quote them
