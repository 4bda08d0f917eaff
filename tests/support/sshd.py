"""A real OpenSSH server on loopback, with its own configuration and keys."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from gpustack_demo.embedded.process import free_port

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
MOST = 120.0  # seconds, also on a machine with little processor time
NO_PENALTIES = "PerSourcePenalties no"
NEEDED = "these tests need a real SSH server: apt-get install openssh-server openssh-client"


def program(name: str) -> str:
    """The path of an OpenSSH program; if it is missing, tests fail instead of being skipped."""
    executable = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert executable, NEEDED
    return executable


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key pair."""
    subprocess.run(
        [program("ssh-keygen"), "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)], check=True
    )
    return path


@dataclass(kw_only=True)
class Sshd:
    """A running server.

    :ivar directory: its keys and configuration.
    :ivar addresses: its listen addresses; OpenSSH accepts at most 16.
    :ivar host_key: the private host key; its public half is beside it.
    :ivar client_key: a key that may log in.
    """

    directory: Path
    host_key_kind: str = "ed25519"
    addresses: tuple[str, ...] = ("127.0.0.1",)
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def host_key(self) -> Path:
        return self.directory / "host_key"

    @property
    def client_key(self) -> Path:
        return self.directory / "client_key"

    @property
    def public_host_key(self) -> str:
        """Type and key in the format of known_hosts."""
        return " ".join(self.host_key.with_suffix(".pub").read_text().split()[:2])

    def allow(self, key: Path, options: str = "", path: str = PATH) -> Path:
        """Permit a key to log in, with options in the format of ``authorized_keys``.

        The shell's start-up files of this account are not used, as on a fresh host.
        """
        options = ",".join(
            option
            for option in (f'environment="HOME={self.directory}/home"', f'environment="PATH={path}"', options)
            if option
        )
        with (self.directory / "authorized_keys").open("a") as stream:
            stream.write(f"{options} {key.with_suffix('.pub').read_text()}")
        return key

    def known(self, *names: str) -> str:
        """A known-hosts line for this server."""
        return f"{','.join(names or [f'[127.0.0.1]:{self.port}'])} {self.public_host_key}\n"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        keygen(self.host_key, self.host_key_kind)
        (self.directory / "home").mkdir()
        self.allow(keygen(self.client_key))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.directory / "sshd_config"
        lines = [
            *(f"ListenAddress {address}" for address in self.addresses),
            f"Port {self.port}",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.directory}/authorized_keys",
            f"PidFile {self.directory}/sshd.pid",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PermitUserEnvironment yes",
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",
            "MaxStartups 500",
            "MaxSessions 100",
        ]
        config.write_text("\n".join(lines) + "\n")
        # OpenSSH 9.8 and later refuses an address for a while after some failed logins; earlier ones lack the option.
        check = [program("sshd"), "-t", "-f", str(config), "-o", NO_PENALTIES]
        if subprocess.run(check, capture_output=True, check=False).returncode == 0:
            config.write_text("\n".join([*lines, NO_PENALTIES]) + "\n")
        self.serve()

    def serve(self) -> None:
        """Restart the server with the same configuration.

        Readiness is taken from its log: another process with the port would answer a connection too.
        """
        config, log = self.directory / "sshd_config", self.directory / "log"
        with log.open("wb") as stream:
            self._process = subprocess.Popen([program("sshd"), "-D", "-e", "-f", str(config)], stderr=stream)
        deadline = time.monotonic() + MOST
        while log.read_text().count("Server listening on ") < len(self.addresses):
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"sshd does not listen: {log.read_text()}"
            time.sleep(0.05)

    def freeze(self) -> list[int]:
        """Stop the server, let its connections stand still, and return their processes.

        A forked process still holds the listening socket until it gets processor time. It must not be stopped before:
        the port would stay in use.
        """
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # no new processes
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        listening = self._listening()
        deadline = time.monotonic() + MOST
        while any(listening & _sockets(int(process)) for process in children):
            assert time.monotonic() < deadline, "a connection's process holds the listening socket"
            time.sleep(0.05)
        for process in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGSTOP)
        os.kill(self._process.pid, signal.SIGCONT)
        self.stop()
        return [int(process) for process in children]

    def _listening(self) -> set[str]:
        """The listening sockets, as ``/proc/PID/fd`` names them. Source: proc_net_tcp(5), state 0A."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{self.port:04X}")}

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=MOST)


def _sockets(process: int) -> set[str]:
    """The open sockets of a process; none if it has ended, or may not be read: then it serves a connection already."""
    found = set()
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(descriptor.readlink()))
    return found


def user() -> str:
    """The user that can log in."""
    return getpass.getuser()
