"""SSH connections: connect, check the host key, run a Python program from standard input, return its JSON.

Nothing is installed or stored on the host, and no user input becomes part of a remote command. Each jump host is
connected once, for all hosts behind it.
"""

import functools
import logging
import shlex
import socket
import subprocess
import threading
from contextlib import AbstractContextManager
from typing import Self

import paramiko

from gpustack.base.errors import GpustackError, HostError
from gpustack.base.text import quoted
from gpustack.connect.ssh.config import SshConfig, SshOptions, SshTarget
from gpustack.connect.ssh.keys import authenticate, reason
from gpustack.connect.ssh.known_hosts import KnownHosts
from gpustack.connect.ssh.program import run_here, run_program

Stream = socket.socket | paramiko.Channel

_MAX_JUMPS = 8
_PATIENCE = 5.0

# paramiko logs each error from its own threads; the exception has the same text.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class Connections(AbstractContextManager["Connections"]):
    """SSH connections of one command. Configuration, known hosts and jump hosts are shared by all connections.

    Thread-safe.
    """

    def __init__(self, options: SshOptions) -> None:
        """:raises HostError: if the SSH configuration can't be used."""
        self._options = options
        self._config = SshConfig.load(options)
        self._known_hosts = functools.cache(KnownHosts.load)
        self._lock = threading.Lock()
        self._open: set[paramiko.Transport] = set()
        self._jumps: dict[tuple[SshTarget, ...], paramiko.Transport] = {}
        self._jump_locks: dict[tuple[SshTarget, ...], threading.Lock] = {}
        self._closed = False

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; threads that wait on one fail at once."""
        with self._lock:
            self._closed = True
            remaining, self._open = self._open, set()
        for transport in remaining:
            transport.close()

    def run(self, name: str, program: bytes) -> dict[str, object]:
        """Run a program with the host's Python (3.6 or later), and return the JSON object that it prints.

        :param name: ``[user@]host``, resolved with the SSH configuration.
        :param program: the program's source text.
        :raises HostError: if the host can't be reached, or the program fails.
        """
        options = self._options.of_host(name)
        if options.settings(name).local:
            return run_here(name, program, options)
        transport = self._connected(self._config.target(name), via=None)
        try:
            return run_program(transport, name, program, options)
        finally:
            self._release(transport)

    # --- connecting ------------------------------------------------------------------------------------------

    def _connected(self, target: SshTarget, via: paramiko.Transport | None) -> paramiko.Transport:
        """Connect, check the host key, and authenticate."""
        channel = self._route(target, via)
        transport = None
        try:
            transport = paramiko.Transport(channel)
            self._keep(transport)
            known = self._known_hosts(target.known_hosts)
            _prefer(transport, known.key_types(target))
            # paramiko gives up sooner than this: a key exchange after 15 seconds, an authentication after 30.
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = target.connect_timeout
            transport.start_client(timeout=target.connect_timeout)
            self._keep(transport)  # a transport that has not started can't be closed: paramiko ignores it
            known.check(target, transport.get_remote_server_key())
            authenticate(transport, target)
        except BaseException as error:
            if transport is not None:
                self._release(transport)
            else:
                channel.close()
            # paramiko raises arbitrary exceptions on malformed messages of a host.
            if isinstance(error, Exception) and not isinstance(error, GpustackError):
                remedy = f"check that an SSH server answers: ssh -v -- {quoted(target.hostname)}"
                raise HostError(f"no SSH connection: {reason(error)}", where=target.name, remedy=remedy) from error
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

    def _route(self, target: SshTarget, via: paramiko.Transport | None) -> Stream:
        """Open the stream of a transport: a channel of a jump host, a proxy command, or a TCP connection."""
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
                f"can't be reached: {reason(error)} ({target.hostname} port {target.port})",
                where=target.name,
                remedy="check its name, its power and the network between",
            ) from error

    def _hops(self, target: SshTarget) -> tuple[SshTarget, ...]:
        """All jump hosts to a host, in order; the first one's own jump hosts come before it."""
        hops = [self._config.target(name, jump=True) for name in target.jumps]
        while hops and hops[0].jumps and len(hops) <= _MAX_JUMPS:
            hops[:0] = [self._config.target(name, jump=True) for name in hops[0].jumps]
        if len(hops) > _MAX_JUMPS:
            what = f"its jump hosts lead nowhere: {' → '.join(hop.name for hop in hops[:_MAX_JUMPS])} → …"
            raise HostError(what, where=target.name, remedy="look at ProxyJump in the SSH configuration")
        return tuple(hops)

    def _jump(self, hops: tuple[SshTarget, ...]) -> paramiko.Transport:
        """The connection to the last of these jump hosts; the first caller opens it."""
        with self._lock:
            lock = self._jump_locks.setdefault(hops, threading.Lock())
        with lock:  # the recursion takes locks of shorter routes only, so there is no deadlock
            transport = self._jumps.get(hops)
            if transport is None or not transport.is_active():
                via = self._jump(hops[:-1]) if len(hops) > 1 else None
                transport = self._jumps[hops] = self._connected(hops[-1], via)
            return transport


class _Proxied(socket.socket):
    """A socket to a proxy command (``ProxyCommand``), which is terminated when the socket closes.

    paramiko's own ``ProxyCommand`` hangs if the command ends first.
    """

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, command: str) -> Self:
        """Run a command, without a shell, on the other end of a new socket pair.

        :raises OSError: if the program can't be started.
        :raises ValueError: if the quotes in ``command`` are not balanced.
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
        """Close the socket, and terminate the command."""
        super().close()
        self.process.terminate()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _prefer(transport: paramiko.Transport, types: set[str]) -> None:
    """Prefer host key types that are in the known-hosts files."""
    options = transport.get_security_options()

    def known(algorithm: str) -> bool:
        return ("ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm) in types

    options.key_types = tuple(sorted(options.key_types, key=lambda algorithm: not known(algorithm)))
