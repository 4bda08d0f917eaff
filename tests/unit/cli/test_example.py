"""``gpustack example …``: what it writes, and what it refuses before anything is installed or started."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from openstack.exceptions import ConflictException

from gpustack.base.errors import CloudError, GpustackError, UsageError
from gpustack.cli import example
from gpustack.cli.app import main
from gpustack.cli.next_steps import step_of
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
        commands.cloud([tmp_path / "hosts.json"], tmp_path / "nova", print)


def test_an_earlier_cloud_is_kept(tmp_path: Path) -> None:
    for name in ("hosts.json", "nova", "cloud"):
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="earlier"):
        commands.cloud([tmp_path / "hosts.json"], tmp_path / "nova", print)


def test_the_installation_is_announced_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(report: Callable[[str], None]) -> None:
        raise GpustackError("stopped here")

    monkeypatch.setattr("gpustack_demo.examples.cloud.install", install)
    (tmp_path / "hosts.json").touch()
    (tmp_path / "nova").mkdir()
    lines: list[str] = []
    with pytest.raises(GpustackError, match="stopped here"):
        commands.cloud([tmp_path / "hosts.json"], tmp_path / "nova", lines.append)
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


SLEEPER = """
import sys, threading
from pathlib import Path
from types import SimpleNamespace
from gpustack_demo.examples.running import recorded
place = Path(sys.argv[1])
with recorded(place):
    (place / "demo.json").write_text("{}")
    try:
        print("runs", flush=True)
        threading.Event().wait(60)
    except KeyboardInterrupt:
        pass
"""


def test_a_cloud_is_listed_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process with the record of a cloud plays the cloud: a real one takes minutes to start."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "cloud"
    place.mkdir()
    with subprocess.Popen([sys.executable, "-c", SLEEPER, str(place)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        assert main(["example", "list", "-f", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == [{"directory": str(place), "pid": process.pid}]
        # Reap it while `stop` waits: a zombie still has its entry in /proc.
        threading.Thread(target=process.wait).start()
        assert main(["example", "stop", str(place)]) == 0
        assert process.wait() == 0
    assert not place.exists()
    capsys.readouterr()
    assert main(["example", "list", "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_cloud_of_other_records_keeps_its_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was started by another user, or with another state directory: there is no process to end."""
    with socket.create_server(("127.0.0.1", 0)) as running:
        access = {"port": running.getsockname()[1], "token": "t"}
        (tmp_path / "demo.json").write_text(json.dumps(access))
        assert main(["example", "stop", str(tmp_path)]) == 1
    assert "the cloud runs, but your records lack it" in capsys.readouterr().err
    assert (tmp_path / "demo.json").exists()


def test_only_a_cloud_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").touch()
    (tmp_path / "demo.json").write_text('{"of": "somebody else"}')
    assert main(["example", "stop", str(tmp_path)]) == 2
    assert "no example cloud" in capsys.readouterr().err
    assert (tmp_path / "precious").exists()


def test_the_directory_of_an_ended_cloud_is_removed(tmp_path: Path) -> None:
    (tmp_path / "cloud").mkdir()
    (tmp_path / "cloud/demo.json").write_text('{"port": 1, "token": "t"}')
    assert main(["example", "stop", str(tmp_path / "cloud")]) == 0
    assert not (tmp_path / "cloud").exists()


class Compute:
    """A stand-in for Nova's API: the instance stays, with this status."""

    def __init__(self, failure: Exception | None) -> None:
        self.failure = failure

    def find_server(self, name: str, *, all_projects: bool = False) -> SimpleNamespace | None:
        """An instance of another project, whose name Nova does not find in the own one."""
        return self.get_server(name) if all_projects else None

    def get_server(self, name: object) -> SimpleNamespace:
        return SimpleNamespace(id="1", name=name, status="ACTIVE", task_state=None, compute_host="gpu04")

    def migrate_server(self, server: object, host: str) -> None:
        if self.failure:
            raise self.failure


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (None, "Nova did not migrate vm1 to gpu01"),
        (ConflictException("Cannot 'migrate' while in vm_state error"), "can't migrate vm1: .*vm_state error"),
    ],
)
def test_a_refused_migration_ends_a_leak_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception | None, message: str
) -> None:
    """It waited two minutes for the state of a migrated instance."""
    (tmp_path / "demo.json").write_text('{"port": 1, "token": "t"}')
    client = contextlib.nullcontext(SimpleNamespace(compute=Compute(failure)))
    monkeypatch.setattr("openstack.connection.Connection", lambda config: client)
    monkeypatch.setattr("openstack.config.loader.OpenStackConfig.get_one", lambda self, name: None)
    monkeypatch.setattr("gpustack_demo.embedded.control.Control.hosts", lambda self: ["gpu01", "gpu04"])
    lines: list[str] = []
    with pytest.raises(CloudError, match=message):
        commands.leak(tmp_path / "demo.json", "vm1", lines.append)
    assert lines == ["Migrating vm1 from gpu04 to gpu01."]


def test_a_leak_leads_to_the_plan_of_its_cloud() -> None:
    following = {"config_file": "try/cloud/nova.conf", "grace": "0"}
    assert step_of("example leak", "done", {"cloud": Path("try/cloud")}) == ("cleanup plan", following)
