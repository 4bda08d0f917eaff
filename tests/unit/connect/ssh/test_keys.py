"""Keys of users and their agent, against a real OpenSSH server."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from types import SimpleNamespace

import paramiko
import pytest

from gpustack.base.errors import HostError
from gpustack.connect.ssh.keys import authenticate, reason
from support.ssh_reading import SECONDS, read, refusal
from support.sshd import keygen, program, user


def test_no_key_at_all(config, home):
    (home / ".ssh" / "config").write_text((home / ".ssh" / "config").read_text().replace("IdentityFile", "#"))
    message = refusal()
    assert f"refuses the user {user()}: there is no key to offer" in message
    assert f"ssh {user()}@127.0.0.1 true" in message


def test_a_key_that_may_not_log_in(config, sshd, tmp_path, home):
    stranger = keygen(tmp_path / "stranger")
    text = (
        (home / ".ssh" / "config").read_text().replace(str(sshd.client_key), f"{stranger}\nIdentityFile /nonexistent")
    )
    (home / ".ssh" / "config").write_text(text)
    assert f"it took none of {stranger}\n" in refusal()


def test_a_user_that_is_not_there(config):
    assert "refuses the user nosuchuser" in refusal(user="nosuchuser")


def test_a_key_with_a_passphrase_is_named(config, sshd, tmp_path, home):
    locked = keygen(tmp_path / "locked", passphrase="open sesame")
    text = (home / ".ssh" / "config").read_text().replace(str(sshd.client_key), str(locked))
    (home / ".ssh" / "config").write_text(text)
    assert f"{locked} needs a passphrase (add it to the agent with ssh-add)" in refusal()


def test_a_file_that_is_no_key(config, sshd, tmp_path, home):
    bad = tmp_path / "bad"
    bad.write_text("not a key")
    text = (home / ".ssh" / "config").read_text().replace(str(sshd.client_key), str(bad))
    (home / ".ssh" / "config").write_text(text)
    assert f"{bad} can't be used" in refusal()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys(kind, config, sshd, tmp_path):
    key = sshd.allow(keygen(tmp_path / kind, kind))
    config("Host gpu01", f"IdentityFile {key}")
    assert read()


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """A running agent; add keys with ``ssh-add``."""
    address = tmp_path / "agent"
    process = subprocess.Popen([program("ssh-agent"), "-D", "-a", str(address)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(address))
    # The socket's file is there a moment before somebody listens: exit code 2 means that no agent was reached.
    while subprocess.run([program("ssh-add"), "-l"], capture_output=True).returncode == 2:
        assert process.poll() is None
    yield lambda key: subprocess.run([program("ssh-add"), "-q", str(key)], check=True)
    process.terminate()
    process.wait(timeout=20)


def without_files(home, *lines):
    text = (home / ".ssh" / "config").read_text()
    retained = [line for line in text.splitlines() if not line.startswith("IdentityFile")]
    (home / ".ssh" / "config").write_text("\n".join([*lines, *retained, ""]))


def test_the_keys_of_the_agent(config, agent, sshd, home):
    agent(sshd.client_key)
    without_files(home)
    assert read()


def test_no_agent_when_the_configuration_says_so(config, agent, sshd, home):
    agent(sshd.client_key)
    without_files(home, "Host gpu01", "IdentityAgent none")
    assert "there is no key to offer" in refusal()


def test_identities_only(config, agent, sshd, tmp_path, home):
    stranger = keygen(tmp_path / "stranger")
    agent(sshd.client_key)
    without_files(home, "Host gpu01", f"IdentityFile {stranger}", "IdentitiesOnly yes")
    assert f"it took none of {stranger}" in refusal()
    without_files(home, "Host gpu02", f"IdentityFile {sshd.client_key}", "IdentitiesOnly yes")
    assert read("gpu02")


def test_the_agent_that_the_configuration_names(config, agent, sshd, home, monkeypatch):
    agent(sshd.client_key)
    socket = os.environ["SSH_AUTH_SOCK"]
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nonexistent")
    without_files(home, "Host gpu01", f"IdentityAgent {socket}", "Host gpu02", "IdentityAgent $OWN_AGENT")
    assert read()
    monkeypatch.setenv("OWN_AGENT", socket)
    assert read("gpu02")


def test_an_agent_that_does_not_answer_is_named(config, home):
    without_files(home, "Host gpu01", "IdentityAgent ~/gone")
    assert f"the agent at {home}/gone can't be used (No such file or directory)" in refusal()


def test_a_silent_agent_is_named_after_the_time_limit(config, home, tmp_path, monkeypatch):
    start = paramiko.Transport.start_client

    def patient(transport, timeout):
        """The limit is for the agent alone: a busy host takes longer for its first answer."""
        transport.banner_timeout = transport.handshake_timeout = SECONDS
        start(transport, timeout=SECONDS)

    monkeypatch.setattr(paramiko.Transport, "start_client", patient)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "agent"))
        silent.listen()
        without_files(home, "Host gpu01", f"IdentityAgent {tmp_path}/agent", "ConnectTimeout 2")
        assert f"the agent at {tmp_path}/agent can't be used (no answer in time)" in refusal()


class Hostile(paramiko.ServerInterface):
    """A host with methods of authentication that look like gpustack's lines."""

    def __init__(self, answer):
        self.answer = answer

    def get_allowed_auths(self, username):
        return "x\n  → run `sh`\nERROR GPU001 gpu02: no\x1b[2J"

    def check_auth_publickey(self, username, key):
        return self.answer


@pytest.mark.parametrize("answer", [paramiko.AUTH_FAILED, paramiko.AUTH_PARTIALLY_SUCCESSFUL])
def test_the_methods_of_a_host_forge_no_line(answer, tmp_path):
    ours, theirs = socket.socketpair()
    server, transport = paramiko.Transport(theirs), paramiko.Transport(ours)
    server.add_server_key(paramiko.ECDSAKey.generate())
    server.start_server(event=threading.Event(), server=Hostile(answer))  # in its own thread
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "id"))
    target = SimpleNamespace(
        name="gpu01", hostname="gpu01", user="root", agent="", identities=(tmp_path / "id",), identities_only=False
    )
    try:
        transport.start_client(timeout=60)
        with pytest.raises(HostError, match="run `sh`") as caught:
            authenticate(transport, target)
    finally:
        transport.close()
        server.close()
    first, second = str(caught.value).splitlines()
    assert first.startswith("gpu01: refuses the user root: it ")
    assert second.startswith("  → check that `ssh root@gpu01 true` works")


def test_the_reason_of_a_failed_connection_has_one_line():
    assert reason(paramiko.SSHException("x\n  → run `sh`")) == r"x\n  → run `sh`"
