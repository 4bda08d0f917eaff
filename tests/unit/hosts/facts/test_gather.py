"""Facts from this host, a root directory and a snapshot; SSH has a file of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpustack.base.errors import HostError
from gpustack.connect.ssh.config import HostSettings, SshOptions
from gpustack.hosts.facts.gather import _named, gather
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.store import save_snapshot
from support.host_samples import SNAPSHOTS, raw_host
from support.sysroot import talk_host


def test_this_host():
    gathered = gather()
    assert [host.root for host in gathered.hosts] == ["/"]
    assert gathered.failures == ()


@pytest.fixture
def sudo(monkeypatch, tmp_path):
    """A stand-in for sudo, and a user who is not root."""

    def make(script):
        path = tmp_path / "bin/sudo"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{Path(sys.executable).parent}:/usr/bin:/bin")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        return path

    return make


def test_this_host_as_root(sudo, tmp_path):
    sudo(f'printf "%s " "$@" >{tmp_path}/asked; shift 2; exec "$@"')
    gathered = gather(ssh=SshOptions(sudo=True))
    assert [host.root for host in gathered.hosts] == ["/"]
    assert (tmp_path / "asked").read_text() == "-n -- python3 -I -S - "


def test_this_host_without_a_password_for_sudo(sudo):
    sudo("echo 'sudo: a password is required' >&2; exit 1")
    with pytest.raises(HostError, match="this host: sudo refuses: sudo: a password is required") as caught:
        gather(ssh=SshOptions(sudo=True))
    assert "run gpustack as root" in str(caught.value)


def test_a_sudo_that_waits_on_this_host_is_ended(sudo):
    sudo("exec sleep 60")
    with pytest.raises(HostError, match=r"did not answer within 0\.5 seconds"):
        gather(ssh=SshOptions(sudo=True, timeout=0.5))


def test_a_root_directory(tmp_path):
    talk_host(tmp_path)
    gathered = gather(root=tmp_path, keep=True)
    (host,) = gathered.hosts
    assert [gpu.main.address for gpu in gpus(host)] == ["0000:88:00.0", "0000:89:00.0"]
    assert gathered.raw[0]["hostname"] == host.hostname


def test_a_root_without_a_host_name_is_called_after_its_directory(tmp_path):
    root = tmp_path / "compute image"
    root.mkdir()
    assert [host.hostname for host in gather(root=root).hosts] == ["compute-image"]


def test_no_such_root(tmp_path):
    with pytest.raises(HostError, match="can't be read"):
        gather(root=tmp_path / "missing")


def test_a_snapshot_whole_and_in_part(tmp_path):
    path = tmp_path / "fleet.json"
    save_snapshot(path, [raw_host(hostname=name) for name in ("gpu01", "gpu02", "gpu03")])
    assert [h.hostname for h in gather(snapshot=[path]).hosts] == ["gpu01", "gpu02", "gpu03"]
    gathered = gather(["gpu03", "gpu07", "gpu01"], snapshot=[path], keep=True)
    assert [h.hostname for h in gathered.hosts] == ["gpu03", "gpu01"]
    assert [raw["hostname"] for raw in gathered.raw] == ["gpu03", "gpu01"]
    assert [str(f.error).splitlines()[0] for f in gathered.failures] == [f"gpu07: not in the snapshot {path}"]


def test_every_sample_can_be_gathered():
    for path in SNAPSHOTS.glob("*.json"):
        assert gather(snapshot=[path]).hosts


LOCAL = {"gpu02": "localhost"}


@pytest.mark.parametrize(
    ("called", "hostnames", "expected"),
    [
        ({"gpu01": "gpu01"}, ["gpu01"], {}),
        ({"gpu01.example.org": "gpu01"}, ["gpu01.example.org"], {}),
        ({"gpu01": "gpu01.example.org"}, ["gpu01.example.org"], {}),
        ({"gpu01": None}, ["gpu01"], {}),
        ({"gpu01": "localhost", "root@gpu02": "localhost"}, ["gpu01", "gpu02"], {"gpu01": "localhost"} | LOCAL),
        ({"fe80::1": "localhost", "gpu02": "localhost"}, ["fe80--1", "gpu02"], {"fe80--1": "localhost"} | LOCAL),
        # hosts that lie
        ({"gpu01": "gpu02"}, ["gpu01"], {"gpu01": "gpu02"}),
        ({"root@10.0.0.5": "gpu01"}, ["10.0.0.5"], {"10.0.0.5": "gpu01"}),
        ({"gpu01.a": "gpu01.b", "gpu01.b": "gpu01.b"}, ["gpu01.a", "gpu01.b"], {"gpu01.a": "gpu01.b"}),
        ({"gpu01": "gpu02", "gpu02": "gpu02"}, ["gpu01", "gpu02"], {"gpu01": "gpu02"}),
        ({"gpu01": ["gpu02"]}, [["gpu02"]], {}),  # which the model refuses
    ],
)
def test_a_host_is_called_as_the_user_calls_it(called, hostnames, expected):
    raw = {target: {**raw_host(), "hostname": hostname} for target, hostname in called.items()}
    documents, differing = _named(raw, SshOptions())
    assert [document["hostname"] for document in documents.values()] == hostnames
    assert differing == expected


@pytest.mark.parametrize(("own_name", "differing"), [("node1", {}), ("gpu01", {}), ("gpu2", {"gpu01": "gpu2"})])
def test_an_inventory_has_the_name_in_the_spec(own_name: str, differing: dict[str, str]) -> None:
    options = SshOptions(settings=lambda name: HostSettings(hostname="gpu01"))
    raw = {"node1": {**raw_host(), "hostname": own_name, "inventory_groups": ["gpus"]}}
    documents, others = _named(raw, options)
    assert documents["node1"]["hostname"] == "gpu01"
    assert others == differing
