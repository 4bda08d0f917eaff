"""``gpustack why host``: options, output, exit codes, one SSH session. Nova and Placement are made, sshd is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.base.errors import PartialError
from gpustack.cli.app import main
from gpustack.cli.cloud import OpenStackCommand
from gpustack.hosts.facts.store import save_snapshot
from support.fleet_answers import device, facts
from support.fleet_cloud import StandIn, servers, with_devices
from support.sshd import Sshd

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu1": [k4200]}\n'


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    """One GPU in Placement."""
    made = with_devices([device("gpu1", 0x81)])
    made.answers["compute /servers/detail?all_tenants=1"] = servers()
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *_arguments, **_options: made)
    monkeypatch.chdir(tmp_path)
    Path("gpustack.yaml").write_text(SPEC, encoding="utf-8")
    return made


def test_a_snapshot_shows_the_links_of_each_gpu(cloud: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    save_snapshot(Path("fleet.json"), [facts("gpu1", 0x81, 0x82).model_dump(mode="json", by_alias=True)])
    code = main(["why", "host", "gpu1", "--snapshot", "fleet.json", "-f", "json", "--exit-code"])
    output = capsys.readouterr()
    assert code == 3, output.err
    assert [(row["address"], row["host"], row["placement"], row["broken"]) for row in json.loads(output.out)] == [
        ("0000:81:00.0", True, True, None),
        ("0000:82:00.0", True, False, "Placement"),
    ]


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(directory=tmp_path / "server")
    server.start()
    yield server
    server.stop()


def test_the_host_is_asked_in_one_session(cloud: StandIn, sshd: Sshd, capsys: pytest.CaptureFixture[str]) -> None:
    """This machine answers, which has no GPU at this address."""
    Path("config").write_text(f"Host gpu1\nHostName 127.0.0.1\nPort {sshd.port}\nIdentityFile {sshd.client_key}\n")
    Path("known").write_text(sshd.known())
    more = ["--ssh-config", "config", "--known-hosts", "known", "--timeout", "120"]
    code = main(["why", "host", "gpu1", "--ask-host", *more, "-f", "json", "--exit-code"])
    output = capsys.readouterr()
    assert code == 3, output.err
    assert [row["broken"] for row in json.loads(output.out) if row["address"] == "0000:81:00.0"] == ["host"]
    assert "GPU589" in output.err
    assert (sshd.directory / "log").read_text().count("Accepted publickey") == 1


def test_a_silent_host_leaves_the_answer_partial(cloud: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config").write_text("Host gpu1\nHostName 127.0.0.1\nPort 9\n")
    code = main(["why", "host", "gpu1", "--ask-host", "--ssh-config", "config", "-f", "json", "--exit-code"])
    output = capsys.readouterr()
    assert code == PartialError.exit_code
    assert "partial: gpu1: " in output.err
    assert json.loads(output.out)[0]["host"] is None
