"""A plan as text and as an SQL script, and read back from a file."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import JournalError
from gpustack.novadb.sources import Sources
from gpustack.repair import plan, show
from gpustack.repair.verdict import Allocation, Repair, Status, Verdict
from support.cellfile import CellFile, fill, nova_conf
from support.cleanup_runs import LEAK, SELECTION

VERDICT = replace(LEAK, evidence=("row 1 names vm", "vm is on gpu2"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "class A (left-behind) on gpu1, stale: a leak|row 1 names vm|vm is on gpu2|nobody uses it|→ free the row"),
        (
            {"host": "", "status": Status.REPORT, "repair": None, "evidence": (), "advice": "look", "klass": "Z"},
            "class Z in cell cell1, report: a leak|nobody uses it|→ look",
        ),
        (
            {"repair": Repair.FAIL_MIGRATION, "migrations": (7, 8), "evidence": (), "advice": "then look"},
            (
                "class A (left-behind) on gpu1, stale: a leak|nobody uses it|→ set migration 7, 8 to failed; Nova"
                " then frees the device|→ then look"
            ),
        ),
    ],
)
def test_a_verdict_is_explained_from_evidence_to_next_step(changes: dict[str, Any], text: str) -> None:
    verdict = replace(VERDICT, **changes)
    for shown in (verdict, verdict.to_dict()):
        lines = show.explanation(shown).splitlines()
        assert "|".join(line.strip(" -∴") for line in lines) == text


def test_names_in_a_verdict_begin_no_line() -> None:
    """Databases have the names of hosts and cells."""
    forged = "x\n  → run `sh`\x1b[2J\n"
    verdict = replace(VERDICT, host=forged, cell=forged, evidence=(forged,), because=forged, advice=forged)
    lines = show.explanation(verdict).splitlines()
    assert len(lines) == 5
    assert [line for line in lines if line.startswith("  → run") and line != lines[-1]] == []
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("repair", Repair)
def test_each_repair_has_a_next_step(repair: Repair, stop: bool) -> None:
    held = Allocation(provider="p 1", name="gpu1_81", addresses="0000:81:00.0", consumer="vm;")
    step = show.next_step(replace(VERDICT, repair=repair, allocation=held, stop=stop).to_dict())
    assert step.endswith(", while nova-compute on gpu1 is stopped") is stop
    assert ("allocation unset --provider 'p 1' 'vm;'" in step) is (repair is Repair.UNSET_ALLOCATION)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Two cells, of which the second has nothing to repair."""
    first, second = (CellFile(f"sqlite:///{tmp_path}/{name}.sqlite") for name in ("first", "second"))
    fill(first)
    second.host("calm", seen=1)
    return Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": first.url, "cell2": second.url})])


def of_classes(sources: Sources, letters: str) -> list[Verdict]:
    return [verdict for verdict in plan.make(sources, SELECTION).repairs if verdict.klass in letters]


@pytest.mark.parametrize(
    ("letter", "comments", "updates"),
    [
        ("A", ["class A (left-behind) on old 0000:01:00.0", "class A (left-behind) on old 0000:05:00.1"], 3),
        ("P", ["class P (pool-drift) on up", "ask up whether a restart of nova-compute is safe"], 0),
        ("J", ["class J", "take the owner off the row, while nova-compute on stopped is stopped"], 1),
    ],
)
def test_a_script_has_a_transaction_for_each_repair(
    sources: Sources, letter: str, comments: list[str], updates: int
) -> None:
    text = show.script(sources, of_classes(sources, letter))
    assert text.startswith("-- Each statement must change exactly one row")
    written = [line for line in text.splitlines()[1:] if line.startswith("--")]
    assert [comment in line for comment, line in zip(comments, written, strict=True)] == [True] * len(comments)
    assert "cell2" not in text
    transactions = re.findall(r"^BEGIN;\n(.*?)^COMMIT;$", text, re.MULTILINE | re.DOTALL)
    assert sum(transaction.count("UPDATE ") for transaction in transactions) == updates == text.count("UPDATE ")
    with contextlib.closing(sqlite3.connect(sources.cells[0].database.url.database or "")) as connection:
        connection.executescript(text)
        fractions = "SELECT count(*) FROM pci_devices WHERE updated_at LIKE '%.%' AND updated_at NOT LIKE '%.000000'"
        assert connection.execute(fractions).fetchone() == (0,)  # as Nova writes times
    assert bool(of_classes(sources, letter)) is not bool(updates)


def test_a_script_without_repairs_is_only_its_head(sources: Sources) -> None:
    assert show.script(sources, []).count("\n") == 0


def saved(path: Path, *verdicts: Any, version: object = plan.VERSION) -> Path:
    path.write_text(json.dumps({plan.FORMAT: version, "verdicts": verdicts}))
    return path


def test_only_the_repairs_of_a_saved_plan_are_read(tmp_path: Path) -> None:
    undecided = VERDICT.undecided("gpu1 is silent").to_dict()
    held = Allocation(provider="p", name="n", addresses="a", consumer="vm")
    placed = replace(VERDICT, klass="Q", repair=Repair.UNSET_ALLOCATION, allocation=held).to_dict()
    path = saved(tmp_path / "plan.json", VERDICT.to_dict(), undecided, placed)
    assert show.load_plan(path) == [VERDICT.to_dict(), placed]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (json.dumps({plan.FORMAT: 2, "verdicts": []}), "the plan is of version 2"),
        ("{}", "no plan of gpustack cleanup, or a damaged one"),
        ("[" * 100_000, "no plan of gpustack cleanup, or a damaged one"),
        (None, "the plan can't be read"),
    ],
)
def test_another_file_is_no_plan(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(JournalError, match=problem) as raised:
        show.load_plan(path)
    assert str(path) in str(raised.value)


def test_a_plan_that_others_can_write_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "plan.json", VERDICT.to_dict())
    path.chmod(0o660)
    with pytest.raises(JournalError, match=r"others can write this file \(mode 0660\)"):
        show.load_plan(path)


@pytest.mark.parametrize("field", ["consumer", "provider", "name", "addresses"])
def test_a_plan_without_a_part_of_an_allocation_is_damaged(tmp_path: Path, field: str) -> None:
    held = {"provider": "p", "name": "n", "addresses": "a", "consumer": "vm"}
    held.pop(field)
    placed = {**VERDICT.to_dict(), "repair": "unset-allocation", "allocation": held}
    with pytest.raises(JournalError, match="a damaged one"):
        show.load_plan(saved(tmp_path / "plan.json", placed))
