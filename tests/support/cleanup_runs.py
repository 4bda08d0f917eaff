"""Clean-up of a small cell in this process: stale rows, repairs and their undo with a journal, concurrent changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpustack.changes import journal
from gpustack.changes.change import ChangeOutcome, ChangeResult
from gpustack.changes.journal import RunHead
from gpustack.changes.run import run as run_changes
from gpustack.changes.undo import plan_undo
from gpustack.cli.change import former, kinds
from gpustack.novadb.sources import Sources
from gpustack.novadb.view import HostState
from gpustack.repair import plan
from gpustack.repair.changes import RepairChange, RepairUndo, planned
from gpustack.repair.hypervisor import Usage
from gpustack.repair.outcome import Repairing
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import PlannedVerdict, Repair, Status, Verdict
from support.cellfile import CellFile, answering
from support.change_runs import UNRECORDED

LEAK = Verdict(
    klass="A",
    title="a leak",
    status=Status.STALE,
    cell="cell1",
    host="gpu1",
    node="gpu1",
    host_state=HostState.DOWN,
    evidence=(),
    because="nobody uses it",
    repair=Repair.FREE,
)
SELECTION = Selection(stopped=frozenset({"stopped"}), unblock=frozenset({("stopped", "0000:03:00.0")}))


def wanted(sources: Sources) -> list[PlannedVerdict]:
    return [verdict.to_dict() for verdict in plan.make(sources, SELECTION).repairs]


def head(**values: Any) -> RunHead:
    return RunHead(id=journal.new_id(), command="cleanup apply", **values)


def run(
    sources: Sources,
    path: Path,
    repairs: Sequence[PlannedVerdict],
    ask: Callable[[str], Usage] | None = None,
    selection: Selection = SELECTION,
    cloud: Any = None,
) -> list[ChangeOutcome]:
    """Carry repairs out and record them in a new journal, as the command does.

    :raises GpustackError: the error that ended the run.
    """
    outcomes = attempted(sources, path, repairs, ask, selection, cloud)
    raise_lost(outcomes)
    return outcomes


def attempted(
    sources: Sources,
    path: Path,
    repairs: Sequence[PlannedVerdict],
    ask: Callable[[str], Usage] | None = None,
    selection: Selection = SELECTION,
    cloud: Any = None,
) -> list[ChangeOutcome]:
    """The outcomes of repairs, whatever was lost."""
    api = Repairing(sources=sources, selection=selection, ask=ask or answering(sources), cloud=cloud)
    changes = planned(repairs)
    log = journal.RunJournal(head(), changes, path)
    outcomes = run_changes(changes, {"repair": api}, log)
    log.close()
    return list(outcomes)


def raise_lost(outcomes: Iterable[ChangeOutcome]) -> None:
    for outcome in outcomes:
        if outcome.lost is not None:
            raise outcome.lost


def undone(path: Path, sources: Sources, cloud: Any = None, *, check: bool = False) -> list[ChangeOutcome]:
    """Undo the repairs of a journal, without a journal of the undo; or check only what would be restored.

    :raises GpustackError: the error that ended the run.
    """
    changes, _final = plan_undo(journal.read(path, former()), kinds())
    api = Repairing(sources=sources, cloud=cloud)
    if check:
        return [preview(change, api) for change in changes if isinstance(change, RepairUndo)]
    outcomes = run_changes(changes, {"repair_undo": api}, UNRECORDED)
    raise_lost(outcomes)
    return list(outcomes)


def preview(change: RepairUndo, api: Repairing) -> ChangeOutcome:
    ended = change.preview(api)
    return ChangeOutcome(change=change, result=ended.result, detail=ended.detail)


def verdict_of(outcome: ChangeOutcome) -> PlannedVerdict:
    """The planned verdict of a repair."""
    assert isinstance(outcome.change, RepairChange)
    assert outcome.change.verdict is not None
    return outcome.change.verdict


def results(path: Path) -> list[ChangeResult]:
    """The recorded results of the repairs that began."""
    record = journal.read(path)
    return [record.results[change.key] for change in record.head.changes if record.payloads.get(change.key)]


def sql(cell: CellFile, statement: str) -> None:
    with cell.engine.begin() as connection:
        connection.execute(sa.text(statement))


def undoable(cell: CellFile, dump: Mapping[str, list[tuple[object, ...]]] | None = None) -> dict[str, list[object]]:
    """Every row but physical functions: undo does not offer one (class I) while its virtual function is taken."""
    return {
        table: [row for row in rows if table != "pci_devices" or "type-PF" not in row]
        for table, rows in (dump or cell.dump()).items()
    }
