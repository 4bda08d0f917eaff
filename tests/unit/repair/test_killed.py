"""``apply`` and ``undo`` killed at every statement that writes and at every write of their journals, for every repair.

What class Q writes is in Placement: ``tests/nova/cleanup/test_placement.py``.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpustack.cli.app import main
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Repair
from support.cellfile import CellFile, fill, nova_conf, silence
from support.cleanup_runs import run, undone
from support.killer import REPAIRS, killed

SELECTION = Selection(
    stopped=frozenset({"stopped"}),
    unblock=frozenset({("stopped", "0000:03:00.0")}),
    service_down_time=timedelta(days=1),
)
Dump = dict[str, list[tuple[object, ...]]]


def repair(sources: Sources, repairs: list[dict[str, Any]], path: Path, at: int = 0) -> bool:
    """Apply in a process of its own, killed at a step; whether it came to its end."""
    return killed(lambda: run(sources, path, repairs, selection=SELECTION), at)


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell_file)
    silence(cell_file)  # dozens of runs take minutes on a slow machine: each is made as late as the last
    down = int(SELECTION.service_down_time.total_seconds())  # of undo, too: it restores nothing if all have been silent
    nova_conf(tmp_path, {"cell1": f"sqlite:///{tmp_path}/cell.sqlite"}, service_down_time=down)
    return cell_file


def test_these_are_all_the_repairs_in_a_database(cell: CellFile, tmp_path: Path) -> None:
    repairs = plan.make(Sources.from_nova_conf([tmp_path]), SELECTION).repairs
    assert {(verdict.klass, verdict.repair) for verdict in repairs if verdict.repair is not Repair.RESTART} == set(
        REPAIRS
    )
    assert {kind for _klass, kind in REPAIRS} == set(Repair) - {Repair.RESTART, Repair.UNSET_ALLOCATION}


@pytest.mark.parametrize(("klass", "kind"), REPAIRS)
def test_killed_anywhere_nothing_is_half_done(cell: CellFile, tmp_path: Path, klass: str, kind: Repair) -> None:
    sources = Sources.from_nova_conf([tmp_path])
    file, backup = tmp_path / "cell.sqlite", tmp_path / "kept"
    repairs = plan.make(sources, SELECTION).repairs
    planned = [verdict.to_dict() for verdict in repairs if (verdict.klass, verdict.repair) == (klass, kind)][-2:]
    original = cell.dump()
    shutil.copyfile(file, backup)
    assert repair(sources, planned, tmp_path / "whole.jsonl")
    repaired = shape(cell.dump())
    changed = sum(row != old for row, old in zip(repaired, shape(original), strict=True))
    assert changed >= len(planned) >= 1

    at, counts = 0, set()
    while True:
        at += 1
        for stale in tmp_path.glob("cell.sqlite*"):
            stale.unlink()
        shutil.copyfile(backup, file)
        path, second = tmp_path / f"{at}.jsonl", tmp_path / f"{at}-second.jsonl"
        if repair(sources, planned, path, at):
            break
        now = shape(cell.dump())
        assert all(row in (old, new) for row, old, new in zip(now, shape(original), repaired, strict=True))
        counts.add(sum(row != old for row, old in zip(now, shape(original), strict=True)))
        if not at % 3:  # go on, before going back
            assert repair(sources, planned, second)
            assert shape(cell.dump()) == repaired
            list(undone(second, sources))
        if path.exists() and path.stat().st_size:
            list(undone(path, sources))
        if klass == "I":  # undo would offer the physical function while an instance has its virtual function
            assert shape(cell.dump()) in (shape(original), repaired), at
        else:
            assert cell.dump() == original, at
    assert at > 8 * len(planned)
    assert {0, changed} <= counts  # killed before, and after


def test_an_undo_killed_anywhere_is_finished_by_the_next(cell: CellFile, tmp_path: Path) -> None:
    sources, path = Sources.from_nova_conf([tmp_path]), tmp_path / "journal.jsonl"
    file, backup = tmp_path / "cell.sqlite", tmp_path / "kept"
    # A virtual function, and its physical one: two rows in one transaction.
    repairs = [verdict.to_dict() for verdict in plan.make(sources, SELECTION).repairs if verdict.owner == "vm-v"]
    original = cell.dump()
    run(sources, path, repairs, selection=SELECTION)
    repaired, recorded = cell.dump(), path.read_bytes()
    shutil.copyfile(file, backup)
    command = ["cleanup", "undo", str(path), "--config-file", str(tmp_path), "--yes"]

    at, counts = 0, set()
    while True:
        at += 1
        for stale in tmp_path.glob("cell.sqlite*"):
            stale.unlink()
        shutil.copyfile(backup, file)
        path.write_bytes(recorded)
        if killed(lambda: main(command), at):
            break
        rows = list(zip(complete(cell.dump()), complete(original), complete(repaired), strict=True))
        assert all(row in (old, new) for row, old, new in rows)
        counts.add(sum(row != old for row, old, _new in rows))
        assert main(command) == 0
        assert cell.dump() == original, at
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
