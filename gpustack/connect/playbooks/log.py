"""The log of a run: the output of ``ansible-playbook``, made printable because it contains text from hosts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gpustack.base.text import LAYOUT, printable

_PIECE = 1 << 16
_PATIENCE = 10.0
"""Seconds; a process left behind by Ansible may keep the pipe open indefinitely."""


@contextmanager
def printable_log(log: BinaryIO) -> Iterator[int]:
    """Yield the descriptor of a pipe that is copied into a log; at the end, wait until all writers have closed it."""
    reading, writing = os.pipe()
    thread = threading.Thread(target=_copy, args=(reading, log), daemon=True, name="log")
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join(_PATIENCE)


def _copy(reading: int, log: BinaryIO) -> None:
    # The log is closed after _PATIENCE seconds.
    with suppress(ValueError), open(reading, encoding="utf-8", errors="replace", newline="") as texts:
        while piece := texts.readline(_PIECE):
            log.write(printable(piece, keep=LAYOUT).encode())
            log.flush()
