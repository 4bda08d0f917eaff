"""A stand-in for the SSH servers of the example hosts: one server on loopback, where the user name selects the host.

For any command of a client, the server runs the Python program from the client's standard input on the directory of
the host, like a forced command in ``authorized_keys``. Keys and known hosts are created for each run.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from gpustack.base.files import write_atomic

_SECONDS = 120.0


class ExampleSshServer:
    """Serve hosts until the context ends; :attr:`config` and :attr:`known_hosts` are for clients.

    :param roots: the directory of each host by its name.
    :param directory: for keys and configuration.
    :param before: called with the name of a host before each command on it, to bring its directory up to date.
    """

    def __init__(
        self, roots: Mapping[str, Path], directory: Path, before: Callable[[str], object] | None = None
    ) -> None:
        self._roots = roots
        self._before = before
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._host_key, self._user_key = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
        directory.mkdir(mode=0o700, exist_ok=True)
        identity = directory / "identity"
        self._user_key.write_private_key_file(str(identity))
        self.config, self.known_hosts = directory / "config", directory / "known_hosts"
        port = self._listener.getsockname()[1]
        entry = f"  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {identity}\n  IdentitiesOnly yes\n"
        write_atomic(self.config, "".join(f"Host {name}\n  User {name}\n{entry}" for name in roots), mode=0o600)
        key = f"{self._host_key.get_name()} {self._host_key.get_base64()}"
        write_atomic(self.known_hosts, f"[127.0.0.1]:{port} {key}\n", mode=0o600)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection, _address = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError), paramiko.Transport(connection) as transport:
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = _SECONDS
            transport.add_server_key(self._host_key)
            session = _Session(self._user_key, self._roots)
            transport.start_server(server=session)
            channel = transport.accept(_SECONDS)
            if channel is not None and session.commanded.wait(_SECONDS):
                name = transport.get_username() or ""
                if self._before is not None:
                    self._before(name)
                _run(channel, self._roots[name])


class _Session(paramiko.ServerInterface):
    def __init__(self, key: paramiko.PKey, roots: Mapping[str, Path]) -> None:
        self._key = key
        self._roots = roots
        self.commanded = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = username in self._roots and key == self._key
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.commanded.set()
        return True


def _run(channel: paramiko.Channel, root: Path) -> None:
    program = channel.makefile("rb").read()
    python = [sys.executable, "-I", "-S", "-", "--root", str(root)]
    done = subprocess.run(python, input=program, capture_output=True, check=False)
    channel.sendall(done.stdout)
    channel.sendall_stderr(done.stderr)
    channel.send_exit_status(done.returncode)
    channel.close()
