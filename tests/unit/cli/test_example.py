"""``gpustack example …``: what it writes, and what it refuses before anything is installed or started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpustack.base.errors import GpustackError, UsageError
from gpustack.cli import example
from gpustack_demo.examples import commands
from gpustack_demo.examples.machine import Machine


def test_each_example_host_is_in_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "HOSTS", {name: commands.HOSTS[name] for name in ("gpu01", "gpu05")})
    lines: list[str] = []
    commands.create(tmp_path / "new", lines.append)
    inventory = yaml.safe_load((tmp_path / "new/inventory.yaml").read_text(encoding="utf-8"))["gpu_hosts"]
    assert set(inventory["hosts"]) == {"gpu01", "gpu05"}
    for name in inventory["hosts"]:
        root = Path(inventory["vars"]["gpustack_root"].replace("{{ inventory_hostname }}", name))
        assert Machine.load(root).name == name
        assert any(line.startswith(f"{name}: ") for line in lines)


def test_a_directory_with_content_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(UsageError, match="not empty"):
        commands.create(tmp_path, print)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("missing", ["hosts.json", "nova"])
def test_a_cloud_needs_hosts_and_configuration(tmp_path: Path, missing: str) -> None:
    (tmp_path / "nova").mkdir()
    (tmp_path / "hosts.json").touch()
    path = tmp_path / missing
    path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(UsageError, match=missing):
        commands.cloud(tmp_path / "hosts.json", tmp_path / "nova", print)


def test_an_earlier_cloud_is_kept(tmp_path: Path) -> None:
    for name in ("hosts.json", "nova", "cloud"):
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="earlier"):
        commands.cloud(tmp_path / "hosts.json", tmp_path / "nova", print)


def test_the_installation_is_announced_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(report: Callable[[str], None]) -> None:
        raise GpustackError("stopped here")

    monkeypatch.setattr("gpustack_demo.examples.cloud.install", install)
    (tmp_path / "hosts.json").touch()
    (tmp_path / "nova").mkdir()
    lines: list[str] = []
    with pytest.raises(GpustackError, match="stopped here"):
        commands.cloud(tmp_path / "hosts.json", tmp_path / "nova", lines.append)
    assert "installs Nova" in lines[0]


def test_without_the_demo_the_remedy_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpustack_demo.examples.commands", None)
    with pytest.raises(GpustackError, match="pip install"):
        example._demo()


def test_another_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gpustack_demo.examples.commands")
    monkeypatch.setitem(sys.modules, "gpustack_demo.examples.inventory", None)
    with pytest.raises(ModuleNotFoundError, match="inventory"):
        example._demo()
