"""Progress on stderr: on a terminal only, and only for work that takes longer than a second."""

import io
import threading
from types import SimpleNamespace

import pytest

from gpustack.base.text import SafeStream
from gpustack.cli.progress import Voice, counting, reading


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A timer that ends at once, or never."""

    ends = True

    def __init__(self, seconds: float, work: object) -> None:
        assert seconds == 1
        self.start = work if self.ends else lambda: None
        self.cancel = self.join = lambda: None


def command(stream: io.StringIO, verbosity: int = 1) -> Voice:
    return SimpleNamespace(app=SimpleNamespace(stderr=SafeStream(stream)), verbosity=verbosity, report=print)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "ends", True)
    monkeypatch.setattr(threading, "Timer", Clock)
    monkeypatch.setenv("TERM", "xterm")
    return Clock


def test_long_work_shows_a_bar_on_a_terminal() -> None:
    stream = Terminal()
    with reading(command(stream), 2) as read:
        read("gpu01")
        read("gpu02")
    assert "reading hosts" in stream.getvalue()
    assert "2/2" in stream.getvalue()


def test_short_work_shows_nothing(clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "ends", False)
    stream = Terminal()
    with counting(command(stream), "asking Placement") as advance:
        advance(1, 2)
    assert "asking Placement" not in stream.getvalue()


@pytest.mark.parametrize(("stream", "verbosity"), [(io.StringIO(), 1), (Terminal(), 0)])
def test_a_pipe_and_quiet_get_nothing(stream: io.StringIO, verbosity: int) -> None:
    with reading(command(stream, verbosity), 2) as read:
        read("gpu01")
    assert stream.getvalue() == ""
