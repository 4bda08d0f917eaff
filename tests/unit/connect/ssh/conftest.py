"""A real OpenSSH server on loopback, and a home directory with a configuration for it."""

from __future__ import annotations

import pytest

from support.ssh_reading import MANY, SECONDS
from support.sshd import Sshd, keygen


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
                [
                    *(*lines, "Host *", "HostName 127.0.0.1", f"Port {sshd.port}", f"IdentityFile {sshd.client_key}"),
                    *(f"ConnectTimeout {SECONDS:g}", ""),
                ]
            )
        )

    write()
    return write


@pytest.fixture
def forced(config, sshd, tmp_path, home):
    """Log in with a key that the server treats specially: a forced command, or another search path."""

    def use(options):
        key = sshd.allow(keygen(tmp_path / "forced"), options)
        text = (home / ".ssh" / "config").read_text().replace(str(sshd.client_key), str(key))
        (home / ".ssh" / "config").write_text(text)

    return use
