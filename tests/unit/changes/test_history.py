"""The history of runs: states, and undos that point at other runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.changes.history import history
from gpustack.changes.journal import PlannedChange, RunHead, RunRecord
from support.change_store import change

DONE, FAILED = ChangeResult.DONE, ChangeResult.FAILED


def record(name: str, *results: ChangeResult, undoes: str = "", closed: bool = True) -> RunRecord:
    planned = [PlannedChange.model_validate(change(f"o{n}", None, 1).to_record()) for n, _ in enumerate(results)]
    return RunRecord(
        path=Path(f"{name}.jsonl"),
        head=RunHead(id=name, command="flavor apply", changes=planned, undoes=undoes, at="2026-11-24T06:00:00+00:00"),
        results={f"value:o{n}": result for n, result in enumerate(results)},
        closed=closed,
    )


@pytest.mark.parametrize(
    ("undo", "state"),
    [
        (None, "done"),
        (record("u", DONE, DONE, undoes="a"), "undone"),
        (record("u", DONE, FAILED, undoes="a"), "partly undone"),
        (record("u", FAILED, FAILED, undoes="a"), "done"),
        (record("u", DONE, closed=False, undoes="a"), "partly undone"),
        (record("u", DONE, DONE, undoes="another"), "done"),
    ],
)
def test_an_undo_changes_the_state_of_its_run(undo: RunRecord | None, state: str) -> None:
    runs = [*([undo] if undo else []), record("a", DONE, DONE)]
    assert [entry.state for entry in history(runs)][-1] == state


def test_edited_records_that_undo_each_other_are_listed() -> None:
    runs = [record("b", DONE, undoes="a"), record("a", DONE, undoes="b"), record("0", DONE, undoes="0")]
    assert [entry.state for entry in history(runs)] == ["done", "undone", "done"]


def test_thousands_of_undos_of_undos_are_listed() -> None:
    ids = [f"{number:04}" for number in range(2000)]
    runs = [record(run, DONE, undoes=before) for run, before in zip(ids, ["", *ids], strict=False)]
    assert [entry.state for entry in history(reversed(runs))] == ["done", "undone"] * 1000


def test_a_summary_keeps_the_counts_alone() -> None:
    (entry,) = history([record("a", DONE, FAILED)])
    summary = entry.summary
    assert (summary.done, summary.planned, summary.state) == (1, 2, "failed")
    assert not summary.record.head.changes
    assert not summary.record.results


def test_an_entry_counts_what_was_made() -> None:
    (entry,) = history([record("a", DONE, FAILED, DONE)])
    assert (entry.done, entry.planned, len(entry.record.head.changes), entry.state) == (2, 3, 3, "failed")


def test_the_newest_undo_counts() -> None:
    older, newer = record("u1", FAILED, undoes="a"), record("u2", DONE, undoes="a")
    assert [*history([newer, older, record("a", DONE)])][-1].state == "undone"


@pytest.mark.parametrize("results", [(ChangeResult.UNCHANGED,), (ChangeResult.SKIPPED, ChangeResult.NOT_BEGUN)])
def test_an_undo_of_an_undone_run_keeps_its_state(results: tuple[ChangeResult, ...]) -> None:
    first, second = record("u1", DONE, undoes="a"), record("u2", *results, undoes="a")
    assert [*history([second, first, record("a", DONE)])][-1].state == "undone"
