"""Example hosts as the playbooks find them: fresh, and prepared once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack_demo.examples.host import write_host
from support.playbook_place import EXAMPLES, SPEC, Place


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each example host; named after the example."""
    directory = tmp_path_factory.mktemp("examples")
    for name, make in EXAMPLES.items():
        write_host(directory / name, make(name))
    return directory


@pytest.fixture(scope="session")
def prepared(templates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The talk's host, prepared, rebooted and verified by the playbook."""
    place = Place(path=tmp_path_factory.mktemp("prepared"), templates=templates)
    root = place.add("talk")
    place.spec(SPEC)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert root.is_dir()
    return place.path / "roots"


@pytest.fixture
def place(tmp_path: Path, templates: Path) -> Place:
    """An empty inventory and a spec that names every example."""
    playbook_place = Place(path=tmp_path, templates=templates)
    playbook_place.spec(SPEC)
    return playbook_place


@pytest.fixture
def prepared_place(tmp_path: Path, prepared: Path) -> Place:
    """A place whose examples are those that are prepared already."""
    playbook_place = Place(path=tmp_path, templates=prepared)
    playbook_place.spec(SPEC)
    return playbook_place
