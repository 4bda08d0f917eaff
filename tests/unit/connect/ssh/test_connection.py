"""Reading hosts over SSH, against a real OpenSSH server on loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from shlex import quote

import paramiko
import pytest
from paramiko.packet import Packetizer

from gpustack.base.errors import HostError
from gpustack.cli.app import main
from gpustack.connect.ssh import connection as ssh
from gpustack.connect.ssh.config import SshOptions
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.gather import gather
from support.ports import closed_port
from support.ssh_reading import MANY, SECONDS, read, refusal
from support.sshd import keygen, program, user


def test_the_same_facts_as_on_the_host_itself(config):
    local, remote = collect(), read()
    assert remote["hostname"] == "gpu01"  # as the user calls it
    for key in ("version", "pci", "cpu", "machine", "files", "iommu", "boot"):
        assert remote[key] == local[key], key


def test_a_name_in_full_is_the_name_of_the_host(config):
    assert read(f"{collect()['hostname']}.example.org")["hostname"] == f"{collect()['hostname']}.example.org"


def test_through_jump_hosts(config, sshd):
    config(
        *("Host gpu01", "ProxyJump jump1,jump2", "Host gpu02", f"ProxyJump {user()}@127.0.0.3:{sshd.port}"),
        *("Host gpu03", "ProxyJump jump3", "Host jump3", "ProxyJump jump2"),
        *("Host jump1", "HostName 127.0.0.1", "Host jump2", "HostName 127.0.0.2"),
        *("Host jump3", "HostName 127.0.0.4", "Host 127.0.0.3", "HostName 127.0.0.3"),
        known=sshd.known(f"[127.0.0.*]:{sshd.port}"),
    )
    for name in ("gpu01", "gpu02", "gpu03"):
        assert read(name), name


def test_many_hosts_share_one_connection_to_their_jump_host(config, sshd, tmp_path):
    key = sshd.allow(keygen(tmp_path / "key"))
    fingerprint = subprocess.run(
        [program("ssh-keygen"), "-lf", str(key)], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    known = sshd.known(f"[127.0.0.*]:{sshd.port}")
    config(
        "Host *",
        "IdentitiesOnly yes",
        f"IdentityFile {key}",
        "Host 127.*",
        "ProxyJump jump",
        "HostName %h",
        known=known,
    )
    gathered = gather(MANY, ssh=SshOptions(timeout=SECONDS))
    assert gathered.failures == ()
    accepted = [line for line in (sshd.directory / "log").read_text().splitlines() if fingerprint in line]
    assert len(accepted) == len(MANY) + 1


def test_a_jump_host_with_an_unknown_key(config, sshd):
    config("Host gpu01", "ProxyJump jump", "Host jump", "HostName 127.0.0.5")
    with pytest.raises(HostError, match="jump: its host key is not known"):
        read()


@pytest.mark.parametrize("jump", ["gpu01", "a,b,c,d,e,f,g,h,i"])
def test_jump_hosts_that_lead_nowhere(jump, config):
    config("Host gpu01", f"ProxyJump {jump}")
    with pytest.raises(HostError, match="lead nowhere"):
        read()


def test_jump_hosts_that_need_one_another(config):
    config("Host gpu01", "ProxyJump a", "Host a", "ProxyJump b", "Host b", "ProxyJump a")
    with pytest.raises(HostError, match="lead nowhere"):
        read()


def test_a_proxy_command(config, sshd, home):
    config("Host gpu01", f"ProxyCommand {program('ssh')} -F {home}/.ssh/jump -W %h:%p jump", "HostName 127.0.0.1")
    (home / ".ssh" / "jump").write_text(
        f"Host jump\nHostName 127.0.0.1\nPort {sshd.port}\nIdentityFile {sshd.client_key}\n"
        f"UserKnownHostsFile {home}/.ssh/known_hosts\n"
    )
    assert read()


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/nonexistent %h", "can't be reached: No such file or directory"),
        ("false", "no SSH connection"),
        ("echo 'unbalanced", "can't be reached: No closing quotation"),
        (f"{quote(sys.executable)} -c '{STUBBORN}'", "no SSH connection"),
    ],
)
def test_a_proxy_command_that_leads_nowhere(command, expected, config, monkeypatch):
    monkeypatch.setattr(ssh, "_PATIENCE", 0.2)
    config("Host gpu01", f"ProxyCommand {command}", "ConnectTimeout 1")
    assert expected in refusal()


def test_nothing_listens(config):
    with closed_port() as port:
        config("Host gpu01", f"Port {port}")
        message = refusal()
    assert "can't be reached: Connection refused (127.0.0.1 port" in message


def test_no_such_name(config):
    config("Host gpu01", "HostName gpu01.invalid")
    assert "can't be reached" in refusal()


def test_something_else_listens(config):
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = listener.accept()
        connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    config("Host gpu01", f"Port {listener.getsockname()[1]}")
    message = refusal()
    thread.join()
    listener.close()
    assert "no SSH connection" in message


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x14" + b"c" * 16 + b"\0\0\0\2\xff\xfe" + b"\0" * 60,  # key exchange: no names, but bytes
        b"\x01\0\0\0\1\0\0\0\2\xff\xff\0\0\0\0",  # disconnection for a reason that is no text
    ],
)
def test_messages_that_are_no_ssh_fail_their_host_only(message, config):
    """Sent before the host's key is checked, so anybody on the network can."""
    padding = 16 - (len(message) + 5) % 8
    packet = struct.pack(">IB", len(message) + padding + 1, padding) + message + b"\0" * padding

    def answer():
        connection, _ = server.accept()
        with connection, contextlib.suppress(ConnectionError):  # closed before everything sent was read
            connection.sendall(b"SSH-2.0-x\r\n" + packet)
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        config("Host evil", f"Port {server.getsockname()[1]}")
        gathered = gather(["evil", "gpu01"], ssh=SshOptions(user=user(), timeout=SECONDS))
        thread.join()
    assert [host.hostname for host in gathered.hosts] == ["gpu01"]
    assert "no SSH connection" in str(gathered.failures[0].error)


def test_the_users_time_limit_is_also_that_of_the_key_exchange(config, monkeypatch):
    limits = []
    monkeypatch.setattr(Packetizer, "start_handshake", lambda _, seconds: limits.append(seconds))
    assert read()
    assert limits == [SECONDS]


def test_a_host_that_never_answers(config):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config("Host gpu01", f"Port {listener.getsockname()[1]}", "ConnectTimeout 1")
        assert "no SSH connection" in refusal()


def test_many_hosts_and_a_dead_one(config, sshd, capsys, tmp_path):
    saved, known = tmp_path / "fleet.json", sshd.known(f"[127.0.0.*]:{sshd.port}")
    hosts = ["127.0.0.[1:4]", "dead", "127.0.0.[5:8]"]
    with closed_port() as port:
        config("Host dead", f"Port {port}", "Host 127.*", "HostName %h", known=known)
        code = main(["scan", *hosts, "--timeout", f"{SECONDS:g}", "--save", str(saved), "-f", "json"])
    out, err = capsys.readouterr()
    assert code == 12
    json.loads(out)
    assert [host["hostname"] for host in json.loads(saved.read_text())["hosts"]] == list(MANY)
    assert "dead: can't be reached: Connection refused" in err
    assert "1 of 9 hosts could not be read" in err
    assert "Traceback" not in err


def test_a_single_dead_host_is_its_own_error(config, capsys):
    with closed_port() as port:
        config("Host dead", f"Port {port}")
        assert main(["scan", "dead"]) == 12
    assert capsys.readouterr().err.startswith("gpustack: dead: can't be reached: Connection refused")


def test_each_host_is_reported_when_it_is_done(config, sshd):
    config("Host 127.*", "HostName %h", known=sshd.known(f"[127.0.0.*]:{sshd.port}"))
    reported = []
    gather(MANY[:3], ssh=SshOptions(timeout=SECONDS), jobs=2, reported=reported.append)
    assert sorted(reported) == list(MANY[:3])


def test_giving_up_before_the_transport_starts_is_not_lost(forced, monkeypatch):
    """paramiko ignores close() on a transport without its thread."""
    forced('command="cat >/dev/null; sleep 90"')
    connections = ssh.Connections(SshOptions(timeout=SECONDS))
    start = paramiko.Transport.start_client

    def late(transport, **options):
        connections.close()
        start(transport, **options)

    monkeypatch.setattr(paramiko.Transport, "start_client", late)
    with pytest.raises(HostError, match="given up"):
        connections.run("gpu01", b"")


def test_giving_up_closes_the_connections(forced):
    forced('command="cat >/dev/null; sleep 90"')
    connections = ssh.Connections(SshOptions(timeout=SECONDS))
    errors = []

    def wait():
        with pytest.raises(HostError) as caught:
            connections.run("gpu01", b"")
        errors.append(caught.value)

    thread = threading.Thread(target=wait)
    thread.start()
    while not connections._open:
        assert thread.is_alive()
    connections.close()
    thread.join(timeout=SECONDS / 2)
    assert len(errors) == 1
