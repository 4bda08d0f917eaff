"""``apply`` and ``undo`` killed at every statement that writes and at every write of their journals, for every repair.

What class Q writes is in Placement: ``tests/nova/cleanup/test_placement.py``. Servers:
``tests/nova/cleanup/test_server_faults.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.verdict import Repair
from support.cellfile import CellFile
from support.killer import REPAIRS, SELECTION, repair_killed_anywhere, silent_cell, undo_killed_anywhere


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    return CellFile(f"sqlite:///{tmp_path}/cell.sqlite")


@pytest.fixture
def sources(cell: CellFile, tmp_path: Path) -> Sources:
    return silent_cell(cell, tmp_path)


def keep(cell: CellFile) -> Callable[[], None]:
    file = Path(cell.engine.url.database or "")
    backup = file.with_name("kept")
    shutil.copyfile(file, backup)

    def restore() -> None:
        for stale in file.parent.glob("cell.sqlite*"):
            stale.unlink()
        shutil.copyfile(backup, file)

    return restore


def test_these_are_all_the_repairs_in_a_database(sources: Sources) -> None:
    repairs = plan.make(sources, SELECTION).repairs
    assert {(verdict.klass, verdict.repair) for verdict in repairs if verdict.repair is not Repair.RESTART} == set(
        REPAIRS
    )
    assert {kind for _klass, kind in REPAIRS} == set(Repair) - {Repair.RESTART, Repair.UNSET_ALLOCATION}


@pytest.mark.parametrize("kind", REPAIRS, ids="-".join)
def test_killed_anywhere_nothing_is_half_done(
    cell: CellFile, sources: Sources, tmp_path: Path, kind: tuple[str, Repair]
) -> None:
    repair_killed_anywhere(cell, sources, tmp_path, kind, keep)


def test_an_undo_killed_anywhere_is_finished_by_the_next(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    undo_killed_anywhere(cell, sources, tmp_path, keep)
