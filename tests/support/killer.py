"""Repairs and their undo in a process of its own, killed at each statement and at each write of the journal."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from gpustack.changes import journal
from gpustack.cli.app import main
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import PlannedVerdict, Repair
from support.cellfile import CellFile, fill, nova_conf, silence
from support.cleanup_runs import run, undone

REPAIRS = (
    ("A", Repair.FREE),
    ("B", Repair.FAIL_MIGRATION),
    ("B", Repair.FREE),
    ("C", Repair.RETIRE),
    ("D", Repair.CLEAR_DELETED),
    ("E", Repair.FREE),
    ("F", Repair.FREE),
    ("G", Repair.FREE),
    ("H", Repair.UNBLOCK),
    ("I", Repair.BLOCK_PARENT),
    ("J", Repair.CLEAR_OWNER),
)
SELECTION = Selection(
    stopped=frozenset({"stopped"}),
    unblock=frozenset({("stopped", "0000:03:00.0")}),
    service_down_time=timedelta(days=1),
)
Dump = dict[str, list[tuple[object, ...]]]
Keep = Callable[[CellFile], Callable[[], None]]
"""Keeps what a cell is now; what it returns brings the cell back to it."""
READS = 40
"""Reading statements change nothing; only every READS-th of them counts as a step."""


class Killer:
    """Counts writes, and ends the process at one of them."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count = self._reads = 0

    def step(self, *_arguments: object) -> None:
        self._count += 1
        if self._count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def statement(self, _connection: object, _cursor: object, text: str, *_rest: object) -> None:
        if text.startswith(("SELECT", "PRAGMA")):
            self._reads += 1
            if self._reads % READS:
                return
        self.step()

    def around(self, original: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **keywords: object) -> object:
            self.step()
            result = original(*arguments, **keywords)
            self.step()
            return result

        return wrapped


def killed(work: Callable[[], object], at: int) -> bool:
    """Work in a process of its own, killed at a step of what it writes; return whether it came to its end."""
    child = os.fork()
    if child:
        _pid, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL), status
        return status == 0
    try:
        killer = Killer(at)
        sa.event.listen(sa.Engine, "before_cursor_execute", killer.statement)
        sa.event.listen(sa.Engine, "after_cursor_execute", killer.statement)
        sa.event.listen(sa.Engine, "commit", killer.step)
        os.fsync = killer.around(os.fsync)  # type: ignore[assignment]
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def silent_cell(cell: CellFile, directory: Path) -> Sources:
    """Fill a cell for dozens of runs, which take minutes on a slow machine: each is made as late as the last."""
    fill(cell)
    silence(cell)
    down = int(SELECTION.service_down_time.total_seconds())  # of undo, too: it restores nothing if all have been silent
    nova_conf(directory, {"cell1": cell.url}, service_down_time=down)
    return Sources.from_nova_conf([directory])


def repair_killed_anywhere(
    cell: CellFile,
    sources: Sources,
    directory: Path,
    kind: tuple[str, Repair],
    keep: Keep,
    every: int = 1,
) -> None:
    """Apply, killed at each step: each row is as before or as after, and a second run and undo find their way."""

    def repair(path: Path, at: int = 0) -> bool:
        return killed(lambda: run(sources, path, planned, selection=SELECTION), at)

    repairs = plan.make(sources, SELECTION).repairs
    chosen = [verdict for verdict in repairs if (verdict.klass, verdict.repair) == kind]
    planned: list[PlannedVerdict] = [verdict.to_dict() for verdict in chosen][-2:]
    original, restore = cell.dump(), keep(cell)
    assert repair(directory / "whole.jsonl")
    repaired = shape(cell.dump())
    changed = sum(row != old for row, old in zip(repaired, shape(original), strict=True))
    assert changed >= len(planned) >= 1

    at, counts = 1, set()
    while True:
        restore()
        path, second = directory / f"{at}.jsonl", directory / f"{at}-second.jsonl"
        if repair(path, at):
            break
        now = shape(cell.dump())
        assert all(row in (old, new) for row, old, new in zip(now, shape(original), repaired, strict=True))
        counts.add(sum(row != old for row, old in zip(now, shape(original), strict=True)))
        if not at % 3:  # go on, before going back
            assert repair(second)
            assert shape(cell.dump()) == repaired
            list(undone(second, sources))
        if path.exists() and path.stat().st_size:
            list(undone(path, sources))
        if kind[0] == "I":  # undo would offer the physical function while an instance has its virtual function
            assert shape(cell.dump()) in (shape(original), repaired), at
        else:
            assert cell.dump() == original, at
        at += every
    assert at > 8 * len(planned)
    assert {0, changed} <= counts  # killed before, and after


def undo_killed_anywhere(cell: CellFile, sources: Sources, directory: Path, keep: Keep, every: int = 1) -> None:
    """Undo a virtual function and its physical one, two rows in one transaction, killed at each step."""
    path = directory / "journal.jsonl"
    repairs = [verdict.to_dict() for verdict in plan.make(sources, SELECTION).repairs if verdict.owner == "vm-v"]
    original = cell.dump()
    run(sources, path, repairs, selection=SELECTION)
    repaired, recorded, restore = cell.dump(), path.read_bytes(), keep(cell)
    command = ["cleanup", "undo", str(path), "--config-file", str(directory), "--yes"]

    at, counts = 1, set()
    before = set(journal.directory().glob("*"))
    while True:
        restore()
        path.write_bytes(recorded)
        for record in set(journal.directory().glob("*")) - before:  # of undos, which never were for this cell
            record.unlink()
        if killed(lambda: main(command), at):
            break
        rows = list(zip(complete(cell.dump()), complete(original), complete(repaired), strict=True))
        assert all(row in (old, new) for row, old, new in rows)
        counts.add(sum(row != old for row, old, _new in rows))
        assert main(command) == 0
        assert cell.dump() == original, at
        at += every
    assert cell.dump() == original
    assert at > 8
    assert counts == {0, 2}  # killed before and after, and never half done


def complete(dump: Dump) -> list[tuple[object, ...]]:
    """Every row with its times."""
    return [(table, *row) for table, rows in dump.items() for row in rows]


def shape(dump: Dump) -> list[tuple[object, ...]]:
    """Every row without its times."""
    return [
        (table, *(value for value in row if not hasattr(value, "year"))) for table, rows in dump.items() for row in rows
    ]
