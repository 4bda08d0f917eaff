"""Hosts that go on from the cache, and states there that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import states
from .conftest import Lab
from .machine import MEMORY
from .topology import Shape


def _write(directory: Path) -> None:
    (directory / "below").mkdir(parents=True)
    (directory / "below" / "file").write_text("content")
    (directory / "another").write_text("content")


def _truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def test_kept_state_is_used(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert not states.used(state, pytest.fail)
    states.publish(state, _write)
    assert states.used(state, pytest.fail)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("name", ["below/file", "another", states.SUMS])
def test_truncated_state_is_removed(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    states.publish(state, _write)
    _truncate(state / name)
    reports: list[str] = []
    assert not states.used(state, reports.append)
    assert reports == ["state is damaged; the state is removed"]
    assert not state.exists()


@pytest.mark.parametrize("name", ["below/file", states.SUMS])
def test_incomplete_state_is_removed(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    states.publish(state, _write)
    (state / name).unlink()
    assert not states.used(state, lambda text: None)
    assert not state.exists()


@pytest.mark.parametrize("sums_fit", [False, True])
def test_host_boots_without_a_sound_state(lab: Lab, sums_fit: bool) -> None:
    shape = Shape(memory_mib=1536)
    state = lab.booted_directory(shape)
    with lab.booted("first", shape):
        assert state.is_dir()
    _truncate(state / MEMORY)
    if sums_fit:  # QEMU itself must find the fault
        states.write_sums(state)
    with lab.booted("second", shape) as host:
        assert host.state is None
        assert host.boots() == 1
    with lab.booted("third", shape) as host:
        assert host.state == state
        assert host.boots() == 1
