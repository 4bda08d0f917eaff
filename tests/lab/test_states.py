"""Hosts that go on from the cache, and images and states there that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import checksums, image, states
from .conftest import Lab
from .errors import LabError
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


@pytest.mark.parametrize("name", ["below/file", "another", checksums.NAME])
def test_truncated_state_is_removed(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    states.publish(state, _write)
    _truncate(state / name)
    reports: list[str] = []
    assert not states.used(state, reports.append)
    assert reports == ["state is damaged; the state is removed"]
    assert not state.exists()


@pytest.mark.parametrize("name", ["below/file", checksums.NAME])
def test_incomplete_state_is_removed(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    states.publish(state, _write)
    (state / name).unlink()
    assert not states.used(state, lambda text: None)
    assert not state.exists()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The directories in which images were built, here from a few words instead of packages."""
    directories: list[Path] = []

    def build(unfinished: image.Image, report: image.Reporter, kind: str) -> None:
        directories.append(unfinished.directory)
        unfinished.disk.write_text(f"{kind}: the content of the disk")

    monkeypatch.setenv("GPUSTACK_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(image, "_build", build)
    return directories


def test_kept_image_is_used(built: list[Path]) -> None:
    first, second = (image.ensure_image(lambda unfinished: None, lambda text: None) for _ in range(2))
    assert first == second
    assert len(built) == 1


@pytest.mark.parametrize("name", ["root.raw", checksums.NAME])
def test_damaged_image_is_built_again(built: list[Path], name: str) -> None:
    kept = image.ensure_image(lambda unfinished: None, lambda text: None)
    content = kept.disk.read_text()
    _truncate(kept.directory / name)
    reports: list[str] = []
    assert image.ensure_image(lambda unfinished: None, reports.append) == kept
    assert kept.disk.read_text() == content
    assert reports[0] == f"{kept.directory.name} is damaged; the image is built again"
    assert len(built) == 2


def test_image_is_not_built_without_disk_space(built: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "BUILD_SPACE", 1 << 60)
    with pytest.raises(LabError, match="free disk space; to build an image takes 1073741824 GiB"):
        image.ensure_image(lambda unfinished: None, lambda text: None)
    assert built == []


@pytest.mark.parametrize("sums_fit", [False, True])
def test_host_boots_without_a_sound_state(lab: Lab, sums_fit: bool) -> None:
    shape = Shape(memory_mib=1536)
    state = lab.booted_directory(shape)
    with lab.booted("first", shape):
        assert state.is_dir()
    _truncate(state / MEMORY)
    if sums_fit:  # QEMU itself must find the fault
        checksums.write(state)
    with lab.booted("second", shape) as host:
        assert host.state is None
        assert host.boots() == 1
    with lab.booted("third", shape) as host:
        assert host.state == state
        assert host.boots() == 1
