"""Whatever changes between the judgement and the write: nothing is written then."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.base.errors import JournalError
from gpustack.changes import journal
from gpustack.changes.change import ChangeResult
from gpustack.cli.app import main
from gpustack.cli.change import former
from gpustack.novadb import tables
from gpustack.novadb.sources import Sources
from gpustack.repair import apply, permission, plan, rules
from gpustack.repair.evidence import about
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import Selection
from gpustack.repair.repair import Change, changes
from gpustack.repair.verdict import Lingering, Repair, Status, Verdict
from support import neighbourhood
from support.cellfile import CellFile, ago, answering, fill, nova_conf, silent
from support.cleanup_runs import SELECTION, head, results, run, sql, undone, verdict_of, wanted


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell_file)
    nova_conf(tmp_path, {"cell1": cell_file.url})
    return cell_file


@pytest.fixture
def sources(cell: CellFile, tmp_path: Path) -> Sources:
    return Sources.from_nova_conf([tmp_path])


CHANGES = [
    "UPDATE pci_devices SET updated_at = '2026-11-01 00:00:00'",
    "UPDATE pci_devices SET request_id = 'other'",
    "UPDATE pci_devices SET instance_uuid = 'other' WHERE instance_uuid IS NOT NULL",
    "UPDATE pci_devices SET status = 'claimed' WHERE status = 'allocated'",
    "UPDATE instances SET task_state = 'rebuilding'",
    "UPDATE instances SET vm_state = 'resized'",
    "UPDATE migrations SET status = 'pre-migrating'",
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("owner", ["vm-a", "vm-b", "vm-bd", "vm-v", "gone"])
def test_a_change_at_the_last_moment(
    cell: CellFile, sources: Sources, tmp_path: Path, owner: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the last judgement: only the conditions of the statement itself are left."""
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == owner]
    monkeypatch.setattr(permission, "settle", _before(permission.settle, lambda: sql(cell, change)))
    (outcome,) = run(sources, tmp_path / "journal", planned)
    matters = {
        "pci_devices": owner != "vm-b" or "updated_at" not in change,  # there only the migration is written
        "instances": owner != "gone",
        "migrations": owner in ("vm-b", "vm-bd"),
    }
    assert (outcome.result is ChangeResult.SKIPPED) is matters[change.split()[1]], outcome.detail


ELSEWHERE = "0000:99:00.0"
FACTS = {  # what changes at the last moment, and for which classes that matters (fill() has a repair of each)
    "UPDATE compute_nodes SET deleted = 0, deleted_at = NULL": "C",
    "UPDATE compute_nodes SET updated_at = '2026-12-01 00:00:00'": "ABCDEFGHIJ",  # a nova-compute that starts
    "UPDATE services SET last_seen_up = '2026-12-01 00:00:00'": "ABDEFGHIJ",
    "UPDATE services SET deleted = id": "ABDEFGHIJ",
    "UPDATE instances SET host = 'third'": "ABCDFGJ",
    "UPDATE instances SET node = 'third'": "ABCDFGJ",
    "UPDATE instances SET vm_state = 'resized'": "ABCDFGJ",
    "UPDATE instances SET task_state = 'rebuilding'": "ABCDFGJ",
    "UPDATE instances SET deleted = id": "ABCDFGJ",
    "UPDATE migrations SET status = 'pre-migrating'": "B",
    "UPDATE migrations SET deleted = id": "B",
    "UPDATE instance_extra SET pci_requests = '[]'": "ABCDFGJ",
    "INSERT INTO migrations (id, instance_uuid, status, deleted)"
    " SELECT id + 1000, uuid, 'accepted', 0 FROM instances": "ABCDFGJ",
    "INSERT INTO pci_devices (id, compute_node_id, address, status, instance_uuid, deleted)"
    f" SELECT id + 1000, compute_node_id, '{ELSEWHERE}', 'allocated', instance_uuid, 0 FROM pci_devices"
    " WHERE instance_uuid IS NOT NULL": "ABCDEFGJ",
}


GUARDED = ("compute_nodes", "services", "instances", "instance_extra", "migrations", "pci_devices")
"""The tables whose facts the statements of a repair compare."""


@pytest.mark.parametrize(("change", "matters"), FACTS.items(), ids=[change.partition(" = ")[0] for change in FACTS])
def test_every_fact_is_compared_by_the_statement_that_writes(
    cell: CellFile, sources: Sources, tmp_path: Path, change: str, matters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one mechanism for all classes: it does not matter which of the facts a rule looked at."""
    planned = {repair["class"]: repair for repair in reversed(wanted(sources)) if repair["class"] != "P"}
    original = cell.dump()
    assert set(planned) == set("ABCDEFGHIJ")
    repaired = set()
    monkeypatch.setattr(permission, "settle", _before(permission.settle, lambda: sql(cell, change)))
    for klass, repair in planned.items():
        (outcome,) = run(sources, tmp_path / f"journal-{klass}", [repair])
        repaired |= {klass} if outcome.result is ChangeResult.DONE else set()
        restore(cell, original)
    assert repaired == set("ABCDEFGHIJ") - set(matters)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (table, change)
        for change in FACTS
        for table in GUARDED
        # The statement on a migration compares its own row as well.
        if table in change.split()[1:3] and not change.startswith("UPDATE migrations")
    ],
)
def test_a_repair_without_one_of_its_guards_is_noticed(
    cell: CellFile, sources: Sources, tmp_path: Path, table: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant of each guard: it writes although the fact has changed."""
    first = {repair["class"]: repair for repair in reversed(wanted(sources)) if repair["class"] in FACTS[change]}
    conditions = apply.conditions
    without = lambda facts, *more: conditions([fact for fact in facts if fact.table != table], *more)  # noqa: E731
    monkeypatch.setattr(apply, "conditions", without)
    monkeypatch.setattr(permission, "settle", _before(permission.settle, lambda: sql(cell, change)))
    (outcome,) = run(sources, tmp_path / "journal", [min(first.items())[1]])
    assert outcome.result is ChangeResult.DONE, outcome.detail


def _before(function: Callable[..., object], act: Callable[[], object]) -> Callable[..., object]:
    def wrapped(*arguments: object) -> object:
        act()
        return function(*arguments)

    return wrapped


def restore(cell: CellFile, rows: dict[str, list[tuple[object, ...]]]) -> None:
    """Everything as it was."""
    with cell.engine.begin() as connection:
        for name, records in rows.items():
            table = tables.metadata.tables[name]
            connection.execute(table.delete())
            if records:
                names = [column.name for column in table.columns]
                connection.execute(table.insert(), [dict(zip(names, row, strict=True)) for row in records])


def test_a_nova_compute_that_a_watchdog_starts_while_its_host_is_asked(
    cell: CellFile, sources: Sources, tmp_path: Path
) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["stop_service"]]
    before = cell.dump()["pci_devices"]
    answer = answering(sources)

    def ask(host: str) -> Usage:
        sql(cell, f"UPDATE services SET last_seen_up = '{ago(0)}', updated_at = '{ago(0)}' WHERE host = 'stopped'")
        return answer(host)

    outcomes = run(sources, tmp_path / "journal", planned, ask)
    assert {outcome.result for outcome in outcomes} == {ChangeResult.SKIPPED}
    assert cell.dump()["pci_devices"] == before


def test_the_operators_word_for_a_host_is_recorded(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-bd"]
    (outcome,) = run(sources, tmp_path / "first", planned, silent)
    assert outcome.result is ChangeResult.SKIPPED
    declared = replace(SELECTION, gone=frozenset({"old", "new"}))
    (outcome,) = run(sources, tmp_path / "second", planned, silent, declared)
    assert outcome.result is ChangeResult.DONE
    for text in (outcome.detail, (tmp_path / "second").read_text()):
        assert "old: declared gone by the operator (--gone)" in text
        assert "new: declared gone by the operator (--gone)" in text


def test_what_a_guest_uses_is_left(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    before = cell.dump()
    planned = wanted(sources)
    owners = frozenset(repair["instance"] for repair in planned)
    users = {device["address"]: owners for repair in planned for device in repair["devices"]}
    outcomes = run(sources, tmp_path / "journal", planned, answering(sources, users))
    assert {outcome.result for outcome in outcomes} == {ChangeResult.SKIPPED}
    assert cell.dump() == before


@pytest.mark.parametrize("used", ["0000:05:00.0", "0000:05:00.1", "0000:05:00.2"])
@pytest.mark.parametrize("repair", [Repair.FREE, Repair.UNBLOCK])
def test_what_a_relative_keeps_from_being_offered(tmp_path: Path, repair: Repair, used: str) -> None:
    """A guest has the physical function, or a virtual one that stands there as free: the other is not offered then."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    node = cell.host("stopped")
    cell.device(node, "0000:05:00.0", "unavailable", dev_type="type-PF")
    owner = {"instance_uuid": "gone"} if repair is Repair.FREE else {}
    for number in (1, 2):
        status = "allocated" if owner and number == 1 else "available"
        virtual = {"dev_type": "type-VF", "parent_addr": "0000:05:00.0", **(owner if number == 1 else {})}
        cell.device(node, f"0000:05:00.{number}", status, **virtual)
    nova_conf(tmp_path, {"cell1": cell.url})
    sources = Sources.from_nova_conf([tmp_path])
    unblock = frozenset({("stopped", "0000:05:00.0")}) if repair is Repair.UNBLOCK else frozenset()
    selection = replace(SELECTION, unblock=unblock)
    planned = [verdict.to_dict() for verdict in plan.make(sources, selection).repairs]
    assert [entry["repair"] for entry in planned] == [repair]
    before = cell.dump()
    ask = answering(sources, {used: frozenset({"other"})})
    (outcome,) = run(sources, tmp_path / "first", planned, ask, selection)
    assert (outcome.result, cell.dump()) == (ChangeResult.SKIPPED, before)
    (outcome,) = run(sources, tmp_path / "second", planned, selection=selection)
    assert outcome.result is ChangeResult.DONE


def test_a_host_writes_its_addresses_in_small_letters(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("old"), "0000:AF:00.0", "allocated", instance_uuid="gone")
    nova_conf(tmp_path, {"cell1": cell.url})
    sources = Sources.from_nova_conf([tmp_path])
    users = {"0000:af:00.0": frozenset({"other"})}
    (outcome,) = run(sources, tmp_path / "journal", wanted(sources), answering(sources, users))
    assert outcome.result is ChangeResult.SKIPPED


def test_where_guests_run_a_host_that_can_not_be_asked_is_left(
    cell: CellFile, sources: Sources, tmp_path: Path
) -> None:
    outcomes = run(sources, tmp_path / "journal", wanted(sources), silent)
    spared = {verdict_of(o)["class"] for o in outcomes if o.result is ChangeResult.DONE}
    assert spared == set("ACDEG")  # the host is down: nova-compute does the same when it starts
    undecided = [o for o in outcomes if verdict_of(o)["class"] not in spared]
    assert {o.result for o in undecided} == {ChangeResult.SKIPPED}
    assert all("did not answer" in o.detail and "--gone" in o.detail for o in undecided)


@pytest.mark.parametrize("name", ["old", "OLD", "old.example.org"])
def test_an_instance_that_may_be_on_the_host_needs_its_answer(tmp_path: Path, name: str) -> None:
    """Whether nova-compute finds its instance under a name in other letters depends on the database."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    node = cell.host("old")
    cell.device(node, "0000:04:00.0", "allocated", instance_uuid="vm", request_id="r1")
    row = cell.device(node, "0000:03:00.0", "allocated", instance_uuid="vm", request_id="x")
    sql(cell, f"UPDATE pci_devices SET deleted = id WHERE id = {row}")
    cell.instance("vm", name)
    nova_conf(tmp_path, {"cell1": cell.url})
    sources = Sources.from_nova_conf([tmp_path])
    planned = wanted(sources)
    assert [verdict["repair"] for verdict in planned] == [Repair.CLEAR_DELETED]
    (outcome,) = run(sources, tmp_path / "journal", planned, silent)
    assert outcome.result is ChangeResult.SKIPPED


@pytest.mark.parametrize("name", ["old", "OLD", "old.example.org"])
def test_an_instance_that_lacks_a_device_may_use_the_freed_one(tmp_path: Path, name: str) -> None:
    """It has no row that names it, and the database has its host, or only its node, under another name."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("old"), "0000:04:00.0", "allocated", instance_uuid="vm", request_id="x")
    cell.device(cell.host("new"), "0000:04:00.0", "allocated", instance_uuid="vm", request_id="r1")
    cell.instance("vm", "new")
    nova_conf(tmp_path, {"cell1": cell.url})
    sources = Sources.from_nova_conf([tmp_path])
    for lacking in ({"host": name, "node": name}, {"host": "old", "node": name}):
        cell.instance("lacking", **lacking)
        planned = wanted(sources)
        assert [(repair["class"], repair["host"]) for repair in planned] == [("A", "old")]
        (outcome,) = run(sources, tmp_path / "journal", planned, silent)
        assert outcome.result is ChangeResult.SKIPPED
        assert [v.owner for v in plan.make(sources, SELECTION).verdicts if v.klass == "L"] == ["lacking"]
        sql(cell, "DELETE FROM instances WHERE uuid = 'lacking'")
        sql(cell, "DELETE FROM instance_extra WHERE instance_uuid = 'lacking'")
        (tmp_path / "journal").unlink()


@pytest.mark.parametrize("stale", ["0000:05:00.0", "0000:05:00.1"])
def test_a_function_is_not_offered_beside_a_taken_relative(tmp_path: Path, stale: str) -> None:
    """Nova has a physical function unavailable while a virtual one is taken, and vice versa."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    node = cell.host("old")
    for address in ("0000:05:00.0", "0000:05:00.1", "0000:05:00.2"):
        virtual = {"dev_type": "type-VF", "parent_addr": "0000:05:00.0"}
        owner = "vm" if address == stale else "other"
        taken = {"status": "allocated", "instance_uuid": owner, "request_id": "x" if owner == "vm" else "r1"}
        values = {"status": "unavailable"} if address.endswith("2") else taken
        cell.device(node, address, **values, **({"dev_type": "type-PF"} if address.endswith("0.0") else virtual))
    cell.instance("vm", "new", wants=())
    cell.instance("other", "old")
    nova_conf(tmp_path, {"cell1": cell.url})
    sources, before = Sources.from_nova_conf([tmp_path]), cell.dump()
    (outcome,) = run(sources, tmp_path / "journal", wanted(sources), silent)
    assert outcome.result is ChangeResult.DONE
    with cell.engine.connect() as connection:
        query = sa.text("SELECT status, instance_uuid FROM pci_devices WHERE address = :address")
        assert connection.execute(query, {"address": stale}).one() == ("unavailable", None)
    assert not [v for v in plan.make(sources, replace(SELECTION, grace=timedelta(0))).verdicts if v.klass in "HI"]
    assert before != cell.dump()


@pytest.mark.parametrize("service", ["down", "gone"])
def test_nothing_that_needs_a_stop_is_done_without_the_operators_word(
    cell: CellFile, sources: Sources, tmp_path: Path, service: str
) -> None:
    """A nova-compute whose service somebody deleted may run on, with the rows in its memory."""
    if service == "gone":
        sql(cell, "DELETE FROM services WHERE host = 'stopped'")
        assert not [repair for repair in plan.make(sources, Selection()).repairs if repair.host == "stopped"]
    stopped = Selection(stopped=frozenset({"stopped"}) if service == "gone" else frozenset())
    planned = [verdict.to_dict() for verdict in plan.make(sources, stopped).repairs if verdict.stop]
    assert planned
    before = cell.dump()
    outcomes = run(sources, tmp_path / "journal", planned, selection=Selection())
    assert {outcome.result for outcome in outcomes} == {ChangeResult.SKIPPED}
    assert cell.dump() == before
    outcomes = run(sources, tmp_path / "second", planned)
    assert {outcome.result for outcome in outcomes} == {ChangeResult.DONE}


def test_a_ghost_that_a_migration_in_error_pins(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("up", seen=1), "0000:01:00.0", "allocated", instance_uuid="vm", request_id="x")
    cell.instance("vm", "up", deleted=7, deleted_at=ago())
    cell.move("vm", "up", "new", "error")
    nova_conf(tmp_path, {"cell1": cell.url})
    sources, before = Sources.from_nova_conf([tmp_path]), cell.dump()
    planned = [repair for repair in wanted(sources) if repair["class"] == "E"]
    assert [repair["repair"] for repair in planned] == [Repair.FAIL_MIGRATION]
    (outcome,) = run(sources, tmp_path / "journal", planned)
    assert outcome.result is ChangeResult.DONE  # for nova-compute, which frees the row
    (outcome,) = undone(tmp_path / "journal", sources)
    assert (outcome.result, cell.dump()) == (ChangeResult.DONE, before)


def test_undo_leaves_what_was_used_since(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "gone"]
    run(sources, tmp_path / "journal", planned)
    sql(cell, "UPDATE pci_devices SET updated_at = '2026-12-01 00:00:00' WHERE status = 'available'")
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED


def test_undo_when_a_new_row_has_taken_the_place(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    sql(cell, "CREATE UNIQUE INDEX u ON pci_devices (compute_node_id, address, deleted)")
    planned = [verdict for verdict in wanted(sources) if verdict["repair"] == Repair.RETIRE]
    run(sources, tmp_path / "journal", planned)
    (node,) = [row[0] for row in cell.dump()["compute_nodes"] if row[2] == "orphan"]
    cell.device(node, "0000:01:00.0")
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED


def test_undo_when_the_row_was_archived(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "gone"]
    run(sources, tmp_path / "journal", planned)
    sql(cell, "DELETE FROM pci_devices")
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED


def test_a_journal_that_was_cut_short(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    run(sources, tmp_path / "journal", wanted(sources))
    content = (tmp_path / "journal").read_bytes()
    lines = content.splitlines(keepends=True)
    for cut in range(len(lines[0]), len(content), 97):
        (tmp_path / "cut").write_bytes(content[:cut])
        assert len(results(tmp_path / "cut")) <= len(results(tmp_path / "journal"))
    for damaged in (b"", b"nonsense\n", lines[0] + b"{\n" + lines[1], b'{"gpustack_cleanup_journal": 2}\n'):
        (tmp_path / "cut").write_bytes(damaged)
        with pytest.raises(JournalError):
            journal.read(tmp_path / "cut", former())


def test_the_journal_is_its_owners_and_new(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal"
    journal.RunJournal(head(), (), path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(JournalError, match="nothing was changed"):
        journal.RunJournal(head(), (), path)


@pytest.mark.parametrize(
    ("full_from", "message", "result"),
    [
        ("begin", "was not changed", None),
        ("end", "not recorded: class A .left-behind. on old .*: done; nothing else was changed", ChangeResult.DONE),
    ],
)
def test_a_disk_that_is_full(
    cell: CellFile,
    sources: Sources,
    tmp_path: Path,
    full_from: str,
    message: str,
    result: ChangeResult | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message states whether the repair was committed, and undo finds that out too."""
    before, path = cell.dump(), tmp_path / "journal"
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"]
    _full(monkeypatch, full_from)
    with pytest.raises(JournalError, match=message) as caught:
        run(sources, path, planned)
    assert str(tmp_path) in str(caught.value.remedy)
    assert (cell.dump() == before) is (full_from == "begin")
    assert next((outcome.result for outcome in undone(path, sources)), None) is result
    assert cell.dump() == before


@pytest.mark.parametrize("full_from", ["begin", "end"])
def test_a_disk_that_is_full_while_undoing(
    cell: CellFile, sources: Sources, tmp_path: Path, full_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, path = cell.dump(), tmp_path / "journal"
    run(sources, path, [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"])
    repaired, command = cell.dump(), ["cleanup", "undo", str(path), "--config-file", str(tmp_path), "--yes"]
    with monkeypatch.context() as patch:
        _full(patch, full_from)
        assert main(command) == JournalError.exit_code
    assert cell.dump() == (repaired if full_from == "begin" else before)
    assert main(command) == 0
    assert cell.dump() == before


def test_a_disk_that_is_full_when_a_change_came_first(
    cell: CellFile, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"]
    monkeypatch.setattr(permission, "settle", _before(permission.settle, lambda: sql(cell, CHANGES[0])))
    _full(monkeypatch, "end")
    with pytest.raises(JournalError, match=r"not recorded: class A .*: skipped"):
        run(sources, tmp_path / "journal", planned)


def test_a_commit_that_fails_is_read_back(
    cell: CellFile, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite refuses COMMIT while somebody reads: the rows are as before, and the next repair is made."""
    monkeypatch.setattr(apply, "LOCK_TIMEOUT", 0.1)
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"]
    before = cell.dump()
    with cell.engine.connect() as nova:
        nova.exec_driver_sql("BEGIN")
        nova.exec_driver_sql("SELECT * FROM pci_devices").all()
        (outcome,) = run(sources, tmp_path / "journal", planned)
    assert outcome.result is ChangeResult.FAILED
    assert outcome.detail.endswith("read back: the rows are as they were before the repair; nothing was written")
    assert cell.dump() == before
    assert results(tmp_path / "journal") == [ChangeResult.FAILED]
    (again,) = run(sources, tmp_path / "again", planned)
    assert again.result is ChangeResult.DONE


def _full(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Fill the disk when a method of the journal is called: Linux's /dev/full takes the place of the file."""
    original = getattr(journal.RunJournal, method)

    def late(log: journal.RunJournal, *arguments: object, **keywords: object) -> object:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, log._file._stream.fileno())
        os.close(full)
        return original(log, *arguments, **keywords)

    monkeypatch.setattr(journal.RunJournal, method, late)


def test_a_plan_is_judged_afresh(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    """What healed, or changed, since the plan was saved is told, and not touched."""
    planned = wanted(sources)
    sql(cell, "UPDATE pci_devices SET status = 'available', instance_uuid = NULL WHERE instance_uuid = 'vm-a'")
    sql(cell, "UPDATE instances SET task_state = 'rebuilding' WHERE uuid = 'vm-d'")
    outcomes = {verdict_of(o)["instance"]: o.result for o in run(sources, tmp_path / "journal", planned)}
    assert outcomes["vm-a"] is ChangeResult.UNCHANGED
    assert outcomes["vm-d"] is ChangeResult.SKIPPED


def test_the_time_of_a_repair_is_of_whole_seconds(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    run(sources, tmp_path / "journal", wanted(sources))
    for line in (tmp_path / "journal").read_text().splitlines()[1:]:
        for change in json.loads(line).get("payload", {}).get("changes", ()):
            assert "." not in change["new"]["updated_at"]["datetime"]
    assert ago(0).microsecond == 0


# --- the changes of each repair --------------------------------------------------------------------------------------

PF, ONE, TWO = "0000:05:00.0", "0000:05:00.1", "0000:05:00.2"
OWNED = {"status": "allocated", "owner": "vm"}
FREED = {"status": "available", "instance_uuid": None, "request_id": None}
SEEN = {
    "compute_node_id": 1,
    "address": "0000:81:00.0",
    "status": "allocated",
    "instance_uuid": "vm",
    "request_id": "r1",
    "deleted": 0,
    "updated_at": neighbourhood.ago(3600),
}


def physical(**values: object) -> dict[str, object]:
    return {"address": PF, "type": "type-PF", "status": "unavailable", **values}


def virtual(address: str = ONE, **values: object) -> dict[str, object]:
    return {"address": address, "type": "type-VF", "parent": PF, "status": "available", **values}


def written(repair: Repair, rows: list[dict[str, object]], *ids: int, **values: object) -> dict[str, dict[str, Any]]:
    """The changes of a repair of these rows (default: the first one) by table and id, in the order of writing."""
    seen = neighbourhood.view({"rows": rows, "owners": {"vm": {}, "other": {}}})
    verdict = Verdict(
        **about("A", "", seen, neighbourhood.clock({})),
        status=Status.STALE,
        evidence=(),
        because="",
        rows=tuple(seen.rows[number - 1] for number in ids or (1,)),
        repair=repair,
        **values,  # type: ignore[arg-type]
    )
    made = changes(verdict, seen.by_address, neighbourhood.NOW)
    assert {change.new["updated_at"] for change in made} <= {neighbourhood.NOW}
    return {
        f"{change.table} {change.id}": {name: value for name, value in change.new.items() if name != "updated_at"}
        for change in made
    }


@pytest.mark.parametrize(
    ("repair", "new"),
    [
        (Repair.FREE, FREED),
        (Repair.RETIRE, {**FREED, "deleted": 1, "deleted_at": neighbourhood.NOW}),
        (Repair.CLEAR_DELETED, FREED),
        (Repair.UNBLOCK, {"status": "available"}),
        (Repair.BLOCK_PARENT, {"status": "unavailable"}),
        (Repair.CLEAR_OWNER, {"instance_uuid": None, "request_id": None}),
        (Repair.FAIL_MIGRATION, None),
        (Repair.RESTART, None),
    ],
)
def test_each_repair_writes_its_columns(repair: Repair, new: dict[str, object] | None) -> None:
    assert written(repair, [OWNED]) == ({} if new is None else {"pci_devices 1": new})


@pytest.mark.parametrize(
    ("rows", "ids", "status", "others"),
    [
        # A freed physical function offers its virtual ones, and the reverse, as Nova does.
        (
            [physical(**OWNED), virtual(status="unavailable"), virtual(TWO, status="unclaimable")],
            (1,),
            "available",
            (2, 3),
        ),
        ([physical(**OWNED), virtual(status="unavailable", owner="other"), virtual(TWO)], (1,), "available", ()),
        ([physical(**OWNED), virtual(status="unavailable", parent="0000:06:00.0")], (1,), "available", ()),
        ([virtual(**OWNED), physical()], (1,), "available", (2,)),
        ([virtual(**OWNED), physical(status="unclaimable")], (1,), "available", (2,)),
        ([virtual(**OWNED), physical(owner="other")], (1,), "available", ()),
        ([virtual(**OWNED), physical(status="available")], (1,), "available", ()),
        ([virtual(**OWNED), physical(status="removed")], (1,), "available", ()),
        # The physical function is offered with the last of its virtual ones.
        ([virtual(**OWNED), physical(), virtual(TWO, status="allocated", owner="other")], (1,), "available", ()),
        ([virtual(**OWNED), physical(), virtual(TWO, status="claimed", owner="other")], (1,), "available", ()),
        ([virtual(**OWNED), virtual(TWO, **OWNED), physical()], (1,), "available", ()),
        ([virtual(**OWNED), virtual(TWO, **OWNED), physical()], (1, 2), "available", (3,)),
        ([virtual(**OWNED), physical(), virtual(TWO, status="unavailable")], (1,), "available", (2,)),
        # Beside a taken relative, a function is not offered.
        ([virtual(**OWNED), physical(status="allocated", owner="other")], (1,), "unavailable", ()),
        ([physical(**OWNED), virtual(status="claimed", owner="other")], (1,), "unavailable", ()),
        ([physical(**OWNED), virtual(status="allocated", owner="other", deleted=1)], (1,), "available", ()),
        ([physical(**OWNED), {"status": "allocated", "owner": "other"}], (1,), "available", ()),
    ],
)
def test_relatives_of_a_freed_function_are_written_as_nova_writes_them(
    rows: list[dict[str, object]], ids: tuple[int, ...], status: str, others: tuple[int, ...]
) -> None:
    expected = {f"pci_devices {number}": {**FREED, "status": status} for number in ids}
    expected |= {f"pci_devices {number}": {"status": "available"} for number in others}
    assert written(Repair.FREE, rows, *ids) == expected
    if status == "available":  # no other repair touches relatives
        assert written(Repair.UNBLOCK, rows, *ids) == {
            f"pci_devices {number}": {"status": "available"} for number in ids
        }


def test_migrations_are_failed_after_the_rows_were_written() -> None:
    made = written(Repair.FREE, [OWNED], migrations=(7, 8))
    failed = {"migrations 7": {"status": "failed"}, "migrations 8": {"status": "failed"}}
    assert list(made.items()) == [("pci_devices 1", FREED), *failed.items()]
    assert written(Repair.FAIL_MIGRATION, [OWNED], migrations=(7, 8)) == failed


@pytest.mark.parametrize("lingering", [None, "migrating"])
def test_a_change_compares_all_that_was_seen(lingering: str | None) -> None:
    seen = neighbourhood.view({"rows": [{**OWNED, "request": "r1"}], "owners": {"vm": {}}})
    (verdict,) = rules.judge(seen, neighbourhood.clock({}))
    last = None if lingering is None else Lingering(status=lingering, host="gpu2", since=neighbourhood.NOW)
    row, move = changes(replace(verdict, migrations=(7,), lingering=last), {}, neighbourhood.NOW)
    assert (row.table, row.id, row.seen) == ("pci_devices", 1, SEEN)
    assert (move.table, move.id, move.seen) == ("migrations", 7, {"status": lingering or "error", "deleted": 0})


@pytest.mark.parametrize(
    ("table", "seen", "new"),
    [
        ("instances", {}, {"host": "gpu1"}),
        ("pci_devices", {}, {"address": "0000:81:00.0"}),
        ("migrations", {}, {"instance_uuid": "vm"}),
        ("pci_devices", {"no_such_column": 1}, {"status": "available"}),
    ],
)
def test_no_change_writes_other_tables_or_columns(table: str, seen: dict[str, object], new: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no repair writes|has no such columns"):
        Change(table=table, id=1, seen=seen, new=new)


BEFORE = {"id": 1, "uuid": "row", "deleted": 0, "address": PF, "status": "allocated", "instance_uuid": "vm"}


@pytest.mark.parametrize(
    ("new", "current", "reason"),
    [
        ({"status": "available"}, {"status": "claimed"}, ""),
        ({"status": "available"}, {"uuid": "other"}, "pci_devices 1 is of another uuid since (other, was row)"),
        ({"status": "available"}, {"deleted": 1}, "pci_devices 1 was soft-deleted since"),
        ({"deleted": 1}, {"deleted": 1}, ""),
        ({"deleted": 1}, {"deleted": 0}, "pci_devices 1 is of another deleted since (0, was 1)"),
        ({"status": "available"}, {"address": ONE}, f"pci_devices 1 is of another address since ({ONE}, was {PF})"),
    ],
)
def test_another_row_is_not_restored(new: dict[str, object], current: dict[str, object], reason: str) -> None:
    assert Change(table="pci_devices", id=1, seen={}, new=new).other_row(BEFORE, {**BEFORE, **current}) == reason
