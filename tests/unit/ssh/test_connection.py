"""Reading hosts over SSH, against a real OpenSSH server on loopback."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.cli.app import main
from gpustack.errors import HostError
from gpustack.facts.collector import collect
from gpustack.facts.gather import gather
from gpustack.ssh import connection as ssh
from gpustack.ssh import program as ssh_program
from gpustack.ssh.config import SshOptions, SshTarget
from gpustack.ssh.known_hosts import KnownHosts
from support.sshd import Sshd, free_port, keygen, program, user

MANY = tuple(f"127.0.0.{n}" for n in range(1, 9))


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    """A server that listens as many hosts."""
    server = Sshd(directory=tmp_path_factory.mktemp("sshd") / "server", addresses=MANY)
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home directory without keys, known hosts, configuration or agent."""
    directory = tmp_path / "home"
    (directory / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return directory


@pytest.fixture
def config(home, sshd):
    """Write ``~/.ssh/config``; by default ``gpu01`` is the server, with its key known."""

    def write(*lines, known=None):
        (home / ".ssh" / "known_hosts").write_text(sshd.known() if known is None else known)
        (home / ".ssh" / "config").write_text(
            "\n".join(
                [*lines, "Host *", "HostName 127.0.0.1", f"Port {sshd.port}", f"IdentityFile {sshd.client_key}", ""]
            )
        )

    write()
    return write


def read(name="gpu01", **options):
    """The facts of one host, or its error."""
    gathered = gather([name], ssh=SshOptions(**options))
    if gathered.failures:
        raise gathered.failures[0].error
    return gathered.raw[0]


def refusal(name="gpu01", **options):
    """Why a host gives no facts; the error is about that host and has a remedy."""
    with pytest.raises(HostError) as caught:
        read(name, **options)
    assert caught.value.where == name
    assert caught.value.remedy
    return str(caught.value)


# --- what comes back -----------------------------------------------------------------------------------------


def test_the_same_facts_as_on_the_host_itself(config):
    here, there = collect(), read()
    assert there["hostname"] == "gpu01"  # as the user calls it
    for key in ("version", "pci", "cpu", "machine", "files", "iommu", "boot"):
        assert there[key] == here[key], key


def test_a_name_in_full_is_the_name_of_the_host(config):
    assert read(f"{collect()['hostname']}.example.org")["hostname"] == f"{collect()['hostname']}.example.org"


def test_options_win_over_the_configuration(config, sshd, home):
    config("Host gpu01", "Port 1", "User nobody")
    (home / ".ssh" / "known_hosts").unlink()
    known = home / "known"
    known.write_text(sshd.known())
    assert read(port=sshd.port, user=user(), identity=sshd.client_key, known_hosts=known)


def test_another_configuration_file(home, sshd):
    path, known = home / "other", home / "known"
    known.write_text(sshd.known())
    path.write_text(
        f"Host alias\n HostName 127.0.0.1\n Port {sshd.port}\n IdentityFile {sshd.client_key}\n"
        f' UserKnownHostsFile /nonexistent "{known}"\n'
    )
    assert read("alias", config=path)


def test_included_files_and_the_block_around_them(config, home, sshd):
    (home / ".shh").mkdir()
    included = home / ".ssh" / "conf.d"
    included.mkdir()
    (included / "a").write_text("Host gpu01\n  User nobody\n  Port 1\nHost gpu02\n  Port 2\n")
    config("Include conf.d/*", f"User {user()}")
    connections = ssh.Connections(SshOptions())
    targets = {name: connections._config.target(name) for name in ("gpu01", "gpu02", "gpu03")}
    assert {name: (t.user, t.port) for name, t in targets.items()} == {
        "gpu01": ("nobody", 1),
        "gpu02": (user(), 2),
        "gpu03": (user(), sshd.port),
    }


def test_files_that_include_one_another(home):
    (home / ".ssh" / "config").write_text("Include config\n")
    with pytest.raises(HostError, match="include one another"):
        gather(["gpu01"])


# --- host keys -----------------------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_and_the_way_out_told(config, sshd):
    config(known="")
    said = refusal()
    fingerprint = subprocess.run(
        [program("ssh-keygen"), "-lf", str(sshd.host_key)], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert f"gpu01: its host key is not known: it shows ED25519 {fingerprint}" in said
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> " in said


@pytest.mark.parametrize("weaken", ["StrictHostKeyChecking no", "StrictHostKeyChecking accept-new"])
def test_no_configuration_weakens_the_check(weaken, config):
    config("Host gpu01", weaken, "UserKnownHostsFile /dev/null", "CheckHostIP no")
    assert "its host key is not known" in refusal()


def test_a_changed_key(config, sshd, tmp_path):
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text()
    config(known=f"[127.0.0.1]:{sshd.port} {other}")
    said = refusal()
    assert "its host key has changed" in said
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}'" in said


def test_a_key_of_another_kind_only_is_a_change_too(config, sshd, tmp_path):
    other = keygen(tmp_path / "other", "ecdsa").with_suffix(".pub").read_text()
    config(known=f"[127.0.0.1]:{sshd.port} {other}")
    assert "its host key has changed" in refusal()


def test_one_of_several_known_keys_is_enough(config, sshd, tmp_path):
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text()
    config(known=f"[127.0.0.1]:{sshd.port} {other}{sshd.known()}")
    assert read()


def test_a_revoked_key(config, sshd):
    config(known=f"@revoked * {sshd.public_host_key}\n{sshd.known()}")
    assert "marks as revoked" in refusal()


@pytest.mark.parametrize("name", ["127.0.0.1", "*", "10.0.0.1,127.0.0.?", "[127.0.0.1]:*"])
def test_names_in_known_hosts(name, config, sshd):
    config(known=f"# mine\n\nnonsense\n{name} {sshd.public_host_key} comment\n")
    assert read()


@pytest.mark.parametrize("name", ["127.0.0.2", "[127.0.0.1]:1", "!127.0.0.1,!*:*,*", "127.0.0"])
def test_names_that_are_others(name, config, sshd):
    config(known=f"{name} {sshd.public_host_key}\n")
    assert "its host key is not known" in refusal()


def test_an_authority_for_certificates_is_named_and_does_not_count(config, sshd, home):
    config(known=f"\n@cert-authority * {sshd.public_host_key}\n")
    said = refusal()
    assert "its host key is not known" in said
    assert f"so {home}/.ssh/known_hosts:2 (@cert-authority) does not help" in said
    config(known=f"@cert-authority 127.0.0.2 {sshd.public_host_key}\n")
    assert "@cert-authority" not in refusal()


def test_hashed_names(config, sshd, home):
    known = home / ".ssh" / "known_hosts"
    subprocess.run([program("ssh-keygen"), "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    assert read()
    assert "its host key is not known" in refusal("gpu01", port=sshd.port, known_hosts=Path("/dev/null"))


def test_a_host_key_alias(config, sshd):
    config("Host gpu01", "HostKeyAlias rack7", known=sshd.known("rack7"))
    assert read()
    assert "its host key is not known" in refusal("gpu02")


def test_the_kind_of_key_that_is_known_is_asked_for(tmp_path, home):
    server = Sshd(directory=tmp_path / "rsa", host_key_kind="rsa")
    server.start()
    try:
        (home / ".ssh" / "known_hosts").write_text(server.known())
        assert read("127.0.0.1", port=server.port, identity=server.client_key)
    finally:
        server.stop()


@given(st.lists(st.text(alphabet="abc@|1!*?[]:, =AAAAB3NzaC1yc2E-sh\t\\", max_size=60), max_size=5))
def test_any_known_hosts_file_can_be_read(lines):
    path = Path("/tmp") / f"gpustack-known-hosts-{os.getpid()}"
    path.write_text("\n".join(lines))
    try:
        target = SshTarget(
            name="a", hostname="a", port=22, user="a", key_names=("a",), known_hosts=(path,), identities=()
        )
        assert KnownHosts.load((path,)).key_types(target) == set()
    finally:
        path.unlink()


# --- who may log in ------------------------------------------------------------------------------------------


def test_no_key_at_all(config, home):
    (home / ".ssh" / "config").write_text((home / ".ssh" / "config").read_text().replace("IdentityFile", "#"))
    said = refusal()
    assert f"refuses the user {user()}: there is no key to offer" in said
    assert f"ssh {user()}@127.0.0.1 true" in said


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
    kept = [line for line in text.splitlines() if not line.startswith("IdentityFile")]
    (home / ".ssh" / "config").write_text("\n".join([*lines, *kept, ""]))


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


# --- ways there ----------------------------------------------------------------------------------------------


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


def test_many_hosts_share_one_connection_to_their_jump_host(config, sshd):
    config("Host 127.*", "ProxyJump jump", "HostName %h", known=sshd.known(f"[127.0.0.*]:{sshd.port}"))
    log = sshd.directory / "log"
    before = log.read_text().count("Accepted publickey")
    gathered = gather(MANY, ssh=SshOptions())
    assert gathered.failures == ()
    assert log.read_text().count("Accepted publickey") - before == len(MANY) + 1


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
        (f"{sys.executable} -c '{STUBBORN}'", "no SSH connection"),
    ],
)
def test_a_proxy_command_that_leads_nowhere(command, expected, config, monkeypatch):
    monkeypatch.setattr(ssh, "_PATIENCE", 0.2)
    config("Host gpu01", f"ProxyCommand {command}", "ConnectTimeout 1")
    assert expected in refusal()


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a b", "$(reboot)@gpu01", "-l@gpu01", "gpu01;reboot", "gpu01\n", "@gpu01 "]
)
def test_names_that_are_none(name, config, home):
    config("Host *", f"ProxyCommand touch {home}/run %h %r %n")
    assert "this is no name of a host" in refusal(name)
    assert not (home / "run").exists()


def test_nothing_listens(config):
    config("Host gpu01", f"Port {free_port()}")
    said = refusal()
    assert "can't be reached: Connection refused (127.0.0.1 port" in said


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
    said = refusal()
    thread.join()
    listener.close()
    assert "no SSH connection" in said


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
        with connection:
            connection.sendall(b"SSH-2.0-x\r\n" + packet)
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        config("Host evil", f"Port {server.getsockname()[1]}")
        found = gather(["evil", "gpu01"], ssh=SshOptions(user=user(), timeout=20))
        thread.join()
    assert [host.hostname for host in found.hosts] == ["gpu01"]
    assert "no SSH connection" in str(found.failures[0].error)


def test_a_host_that_never_answers(config):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config("Host gpu01", f"Port {listener.getsockname()[1]}", "ConnectTimeout 1")
        assert "no SSH connection" in refusal()


def test_a_configuration_that_makes_no_sense(config):
    config("Host gpu01", "Port ssh")
    with pytest.raises(HostError, match="its SSH configuration makes no sense"):
        read()


# --- what runs there -----------------------------------------------------------------------------------------


@pytest.fixture
def forced(config, sshd, tmp_path, home):
    """Log in with a key that the server treats specially: a forced command, or another search path."""

    def use(options):
        key = sshd.allow(keygen(tmp_path / "forced"), options)
        text = (home / ".ssh" / "config").read_text().replace(str(sshd.client_key), str(key))
        (home / ".ssh" / "config").write_text(text)

    return use


def search(path: str) -> str:
    """Run what is asked for with another search path, whatever the login shell makes of it."""
    return f'command="PATH={path} /bin/sh -c \\"$SSH_ORIGINAL_COMMAND\\""'


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
    said = refusal(sudo=True)
    assert "sudo refuses: sudo: a password is required" in said
    assert "NOPASSWD" in said


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


@pytest.mark.parametrize("command", ["yes >&2", "exec >&-; yes >&2"])
def test_complaints_without_end(command, forced):
    forced(f'command="{command}"')
    started = time.monotonic()
    assert refusal(timeout=2.0)
    assert time.monotonic() - started < 20


class Slow:
    """Stands in for a channel of a host that takes the program a byte at a time."""

    def settimeout(self, seconds):
        assert seconds > 0

    def send(self, data):
        time.sleep(0.01)
        return 1


def test_a_host_that_takes_the_program_slowly():
    started = time.monotonic()
    ssh_program._send(Slow(), b"x" * 100_000, started + 0.5)
    assert time.monotonic() - started < 10


def test_a_host_that_takes_too_long(forced):
    forced('command="cat >/dev/null; sleep 60"')
    assert "did not answer within 1 seconds" in refusal(timeout=1.0)


def test_facts_that_do_not_fit(forced):
    forced("""command="cat >/dev/null; echo '{\\"version\\": 1, \\"hostname\\": \\"a b\\", \\"pci\\": []}'" """.strip())
    gathered = gather(["gpu01"], ssh=SshOptions())
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


# --- many hosts, through the command line --------------------------------------------------------------------


def test_many_hosts_and_a_dead_one(config, sshd, capsys, tmp_path):
    config(
        "Host dead", f"Port {free_port()}", "Host 127.*", "HostName %h", known=sshd.known(f"[127.0.0.*]:{sshd.port}")
    )
    saved = tmp_path / "fleet.json"
    code = main(["scan", "127.0.0.[1:4]", "dead", "127.0.0.[5:8]", "--save", str(saved), "-f", "json"])
    out, err = capsys.readouterr()
    assert code == 12
    json.loads(out)
    assert [host["hostname"] for host in json.loads(saved.read_text())["hosts"]] == list(MANY)
    assert "dead: can't be reached: Connection refused" in err
    assert "1 of 9 hosts could not be read" in err
    assert "Traceback" not in err


def test_a_single_dead_host_is_its_own_error(config, capsys):
    config("Host dead", f"Port {free_port()}")
    assert main(["scan", "dead"]) == 12
    assert capsys.readouterr().err.startswith("gpustack: dead: can't be reached: Connection refused")


def test_each_host_is_reported_when_it_is_done(config, sshd):
    config("Host 127.*", "HostName %h", known=sshd.known(f"[127.0.0.*]:{sshd.port}"))
    done = []
    gather(MANY[:3], ssh=SshOptions(), jobs=2, reported=done.append)
    assert sorted(done) == list(MANY[:3])


def test_giving_up_closes_the_connections(forced):
    forced('command="cat >/dev/null; sleep 60"')
    connections = ssh.Connections(SshOptions())
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
    thread.join(timeout=120)
    assert len(errors) == 1
