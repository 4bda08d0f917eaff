"""Child processes that serve: start them, wait for them, stop them reliably, and report their log if they fail."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpustack.base.errors import GpustackError

_TAIL_LINES = 30
_STOP_SECONDS = 5.0
_PAUSE = 0.05
"""Seconds between two looks at a service that starts."""
_LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 15_000
_selected: set[int] = set()


class ServiceError(GpustackError):
    """An embedded service, or a program that prepares it, failed; the message has the end of its log."""

    has_lines = True


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is currently free.

    It lies below the ports that the kernel selects for connections and for port 0. One of these could be in use again
    before its server starts, or between two starts.
    """
    end = max(int(_LOCAL_PORTS.read_text(encoding="utf-8").split()[0]), 2 * _FIRST_PORT)
    while True:
        port = secrets.choice(range(_FIRST_PORT, end))
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            if port not in _selected:
                _selected.add(port)
                return port


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log; empty if the log does not exist."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


class ServiceProcess:
    """A child process in its own process group, so that :meth:`stop` also ends its descendants.

    Its output goes to ``log``. Where the kernel supports it, the child ends when this process ends.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], cwd: Path
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def check(self) -> None:
        """Check that the process runs.

        :raises ServiceError: with the end of its log, when the process has ended.
        """
        code = self._process.poll()
        if code is not None:
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise ServiceError(
                f"{self.name} ended with {ended}; its log ends with:\n{tail(self.log)}", where=str(self.log)
            )

    def wait_for_port(self, port: int, *, seconds: float) -> None:
        """Wait until ``port`` of 127.0.0.1 accepts connections.

        :raises ServiceError: when the process ends first, or the time is over.
        """

        def accepts() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        self._wait(accepts, f"listen on port {port}", seconds)

    def wait_for_file(self, path: Path, *, seconds: float) -> None:
        """Wait until ``path`` exists (it must be created atomically).

        :raises ServiceError: when the process ends first, or the time is over.
        """
        self._wait(path.exists, "get ready", seconds)

    def wait_for_text(self, text: str, *, seconds: float) -> None:
        """Wait until the process has printed ``text``.

        :raises ServiceError: when the process ends first, or the time is over.
        """
        self._wait(lambda: text in self.log.read_text(encoding="utf-8", errors="replace"), "get ready", seconds)

    def _wait(self, condition: Callable[[], bool], action: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            self.check()
            if condition():
                return
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{self.name} did not {action} in time; its log ends with:\n{tail(self.log)}", where=str(self.log)
                )
            time.sleep(_PAUSE)

    def stop(self, *, seconds: float = _STOP_SECONDS) -> None:
        """End the process group: with SIGTERM first, after ``seconds`` with SIGKILL."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
