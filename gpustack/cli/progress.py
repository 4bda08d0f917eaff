"""How far a playbook is, told on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpustack.cli.common import Command
from gpustack.text import printable, raw

if TYPE_CHECKING:
    from gpustack.playbook_runner.record import Record

Told = Callable[["Record", Sequence[str]], None]


@contextlib.contextmanager
def progress(command: Command, doing: str) -> Iterator[Told]:
    """Tell on stderr how it goes: a line a host that moves on a terminal, one line a host when it is done in a pipe."""
    if not command.verbosity:
        yield lambda record, over: None
        return
    if not command.app.stderr.isatty():
        from gpustack.playbook_runner.show import line

        def told(record: Record, over: Sequence[str]) -> None:
            for name in over:
                if doing == "planning" or record.hosts[name].begun or record.hosts[name].problem:
                    command.say(f"{doing}: {line(record.hosts[name], checked=record.checked)}")

        yield told
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from gpustack.playbook_runner.show import line

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=raw(command.app.stderr)), transient=True) as shown:
        rows: dict[str, Any] = {}

        def moved(record: Record, over: Sequence[str]) -> None:
            for name in record.active:
                if name not in rows:
                    rows[name] = shown.add_task(name, total=None)
                shown.update(rows[name], description=printable(f"{name}: {record.hosts[name].task}"))
            for name in over:
                if name in rows:
                    shown.remove_task(rows.pop(name))
                shown.console.print(printable(line(record.hosts[name], checked=record.checked)), markup=False)

        yield moved
