"""The log of a run: what ``ansible-playbook`` prints, which has hosts' own texts in it, made printable on its way."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gpustack.text import LAYOUT, printable

_PIECE = 1 << 16
_PATIENCE = 10.0
"""Seconds: a process that Ansible has left behind may have the pipe open for ever."""


@contextmanager
def printable_log(log: BinaryIO) -> Iterator[int]:
    """The descriptor of a pipe whose text goes into a log; the log is complete at the end, once the writers are."""
    reading, writing = os.pipe()
    thread = threading.Thread(target=_copy, args=(reading, log), daemon=True, name="log")
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join(_PATIENCE)


def _copy(reading: int, log: BinaryIO) -> None:
    # The log is closed when the patience is over.
    with suppress(ValueError), open(reading, encoding="utf-8", errors="replace", newline="") as texts:
        while piece := texts.readline(_PIECE):
            log.write(printable(piece, keep=LAYOUT).encode())
            log.flush()
