"""Progress on stderr: on a terminal only, and only for work that takes longer than a second."""

import io
import itertools
import threading
import time
from types import SimpleNamespace

import pytest

from gpustack.base.text import SafeStream
from gpustack.cli.progress import Voice, counting, progress, reading
from gpustack.connect.playbooks.record import HostRecord, RunOutcome


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


@pytest.mark.parametrize(("seconds", "lines"), [(0, ["working: gpu[01:04] (4 hosts): done"]), (60, None)])
def test_short_batches_are_one_line_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: int, lines: list[str] | None
) -> None:
    """Batches that take a minute have a line each."""
    times = itertools.count(step=seconds)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    names = [f"gpu{number:02}" for number in range(1, 5)]
    hosts = {name: HostRecord(host=name, begun=True, changed=True, outcome=RunOutcome.DONE) for name in names}
    record = SimpleNamespace(hosts=hosts, checked=False)
    with progress(command(io.StringIO()), "working") as report:
        for name in names:
            report(record, [name])  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines() == (lines or [f"working: {name}: done" for name in names])


def test_a_host_of_two_plays_is_one_host(capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run plans, then compares: with the same text, the host would be two equal hosts."""
    record = SimpleNamespace(hosts={"gpu01": HostRecord(host="gpu01", text="nothing", begun=True)}, checked=True)
    with progress(command(io.StringIO()), "planning") as report:
        for _play in range(2):
            report(record, ["gpu01"])  # type: ignore[arg-type]
    assert capsys.readouterr().out == "planning: gpu01: nothing to do\n"


def test_an_interrupted_run_says_what_it_finished(capsys: pytest.CaptureFixture[str]) -> None:
    record = SimpleNamespace(hosts={"gpu01": HostRecord(host="gpu01", begun=True, changed=True)}, checked=False)

    def run() -> None:
        with progress(command(io.StringIO()), "working") as report:
            report(record, ["gpu01"])  # type: ignore[arg-type]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert capsys.readouterr().out == "working: gpu01: done\n"
