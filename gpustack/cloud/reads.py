"""One read for the check of an object and the write that follows it."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_thread = threading.local()


@contextlib.contextmanager
def reading_once() -> Iterator[None]:
    """Until this thread writes, or the block ends, answer its repeated reads with the first answer."""
    _thread.answers = {}
    try:
        yield
    finally:
        forget()


def answers() -> dict[Any, Any]:
    """The answers that this thread knows, by request; without :func:`reading_once`, none, and none is kept."""
    known = getattr(_thread, "answers", None)
    return {} if known is None else known


def forget() -> None:
    """Send each further read: after a write, an object has another value."""
    _thread.answers = None
