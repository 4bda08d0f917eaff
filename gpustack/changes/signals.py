"""Signals that ask a run of changes to stop: what is in progress ends first."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stopping(stop: threading.Event) -> Iterator[list[int]]:
    """Let Ctrl-C, SIGTERM and SIGHUP set ``stop``; yields the signals that arrived."""
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield arrived
        return
    former = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield arrived
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
