"""A process that undoes a run unless somebody confirms it in time; it survives the terminal and the run itself."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO

from gpustack.base.files import make_directory
from gpustack.changes.journal import directory

_ENDED, _CONFIRMED = b"ended\n", b"confirmed\n"


class Guardian(contextlib.AbstractContextManager["Guardian"]):
    """The process, with a session of its own. If this process ends without a confirmation, it undoes the run.

    :param run: the ID of the run.
    :param undo: the arguments of gpustack that undo it, and first wait with :func:`is_confirmed`.
    """

    def __init__(self, run: str, undo: Sequence[str]) -> None:
        make_directory(directory())
        self.log = directory() / f"{run}.undo.log"
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpustack", *undo],  # -P: no modules of the current directory
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __exit__(self, *_exception: object) -> None:
        self.succeeds()

    def succeeds(self) -> bool:
        """Wait for the end of the process, and return whether it succeeded; unconfirmed, it undoes the run first."""
        if self._process.stdin:
            self._process.stdin.close()
        return self._process.wait() == 0

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin:
                self._process.stdin.write(message)
                self._process.stdin.flush()

    def asks(self, answer: IO[str], seconds: int) -> bool:
        """Begin the time for the confirmation, and return whether ``answer`` gives it."""
        self._send(_ENDED)
        ready: list[IO[str]] = []
        with contextlib.suppress(KeyboardInterrupt):  # the result of the undo is reported then too
            ready, _, _ = select.select([answer], [], [], seconds)
        if confirmed := bool(ready) and answer.readline().strip().lower() in ("y", "yes"):
            self._send(_CONFIRMED)
        return confirmed


def is_confirmed(stream: IO[bytes], seconds: float) -> bool:
    """Wait for the confirmation, as the process of a :class:`Guardian`.

    :param stream: its end means that nobody can confirm the run any more.
    """
    deadline = None
    while True:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([stream], [], [], timeout)
        message = os.read(stream.fileno(), 100) if ready else b""
        if not message or _CONFIRMED in message:
            return bool(message)
        deadline = time.monotonic() + seconds
