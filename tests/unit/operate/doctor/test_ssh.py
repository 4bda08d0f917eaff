"""SSH client, keys and known hosts, in a home directory of the test's own."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from gpustack.connect.ssh.config import SshOptions
from gpustack.operate.doctor import ssh
from gpustack.operate.doctor.check import Check, State


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr("gpustack.connect.ssh.config.SYSTEM_CONFIG", tmp_path / "none")
    monkeypatch.setattr("gpustack.connect.ssh.config.SYSTEM_KNOWN_HOSTS", ())
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def checks(*hosts: str) -> dict[str, Check]:
    return {check.name: check for check in ssh.checks(SshOptions(), lambda: hosts)}


def know(home: Path, *names: str) -> None:
    key = paramiko.ECDSAKey.generate()
    lines = [f"{name} {key.get_name()} {key.get_base64()}\n" for name in names]
    (home / ".ssh/known_hosts").write_text("".join(lines))


def test_an_ssh_that_does_not_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with ``--user 1234``: OpenSSH refuses a user without an entry in /etc/passwd."""
    (home / "ssh").write_text("#!/bin/sh\necho No user exists for uid 1234 >&2\nexit 255\n")
    (home / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(home), prepend=":")
    client = checks()["SSH client"]
    assert (client.state, client.seen) == (State.ERROR, "ssh does not start: No user exists for uid 1234")


def test_nothing_is_set_up() -> None:
    results = checks()
    assert results["SSH keys"].state is State.NOT_CONFIGURED
    assert results["Known hosts"].state is State.NOT_CONFIGURED


def test_a_key_and_known_hosts(home: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(home / ".ssh/id_ecdsa"))
    know(home, "gpu01", "gpu02")
    results = checks("gpu01", "gpu02")
    assert results["SSH keys"].state is State.OK
    assert results["SSH keys"].seen == str(home / ".ssh/id_ecdsa")
    assert results["Known hosts"].seen == "all 2 hosts of the spec have a known key"
    assert checks()["Known hosts"].seen == "2 keys"


def test_a_key_with_a_passphrase_and_no_agent(home: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(home / ".ssh/id_ecdsa"), password="geheim")
    check = checks()["SSH keys"]
    assert check.state is State.NOT_CONFIGURED
    assert "needs a passphrase" in check.seen


def test_hosts_without_a_known_key_are_named(home: Path) -> None:
    know(home, "gpu01")
    check = checks("gpu01", *(f"gpu{number:02}" for number in range(2, 8)))["Known hosts"]
    assert check.state is State.WARNING
    assert check.seen == "6 of 7 hosts of the spec have no known key: gpu02, gpu03, gpu04, gpu05 and 2 more"


def test_a_configuration_that_makes_no_sense(home: Path) -> None:
    (home / ".ssh/config").write_text("Host *\nPort many\n")
    check = checks()["SSH configuration"]
    assert (check.state, check.exit_code) == (State.ERROR, 12)


def test_a_machine_without_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ssh.client().state is State.ERROR
    assert "openssh-client" in ssh.client().remedy


def test_keys_are_those_of_the_first_host(home: Path) -> None:
    for name in ("first", "second"):
        paramiko.ECDSAKey.generate().write_private_key_file(str(home / name))
    config = [f"Host {host}\nIdentityFile {home / name}\n" for host, name in (("gpu01", "first"), ("gpu02", "second"))]
    (home / ".ssh/config").write_text("".join(config))
    for hosts in (("gpu01", "gpu02"), ("gpu01",)):
        assert checks(*hosts)["SSH keys"].seen == str(home / "first")
