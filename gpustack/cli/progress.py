"""Progress of a playbook on stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpustack.base.host_groups import host_groups
from gpustack.base.text import printable, raw
from gpustack.cli.common import Command
from gpustack.connect.playbooks.record import Record
from gpustack.connect.playbooks.show import line

if TYPE_CHECKING:
    from rich.progress import TaskID


ProgressListener = Callable[["Record", Sequence[str]], None]


@contextlib.contextmanager
def progress(command: Command, doing: str) -> Iterator[ProgressListener]:
    """Show progress on stderr: on a terminal a live line for each host, in a pipe one line for each finished host."""
    if not command.verbosity:
        yield lambda record, over: None
        return
    if not command.app.stderr.isatty():

        def report_hosts(record: Record, over: Sequence[str]) -> None:
            ended = [record.hosts[name] for name in over]
            texts = [
                (h.host, line(h, checked=record.checked)) for h in ended if doing == "planning" or h.begun or h.problem
            ]
            for group in host_groups(texts):
                command.report(f"{doing}: {group.text}")

        yield report_hosts
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=raw(command.app.stderr)), transient=True) as bars:
        rows: dict[str, TaskID] = {}

        def move_bars(record: Record, over: Sequence[str]) -> None:
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
def counting(command: Command, doing: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr for requests that take longer than a second; none in a pipe.

    Yields a function that takes the number of answers and their total.
    """
    if not command.verbosity or not command.app.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(file=raw(command.app.stderr)), transient=True)
    task = bar.add_task(doing, total=None)
    begun = time.monotonic()

    def advance(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if not bar.live.is_started and time.monotonic() - begun > 1:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
