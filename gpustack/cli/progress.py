"""The one door for progress on stderr: bars appear on a terminal, after one second."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gpustack.base.host_groups import host_groups
from gpustack.base.text import printable, raw

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gpustack.connect.playbooks.record import Record


_PAUSE = 10.0
"""Seconds between lines in a pipe, so that many short batches are one line."""
ProgressListener = Callable[["Record", Sequence[str]], None]


class Voice(Protocol):
    """A command that reports on stderr; silent if ``verbosity`` is 0."""

    app: Any

    @property
    def verbosity(self) -> int:
        """0 with ``--quiet``."""

    def report(self, text: str) -> None:
        """Print a message on stderr."""


@contextlib.contextmanager
def _bars(command: Voice, *, counted: bool) -> Iterator["Progress"]:
    """Bars on stderr, one for each task, with its number if ``counted``; they appear after a second."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bars = Progress(
        *columns,
        *((BarColumn(), MofNCompleteColumn()) if counted else ()),
        console=Console(file=raw(command.app.stderr)),
        transient=True,
    )
    timer = threading.Timer(1, bars.start)
    timer.start()
    try:
        yield bars
    finally:
        timer.cancel()
        timer.join()
        bars.stop()


@contextlib.contextmanager
def progress(command: Voice, doing: str) -> Iterator[ProgressListener]:
    """Show progress of a playbook: on a terminal a live line for each host; in a pipe, lines for the finished hosts, at
    most every ten seconds.
    """
    if not command.verbosity:
        yield lambda record, over: None
        return
    from gpustack.connect.playbooks.show import line

    if not command.app.stderr.isatty():
        texts: dict[str, str] = {}
        due = time.monotonic() + _PAUSE

        def report_hosts(record: "Record", over: Sequence[str]) -> None:
            ended = [record.hosts[name] for name in over]
            shown = [h for h in ended if h.problem or (h.text if doing == "planning" else h.begun)]
            texts.update((h.host, line(h, checked=record.checked)) for h in shown)  # the last of several plays
            if time.monotonic() >= due:
                flush()

        def flush() -> None:
            nonlocal due
            for group in host_groups(texts.items()):
                command.report(f"{doing}: {group.text}")
            texts.clear()
            due = time.monotonic() + _PAUSE

        try:
            yield report_hosts
        finally:
            flush()
        return
    with _bars(command, counted=False) as bars:
        rows: dict[str, TaskID] = {}

        def move_bars(record: "Record", over: Sequence[str]) -> None:
            for name in record.active:
                if name not in rows:
                    rows[name] = bars.add_task(name, total=None)
                bars.update(rows[name], description=printable(f"{name}: {record.hosts[name].task}"))
            for name in over:
                if name in rows:
                    bars.remove_task(rows.pop(name))
                bars.console.print(printable(line(record.hosts[name], checked=record.checked)), markup=False)

        yield move_bars


@contextlib.contextmanager
def counting(command: Voice, doing: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for requests; none in a pipe. Yields a function that takes the number of answers and their total."""
    if not command.verbosity or not command.app.stderr.isatty():
        yield lambda done, total: None
        return
    with _bars(command, counted=True) as bars:
        task = bars.add_task(doing, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextlib.contextmanager
def reading(command: Voice, total: int) -> Iterator[Callable[[str], None]]:
    """A bar for hosts that are read; yields a function that is called with each finished host."""
    done = itertools.count(1)
    with counting(command, "reading hosts") as advance:
        advance(0, total)
        yield lambda host: advance(next(done), total)
