"""What speaks against restoring a row: its owner, its host and other claims are looked at, not the row alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.cleanup import apply, journal
from gpustack.cleanup.plan import Sources
from gpustack.cleanup.undo import Undone, undo
from support.cellfile import CellFile, ago, fill, nova_conf
from support.cleanup_runs import run, sql, wanted


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell_file)
    nova_conf(tmp_path, {"cell1": cell_file.url})
    return cell_file


@pytest.fixture
def sources(cell: CellFile, tmp_path: Path) -> Sources:
    return Sources.from_nova_conf([tmp_path])


TAKEN = "UPDATE pci_devices SET status = 'allocated', instance_uuid = 'other'"
OF_OLD = "compute_node_id = (SELECT id FROM compute_nodes WHERE host = 'old')"
REPORTS = "UPDATE services SET last_seen_up = '{now}' WHERE host = 'old'"


SINCE = [
    ("vm-a", ["UPDATE instances SET deleted = id WHERE uuid = 'vm-a'"], "instance vm-a was deleted since"),
    ("gone", [REPORTS], "is up now"),
    ("vm-a", [REPORTS], "is up now"),
    ("vm-a", ["UPDATE instances SET host = 'old', node = 'old' WHERE uuid = 'vm-a'"], "is on old by now"),
    ("vm-a", ["UPDATE instances SET task_state = 'rebuilding' WHERE uuid = 'vm-a'"], "task under way"),
    (
        "vm-b",
        ["UPDATE pci_devices SET status = 'available', instance_uuid = NULL WHERE instance_uuid = 'vm-b'"],
        "which is free by now",
    ),
    (
        "vm-b",
        ["UPDATE pci_devices SET instance_uuid = 'other' WHERE instance_uuid = 'vm-b'"],
        "belongs to instance other by now",
    ),
    (
        "vm-v",
        [f"{TAKEN} WHERE dev_type = 'type-PF' AND {OF_OLD}"],
        "belongs to instance other by now",
    ),
]
"""The owner of a row, what happened since its repair, and the reason that is given."""


@pytest.mark.parametrize(("owner", "since", "why"), SINCE)
def test_what_was_used_since_is_left(
    cell: CellFile, sources: Sources, tmp_path: Path, owner: str, since: list[str], why: str
) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == owner]
    (outcome,) = run(sources, tmp_path / "journal", planned)
    assert outcome.result in (apply.Result.REPAIRED, apply.Result.WAITING)
    for statement in since:
        sql(cell, statement.format(now=ago(0)))
    before = cell.dump()

    (undone,) = undo(journal.read(tmp_path / "journal"), sources)

    assert undone.result is Undone.USED, undone.detail
    assert why in undone.detail
    assert cell.dump() == before


@pytest.mark.parametrize(("owner", "since", "why"), SINCE)
def test_a_change_while_it_is_undone(
    cell: CellFile,
    sources: Sources,
    tmp_path: Path,
    owner: str,
    since: list[str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the conditions of the statement itself are left then."""
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == owner]
    run(sources, tmp_path / "journal", planned)
    _late(cell, [statement.format(now=ago(0)) for statement in since], monkeypatch)
    (undone,) = undo(journal.read(tmp_path / "journal"), sources)
    assert undone.result is Undone.USED, undone.detail
    assert "was written since" in undone.detail
    assert why not in undone.detail  # not by the checks before


def test_a_virtual_function_that_is_taken_while_its_parent_is_restored(
    cell: CellFile, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sources, tmp_path / "journal", [verdict for verdict in wanted(sources) if verdict["class"] == "I"])
    child = "WHERE address = '0000:05:00.1' AND compute_node_id = (SELECT id FROM compute_nodes WHERE host = 'stopped')"
    sql(cell, f"UPDATE pci_devices SET status = 'available', instance_uuid = NULL {child}")
    _late(cell, [f"UPDATE pci_devices SET status = 'claimed', instance_uuid = 'other' {child}"], monkeypatch)
    (undone,) = undo(journal.read(tmp_path / "journal"), sources)
    assert undone.result is Undone.USED, undone.detail
    assert "was written since" in undone.detail


def _late(cell: CellFile, statements: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make others write after the last check, before the first statement."""
    from gpustack.cleanup import undo as module

    original = module.conditions

    def late(*arguments: object) -> object:
        for statement in statements:
            sql(cell, statement)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "conditions", late)
    monkeypatch.setattr(module, "writing", lambda database: cell.engine.begin())


def test_a_physical_function_is_not_offered_again_beside_a_taken_one(
    cell: CellFile, sources: Sources, tmp_path: Path
) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["class"] == "I"]
    (outcome,) = run(sources, tmp_path / "journal", planned)
    assert outcome.result is apply.Result.REPAIRED
    before = cell.dump()
    (undone,) = undo(journal.read(tmp_path / "journal"), sources)
    assert undone.result is Undone.USED, undone.detail
    assert "0000:05:00.1 belongs to instance vm-i, and 0000:05:00.0 would be offered" in undone.detail
    assert cell.dump() == before
    sql(cell, "UPDATE pci_devices SET status = 'available', instance_uuid = NULL WHERE instance_uuid = 'vm-i'")
    (undone,) = undo(journal.read(tmp_path / "journal"), sources)
    assert undone.result is Undone.RESTORED, undone.detail
