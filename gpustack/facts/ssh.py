"""Read hosts over SSH: connect, check the host's key, run the collector from standard input, take its JSON.

Nothing is installed or left on the host, and nothing that a user typed becomes part of a command there. Jump hosts
are connected to once, however many hosts are behind them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import paramiko

from gpustack.errors import HostError
from gpustack.facts import bundle
from gpustack.facts.known_hosts import KnownHosts
from gpustack.facts.ssh_config import SshConfig, SshOptions, Target

Stream = socket.socket | paramiko.Channel

MAX_OUTPUT = 64 << 20
_MAX_COMPLAINT = 64 << 10
_MAX_JUMPS = 8
_CHUNK = 1 << 16
_PATIENCE = 5.0
_NO_PYTHON = "gpustack: no python"

# -I and -S: neither the user's environment nor site-packages have a part in it, and it starts faster. A bare
# `python` may be Python 2.
_FIND_PYTHON = (
    "for p in python3 /usr/libexec/platform-python python; do"
    ' command -v "$p" >/dev/null 2>&1 || continue;'
    ' [ "$p" != python ] || "$p" -c "import sys; sys.exit(sys.version_info < (3, 6))" || continue;'
    ' exec {sudo}"$p" -I -S -;'
    ' done; echo "' + _NO_PYTHON + '" >&2; exit 127'
)

# paramiko reports from its own threads what the exception says as well.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class Connections:
    """SSH connections of one command: configuration, known hosts and jump hosts are read or opened once.

    Safe to use from several threads.
    """

    def __init__(self, options: SshOptions) -> None:
        """:raises HostError: when the SSH configuration can't be used."""
        self._options = options
        self._config = SshConfig.load(options)
        self._known_hosts = functools.cache(KnownHosts.load)
        self._lock = threading.Lock()
        self._open: set[paramiko.Transport] = set()
        self._jumps: dict[tuple[Target, ...], paramiko.Transport] = {}
        self._jump_locks: dict[tuple[Target, ...], threading.Lock] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; whoever waits on one gets an error at once."""
        with self._lock:
            self._closed = True
            remaining, self._open = self._open, set()
        for transport in remaining:
            transport.close()

    def collect(self, name: str) -> dict[str, Any]:
        """The facts of a host, as its collector printed them.

        :param name: ``[user@]host``, looked up in the SSH configuration.
        :raises HostError: when the host can't be reached or read.
        """
        return self.run(name, _program())

    def run(self, name: str, program: bytes) -> dict[str, Any]:
        """What a Python program, sent to a host's own Python (3.6 or later), printed there: a JSON object.

        :raises HostError: when the host can't be reached or read.
        """
        transport = self._connected(self._config.target(name), via=None)
        try:
            return _run_program(transport, name, program, self._options)
        finally:
            self._release(transport)

    # --- connecting ------------------------------------------------------------------------------------------

    def _connected(self, target: Target, via: paramiko.Transport | None) -> paramiko.Transport:
        """A connection with the host's key checked and the user authenticated."""
        channel = self._route(target, via)
        transport = None
        try:
            transport = paramiko.Transport(channel)
            self._keep(transport)
            known = self._known_hosts(target.known_hosts)
            _prefer(transport, known.key_types(target))
            transport.banner_timeout = transport.auth_timeout = target.connect_timeout
            transport.start_client(timeout=target.connect_timeout)
            known.check(target, transport.get_remote_server_key())
            _authenticate(transport, target)
        except BaseException as error:
            if transport is not None:
                self._release(transport)
            else:
                channel.close()
            if isinstance(error, paramiko.SSHException | OSError | EOFError):
                raise HostError(
                    f"no SSH connection: {_reason(error)}",
                    where=target.name,
                    remedy=f"check that an SSH server answers: ssh -v {target.hostname}",
                ) from error
            raise
        return transport

    def _keep(self, transport: paramiko.Transport) -> None:
        with self._lock:
            if self._closed:
                transport.close()
                raise HostError("the connection was given up")
            self._open.add(transport)

    def _release(self, transport: paramiko.Transport) -> None:
        with self._lock:
            self._open.discard(transport)
        transport.close()

    def _route(self, target: Target, via: paramiko.Transport | None) -> Stream:
        """What a transport can talk through: a TCP connection, a channel of a jump host, a proxy's pipes."""
        try:
            if via is None and target.jumps:
                via = self._jump(self._hops(target))
            if via is not None:
                return via.open_channel(
                    "direct-tcpip", (target.hostname, target.port), ("127.0.0.1", 0), timeout=target.connect_timeout
                )
            if target.proxy_command:
                return _Proxied.start(target.proxy_command)
            return socket.create_connection((target.hostname, target.port), timeout=target.connect_timeout)
        except (OSError, ValueError, paramiko.SSHException) as error:
            raise HostError(
                f"can't be reached: {_reason(error)} ({target.hostname} port {target.port})",
                where=target.name,
                remedy="check its name, its power and the network between",
            ) from error

    def _hops(self, target: Target) -> tuple[Target, ...]:
        """The jump hosts on the way to a host; before the first one come those that it needs itself."""
        hops = [self._config.target(name, jump=True) for name in target.jumps]
        while hops and hops[0].jumps and len(hops) <= _MAX_JUMPS:
            hops[:0] = [self._config.target(name, jump=True) for name in hops[0].jumps]
        if len(hops) > _MAX_JUMPS:
            raise HostError(
                f"its jump hosts lead nowhere: {' → '.join(hop.name for hop in hops[:_MAX_JUMPS])} → …",
                where=target.name,
                remedy="look at ProxyJump in the SSH configuration",
            )
        return tuple(hops)

    def _jump(self, hops: tuple[Target, ...]) -> paramiko.Transport:
        """The connection to the last of these jump hosts, opened by whoever needs it first."""
        with self._lock:
            lock = self._jump_locks.setdefault(hops, threading.Lock())
        with lock:  # then perhaps that of a shorter way, never of a longer one
            transport = self._jumps.get(hops)
            if transport is None or not transport.is_active():
                via = self._jump(hops[:-1]) if len(hops) > 1 else None
                transport = self._jumps[hops] = self._connected(hops[-1], via)
            return transport


class _Proxied(socket.socket):
    """A connection whose other end is a command (``ProxyCommand``), which ends with it.

    paramiko's own waits for ever when the command ends first.
    """

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, command: str) -> Self:
        """Run a command, without a shell, on the other end of a new connection.

        :raises OSError: when there is no such program.
        """
        ours, theirs = socket.socketpair()
        connection = cls(fileno=ours.detach())
        try:
            connection.process = subprocess.Popen(
                shlex.split(command), stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
            )
        except BaseException:
            socket.socket.close(connection)
            raise
        finally:
            theirs.close()
        return connection

    def close(self) -> None:
        """Close the connection, and end the command."""
        super().close()
        self.process.terminate()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _prefer(transport: paramiko.Transport, types: set[str]) -> None:
    """Ask the host for a key of a type that it is known by, before all others."""
    options = transport.get_security_options()

    def known(algorithm: str) -> bool:
        return ("ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm) in types

    options.key_types = tuple(sorted(options.key_types, key=lambda algorithm: not known(algorithm)))


# --- authentication ------------------------------------------------------------------------------------------


def _authenticate(transport: paramiko.Transport, target: Target) -> None:
    """Offer the agent's keys and the identity files, one after the other.

    :raises HostError: when the host takes none of them. There are no passwords here.
    """
    tried: list[str] = []
    skipped: list[str] = []
    with contextlib.closing(paramiko.Agent()) as agent:
        for label, key in _keys(target, agent, skipped):
            tried.append(label)
            try:
                missing = transport.auth_publickey(target.user, key)
            except paramiko.BadAuthenticationType as error:
                raise _refused(target, f"it takes no keys, only {', '.join(error.allowed_types)}") from error
            except paramiko.AuthenticationException:
                if not transport.is_active():
                    break
                continue
            if not missing:
                return
            raise _refused(target, f"it wants a second factor ({', '.join(missing)}), which gpustack can't give")
    said = [f"it took none of {', '.join(tried)}" if tried else "there is no key to offer", *skipped]
    raise _refused(target, "; ".join(said))


def _refused(target: Target, why: str) -> HostError:
    return HostError(
        f"refuses the user {target.user}: {why}",
        where=target.name,
        remedy=f"check that `ssh {target.user}@{target.hostname} true` works without a password"
        " (ssh-add, --identity, --user)",
    )


def _keys(target: Target, agent: paramiko.Agent, skipped: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """The keys to offer: those of the agent first (with IdentitiesOnly the configured ones), then the files."""
    seen: set[bytes] = set()
    wanted = {blob for path in target.identities if (blob := _public_blob(path))}
    for agent_key in agent.get_keys() if target.agent else ():
        blob = agent_key.asbytes()
        if not target.identities_only or blob in wanted:
            seen.add(blob)
            yield f"the agent's key {agent_key.comment or agent_key.get_name()}", agent_key
    for path in target.identities:
        if not path.is_file():
            continue
        try:
            key = paramiko.PKey.from_path(path)
        except (paramiko.PasswordRequiredException, TypeError):
            if _public_blob(path) not in seen:
                skipped.append(f"{path} needs a passphrase (add it to the agent with ssh-add)")
            continue
        except (paramiko.SSHException, OSError, ValueError, AttributeError) as error:
            skipped.append(f"{path} can't be used ({_reason(error)})")
            continue
        if key.asbytes() not in seen:
            yield str(path), key


def _public_blob(path: Path) -> bytes | None:
    """The public key beside an identity file, to know the agent's key for it."""
    with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
        return bytes(paramiko.pkey.PublicBlob.from_file(f"{path}.pub").key_blob)
    return None


# --- running a program --------------------------------------------------------------------------------------


@functools.cache
def _program() -> bytes:
    return bundle.program().encode()


def _run_program(transport: paramiko.Transport, name: str, program: bytes, options: SshOptions) -> dict[str, Any]:
    """Run a program and take what it prints."""
    command = f"exec /bin/sh -c '{_FIND_PYTHON.format(sudo='sudo -n -- ' if options.sudo else '')}'"
    try:
        channel = transport.open_session(timeout=options.timeout)
        channel.exec_command(command)
        output, complaint, status = _talk(channel, name, program, options.timeout)
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise HostError(
            f"the connection broke while it was read: {_reason(error)}", where=name, remedy="scan it again"
        ) from error
    if status != 0:
        raise _failed(name, status, complaint, options)
    return _document(output, name)


def _talk(channel: paramiko.Channel, name: str, program: bytes, timeout: float) -> tuple[bytes, str, int]:
    """Send the program, and take output and complaints until the end, within bounds of time and size."""
    deadline = time.monotonic() + timeout
    channel.settimeout(timeout)
    with contextlib.suppress(OSError):  # who refuses the program says why on stderr
        channel.sendall(program)
        channel.shutdown_write()
    output, complaint = bytearray(), bytearray()
    channel.settimeout(0.2)
    while True:
        while channel.recv_stderr_ready():
            complaint += channel.recv_stderr(_CHUNK)
            del complaint[_MAX_COMPLAINT:]
        try:
            piece = channel.recv(_CHUNK)
        except TimeoutError:
            piece = None
        if piece == b"":
            break
        output += piece or b""
        if len(output) > MAX_OUTPUT:
            raise HostError(f"prints more than {MAX_OUTPUT >> 20} MiB, which is no description of a host", where=name)
        if time.monotonic() > deadline:
            raise HostError(
                f"did not answer within {timeout:g} seconds",
                where=name,
                remedy="raise --timeout, or look what keeps the host busy",
            )
    channel.settimeout(max(0.1, deadline - time.monotonic()))
    with contextlib.suppress(TimeoutError):
        while rest := channel.recv_stderr(_CHUNK):
            complaint += rest[: _MAX_COMPLAINT - len(complaint)]
    if not channel.status_event.wait(max(0.1, deadline - time.monotonic())):
        raise HostError("did not say how the program ended", where=name, remedy="scan it again")
    return bytes(output), complaint.decode("utf-8", "replace").strip(), channel.recv_exit_status()


def _failed(name: str, status: int, complaint: str, options: SshOptions) -> HostError:
    if _NO_PYTHON in complaint:
        return HostError(
            "has no Python 3.6 or later",
            where=name,
            remedy="install python3 there, as Ansible needs it too (apt-get install python3)",
        )
    if options.sudo and "sudo: not found" in complaint:
        return HostError("has no sudo", where=name, remedy="scan as --user root, without --sudo")
    if options.sudo and "sudo:" in complaint:
        return HostError(
            f"sudo refuses: {_last_line(complaint)}",
            where=name,
            remedy="allow this user to run python3 by sudo without a password (NOPASSWD), or scan as --user root",
        )
    why = _last_line(complaint) or "it said nothing"
    return HostError(
        f"the program ended with status {status}: {why}",
        where=name,
        remedy="look at that host's Python: ssh HOST python3 -I -S -c 'import json, socket'",
    )


def _document(output: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    start = output[:60].decode("utf-8", "replace").strip()
    raise HostError(
        f"what it printed is no description of a host: {start!r}" if start else "it printed nothing",
        where=name,
        remedy="its shell's start-up files (such as .bashrc) must print nothing without a terminal",
    )


def _last_line(text: str) -> str:
    return text.splitlines()[-1][:300] if text else ""


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, EOFError):
        return "it closed the connection"
    return str(error) or type(error).__name__
