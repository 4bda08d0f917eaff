"""The example clouds that run on this machine: each has a record with its process, so that it can be stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from gpustack.base.errors import GpustackError, UsageError
from gpustack.base.files import state_dir, write_atomic

_PATIENCE = 60.0
_ACCESS = "demo.json"


@dataclass(frozen=True, kw_only=True)
class RunningCloud:
    """A cloud of ``gpustack example cloud``.

    :ivar started: the start time of the process in clock ticks since boot (``/proc/PID/stat``), as process ids recur.
    """

    directory: str
    pid: int
    started: str

    @property
    def runs(self) -> bool:
        """Whether the process still runs."""
        return _started(self.pid) == self.started


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _records() -> Path:
    return state_dir() / "examples"


@contextlib.contextmanager
def recorded(directory: Path) -> Iterator[None]:
    """Record that this process runs the cloud in a directory; SIGTERM then ends it as Ctrl-C does."""
    cloud = RunningCloud(directory=str(directory), pid=os.getpid(), started=_started(os.getpid()))
    path = _records() / f"{cloud.pid}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, json.dumps(asdict(cloud)), mode=0o600)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running_clouds() -> list[RunningCloud]:
    """The clouds that run, by directory; the records of ended processes are removed."""
    found = []
    for path in sorted(_records().glob("*.json")):
        try:
            cloud = RunningCloud(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if cloud.runs:
            found.append(cloud)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda cloud: cloud.directory)


def _made(directory: Path) -> bool:
    """Whether a directory is that of an example cloud, by the content of its ``demo.json``."""
    try:
        return bool({"port", "token"} <= json.loads((directory / _ACCESS).read_text(encoding="utf-8")).keys())
    except (OSError, ValueError, AttributeError):
        return False


def _answers(directory: Path) -> bool:
    """Whether the cloud of a directory runs, also one of another user or state directory."""
    with contextlib.suppress(OSError, ValueError):
        port = json.loads((directory / _ACCESS).read_text(encoding="utf-8"))["port"]
        socket.create_connection(("127.0.0.1", int(port)), timeout=2).close()
        return True
    return False


def stop(directory: Path) -> None:
    """End the cloud in a directory, and remove the directory.

    :raises UsageError: if the directory is not one of ``gpustack example cloud``.
    :raises GpustackError: if the process does not end.
    """
    place = directory.resolve()
    clouds = [cloud for cloud in running_clouds() if cloud.directory == str(place)]
    if not clouds and not _made(place):
        remedy = "gpustack example list shows the clouds that run"
        raise UsageError("no example cloud", where=str(directory), remedy=remedy)
    if not clouds and _answers(place):
        remedy = (
            "run the command as the user who started it, with the same HOME and XDG_STATE_HOME; or press Ctrl-C there"
        )
        raise GpustackError("the cloud runs, but your records lack it", where=str(directory), remedy=remedy)
    for cloud in clouds:
        os.kill(cloud.pid, signal.SIGTERM)
        end = time.monotonic() + _PATIENCE
        while cloud.runs:
            if time.monotonic() > end:
                remedy = f"kill -KILL {cloud.pid}, then run the command again"
                raise GpustackError(f"process {cloud.pid} did not end", where=str(directory), remedy=remedy)
            time.sleep(0.1)
    shutil.rmtree(place, ignore_errors=True)
