"""The collector's run on a host, and what comes back instead of facts."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from shlex import quote
from types import SimpleNamespace

import paramiko
import pytest

from gpustack.base.errors import HostError
from gpustack.connect.ssh import program as ssh_program
from gpustack.connect.ssh.config import SshOptions
from gpustack.hosts.facts.gather import gather
from support.ssh_reading import SECONDS, read, refusal
from support.sshd import user


def search(path: str) -> str:
    """Run what is asked for with another search path, whatever the login shell makes of it."""
    return f'command="PATH={quote(path)} /bin/sh -c \\"$SSH_ORIGINAL_COMMAND\\""'


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_no_python(forced, tmp_path):
    (tmp_path / "bin").mkdir()
    forced(search(f"{tmp_path}/bin"))
    assert "has no Python 3.6 or later" in refusal()


def test_a_python_that_is_too_old(forced, tmp_path):
    script(tmp_path / "bin" / "python", "exit 1")
    forced(search(f"{tmp_path}/bin"))
    assert "has no Python 3.6 or later" in refusal()


def test_a_python_by_another_name(forced, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    forced(search(f"{tmp_path}/bin"))
    assert read()


def test_sudo_that_wants_a_password(forced, tmp_path):
    script(tmp_path / "bin" / "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    forced(search(f"{tmp_path}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"))
    message = refusal(sudo=True)
    assert "sudo refuses: sudo: a password is required" in message
    assert "NOPASSWD" in message


def test_sudo_runs_the_collector(forced, tmp_path):
    script(tmp_path / "bin" / "sudo", f'printf "%s " "$@" > {tmp_path}/asked; shift 2; exec "$@"')
    forced(search(f"{tmp_path}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"))
    assert read(sudo=True)
    assert (tmp_path / "asked").read_text() == "-n -- python3 -I -S - "


def test_no_sudo(forced, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    forced(search(f"{tmp_path}/bin"))
    assert "has no sudo" in refusal(sudo=True)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat >/dev/null; echo Welcome to gpu01", "what it printed is no description of a host: 'Welcome to gpu01'"),
        ("cat >/dev/null", "it printed nothing"),
        ("cat >/dev/null; echo []", "no description of a host"),
        ("echo broken pipes >&2; exit 3", "the program ended with status 3: broken pipes"),
        ("exit 0", "it printed nothing"),
        ("cat >/dev/null; yes | head -c 30000000 >&2; exit 7", "the program ended with status 7: y"),
        ("kill -9 $$", "the program ended with status"),
    ],
)
def test_what_is_no_description_of_a_host(command, expected, forced):
    forced(f'command="{command}"')
    assert expected in refusal()


def test_output_without_end(forced, monkeypatch):
    monkeypatch.setattr(ssh_program, "MAX_OUTPUT", 1 << 20)
    forced('command="yes"')
    with pytest.raises(HostError, match="prints more than 1 MiB"):
        read()


@pytest.fixture
def session(monkeypatch):
    """The time limit of a test is for the program alone, not for the start of its session."""
    start = paramiko.Transport.open_session
    monkeypatch.setattr(
        paramiko.Transport, "open_session", lambda transport, timeout: start(transport, timeout=SECONDS)
    )


@pytest.mark.parametrize("command", ["yes >&2", "exec >&-; yes >&2"])
def test_complaints_without_end(command, forced, session):
    forced(f'command="{command}"')
    assert "did not answer within 2 seconds" in refusal(timeout=2.0)


def test_a_host_that_takes_the_program_slowly(monkeypatch):
    """A stand-in for the channel of a host that takes a byte in ten seconds."""
    now, sent = [0.0], []

    def send(data):
        now[0] += 10
        sent.append(data)
        return 1

    monkeypatch.setattr(ssh_program, "time", SimpleNamespace(monotonic=lambda: now[0]))
    limits = []
    ssh_program._send(SimpleNamespace(settimeout=limits.append, send=send), b"x" * 100, 35.0)
    assert limits == [35, 25, 15, 5]
    assert [len(data) for data in sent] == [100, 99, 98, 97]


def test_a_host_that_takes_too_long(forced, session):
    forced('command="cat >/dev/null; sleep 60"')
    assert "did not answer within 1 seconds" in refusal(timeout=1.0)


def test_facts_that_do_not_fit(forced):
    forced("""command="cat >/dev/null; echo '{\\"version\\": 1, \\"hostname\\": \\"a b\\", \\"pci\\": []}'" """.strip())
    gathered = gather(["gpu01"], ssh=SshOptions(timeout=SECONDS))
    assert [f.host for f in gathered.failures] == ["gpu01"]
    assert "$.hostname: string should match pattern" in str(gathered.failures[0].error)


def test_nothing_that_a_user_typed_is_in_the_command(config, monkeypatch):
    sent = []
    execute = paramiko.Channel.exec_command
    monkeypatch.setattr(
        paramiko.Channel, "exec_command", lambda self, command: sent.append(command) or execute(self, command)
    )
    read("gpu01", sudo=False)
    read(f"{user()}@gpu02")
    assert len(set(sent)) == 1
    assert "gpu0" not in sent[0]
