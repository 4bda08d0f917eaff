"""Clean-up of a small cell in this process: stale rows, repairs, and concurrent changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import sqlalchemy as sa

from gpustack.novadb.sources import Sources
from gpustack.repair import apply, plan
from gpustack.repair.hypervisor import Usage
from gpustack.repair.journal import Journal
from gpustack.repair.outcome import Outcome
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import PlannedVerdict
from support.cellfile import CellFile, answering

SELECTION = Selection(stopped=frozenset({"stopped"}), unblock=frozenset({("stopped", "0000:03:00.0")}))


def wanted(sources: Sources) -> list[PlannedVerdict]:
    return [verdict.to_dict() for verdict in plan.make(sources, SELECTION).repairs]


def run(
    sources: Sources,
    path: Path,
    planned: list[PlannedVerdict],
    ask: Callable[[str], Usage] | None = None,
    selection: Selection = SELECTION,
) -> list[Outcome]:
    with contextlib.closing(Journal(path=path)) as journal:
        return list(apply.carry_out(sources, planned, selection, journal, ask=ask or answering(sources), wait=0))


def sql(cell: CellFile, statement: str) -> None:
    with cell.engine.begin() as connection:
        connection.execute(sa.text(statement))


def undoable(cell: CellFile, dump: Mapping[str, list[tuple[object, ...]]] | None = None) -> dict[str, list[object]]:
    """Every row but physical functions: undo does not offer one (class I) while its virtual function is taken."""
    return {
        table: [row for row in rows if table != "pci_devices" or "type-PF" not in row]
        for table, rows in (dump or cell.dump()).items()
    }
