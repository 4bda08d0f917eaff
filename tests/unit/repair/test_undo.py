"""What speaks against restoring a row: its owner, its host and other claims are looked at, not the row alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.changes import journal as changes_journal
from gpustack.changes.change import ChangeResult, Ended
from gpustack.cli.app import main
from gpustack.cloud import placement
from gpustack.novadb.sources import Sources
from gpustack.repair import journal, undo
from gpustack.repair.hypervisor import Usage
from gpustack.repair.outcome import Repairing
from gpustack.repair.verdict import Repair
from support.cellfile import CellFile, ago, answering, fill, nova_conf, silence
from support.cleanup_runs import results, run, sql, undoable, undone, wanted


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
OLD = "host = 'old'"
A_ROW = f"{OF_OLD} AND address = '0000:01:00.0'"
REPORTS = "UPDATE services SET last_seen_up = '{now}', updated_at = '{now}' WHERE host = 'old'"


SINCE = [
    ("vm-a", ["UPDATE instances SET deleted = id WHERE uuid = 'vm-a'"], "instance vm-a was deleted since"),
    ("gone", [REPORTS], "is up now"),
    ("vm-a", [REPORTS], "is up now"),
    ("vm-a", ["UPDATE instances SET host = 'old', node = 'old' WHERE uuid = 'vm-a'"], "is on old by now"),
    ("vm-a", ["UPDATE instances SET host = 'OLD', node = 'OLD' WHERE uuid = 'vm-a'"], "with devices of its own"),
    ("vm-a", ["UPDATE instances SET task_state = 'rebuilding' WHERE uuid = 'vm-a'"], "task under way"),
    (
        "vm-b",
        ["UPDATE pci_devices SET status = 'available', instance_uuid = NULL WHERE instance_uuid = 'vm-b'"],
        "0000:01:00.0 on up, which the migration held, is available by now",
    ),
    (
        "vm-b",
        ["UPDATE pci_devices SET instance_uuid = 'other' WHERE instance_uuid = 'vm-b'"],
        "belongs to instance other by now",
    ),
    ("vm-a", [f"UPDATE pci_devices SET deleted = id WHERE {A_ROW}"], "was soft-deleted since"),
    (
        "vm-a",
        [f"UPDATE pci_devices SET product_id = '2204' WHERE {A_ROW}"],
        "of another product_id since (2204, was 11b4)",
    ),
    ("vm-a", [f"UPDATE pci_devices SET created_at = updated_at WHERE {A_ROW}"], "of another created_at since"),
    ("vm-a", [f"UPDATE compute_nodes SET uuid = 'other' WHERE {OLD}"], "this is another database"),
    ("vm-a", [f"UPDATE compute_nodes SET deleted = id WHERE {OLD}"], "compute node old was deleted since"),
    ("vm-a", ["UPDATE instances SET host = 'up', node = 'up' WHERE uuid = 'vm-a'"], "is on up (up), cell cell1 by now"),
    ("vm-c", ["UPDATE instances SET host = 'up', node = 'up' WHERE uuid = 'vm-c'"], "is on up (up), cell cell1 by now"),
    (
        "gone",
        ["INSERT INTO instances (id, uuid, host, node, deleted) VALUES (9999, 'gone', 'new', 'new', 0)"],
        "did not exist at the repair",
    ),
    (
        "vm-v",
        [f"{TAKEN} WHERE dev_type = 'type-PF' AND {OF_OLD}"],
        "0000:05:00.0, a function of the same device, belongs to instance other",
    ),
]
"""The owner of a row, what happened since its repair, and the reason that is given."""


@pytest.mark.parametrize(("owner", "since", "why"), SINCE)
def test_what_was_used_since_is_left(
    cell: CellFile, sources: Sources, tmp_path: Path, owner: str, since: list[str], why: str
) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == owner]
    (outcome,) = run(sources, tmp_path / "journal", planned)
    assert outcome.result is ChangeResult.DONE
    for statement in since:
        sql(cell, statement.format(now=ago(0)))
    before = cell.dump()

    for check in (True, False):
        (outcome,) = undone(tmp_path / "journal", sources, check=check)
        assert outcome.result is ChangeResult.SKIPPED, outcome.detail
        assert why in outcome.detail
        assert cell.dump() == before


def test_nothing_is_restored_while_no_service_reports(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    """Without a current report, a silent nova-compute is not necessarily down: it may run with the freed row."""
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"]
    before = cell.dump()
    run(sources, tmp_path / "journal", planned)
    repaired = cell.dump()["pci_devices"]
    silence(cell)
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED
    assert "nova-compute on old was down at the repair, and is unknown now (no service of this cell" in outcome.detail
    assert cell.dump()["pci_devices"] == repaired
    cell.conductor(0)
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.DONE
    assert cell.dump()["pci_devices"] == before["pci_devices"]


def test_a_soft_deleted_row_is_restored_whatever_its_owner_has_on_the_host(
    cell: CellFile, sources: Sources, tmp_path: Path
) -> None:
    """The owner is on the host with a device of its own, and others use functions at the address of the row."""
    node = cell.host("own")
    cell.device(node, "0000:01:00.0", "allocated", instance_uuid=cell.instance("vm-own", "own"), request_id="r1")
    cell.device(
        node, "0000:02:00.0", "allocated", instance_uuid="vm-own", request_id="x", dev_type="type-PF", deleted=7
    )
    virtual = {"dev_type": "type-VF", "parent_addr": "0000:02:00.0", "request_id": "r1"}
    cell.device(node, "0000:02:00.1", "allocated", instance_uuid=cell.instance("vm-v2", "own"), **virtual)
    before = cell.dump()
    (outcome,) = run(sources, tmp_path / "journal", [v for v in wanted(sources) if v["instance"] == "vm-own"])
    assert outcome.result is ChangeResult.DONE
    for check in (True, False):
        (outcome,) = undone(tmp_path / "journal", sources, check=check)
        assert outcome.result is ChangeResult.DONE, outcome.detail
    assert cell.dump() == before


def test_a_function_that_is_taken_without_an_owner_is_named(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    run(sources, tmp_path / "journal", [v for v in wanted(sources) if v["instance"] == "vm-v"])
    sql(cell, f"UPDATE pci_devices SET status = 'allocated' WHERE dev_type = 'type-PF' AND {OF_OLD}")
    (outcome,) = undone(tmp_path / "journal", sources)
    assert "0000:05:00.0, a function of the same device, is allocated; nothing was restored" in outcome.detail


@pytest.mark.parametrize("first", ["vm-p", "vm-w"])
def test_functions_of_one_device_that_were_both_taken_are_restored(
    cell: CellFile, sources: Sources, tmp_path: Path, first: str
) -> None:
    node = cell.host("both")
    physical = {"dev_type": "type-PF", "instance_uuid": cell.instance("vm-p", "new")}
    cell.device(node, "0000:05:00.0", "allocated", request_id="x", **physical)
    virtual = {"dev_type": "type-VF", "parent_addr": "0000:05:00.0", "instance_uuid": cell.instance("vm-w", "new")}
    cell.device(node, "0000:05:00.1", "allocated", request_id="x", **virtual)
    before = cell.dump()
    planned = [verdict for verdict in wanted(sources) if verdict["host"] == "both"]
    outcomes = run(sources, tmp_path / "journal", sorted(planned, key=lambda one: one["instance"] != first))
    assert [outcome.result for outcome in outcomes] == [ChangeResult.DONE] * 2
    outcomes = undone(tmp_path / "journal", sources)
    assert [outcome.result for outcome in outcomes] == [ChangeResult.DONE] * 2, outcomes
    assert cell.dump() == before


@pytest.mark.parametrize(
    ("table", "column"),
    [("instances", "uuid"), ("instance_extra", "instance_uuid"), ("pci_devices", "instance_uuid")],
)
def test_instances_in_capitals_are_repaired_and_restored(
    cell: CellFile, sources: Sources, tmp_path: Path, table: str, column: str
) -> None:
    """MySQL ignores case, and the rows may have been written by hand or copied from another database."""
    owners = ("vm-a", "vm-b", "vm-bd", "vm-c", "vm-d", "gone")
    sql(cell, f"UPDATE {table} SET {column} = upper({column}) WHERE {column} IN {owners}")
    before = cell.dump()
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] in owners and verdict["class"] != "U"]
    assert planned
    outcomes = run(sources, tmp_path / "journal", planned)
    assert {outcome.result for outcome in outcomes} == {ChangeResult.DONE}, outcomes
    outcomes = undone(tmp_path / "journal", sources)
    assert {outcome.result for outcome in outcomes} == {ChangeResult.DONE}, outcomes
    assert cell.dump() == before


def test_rows_of_a_compute_node_without_a_record_are_restored(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    """Only a database without foreign keys loses the record; nothing is restored if it has come back."""
    record = "(id, host, hypervisor_hostname, uuid, deleted) SELECT compute_node_id, 'back', 'back', 'u', 0"
    sql(cell, "DELETE FROM compute_nodes WHERE host = 'orphan'")
    before = cell.dump()
    planned = [verdict for verdict in wanted(sources) if verdict["class"] == "C"]
    (outcome,) = run(sources, tmp_path / "journal", planned)
    assert outcome.result is ChangeResult.DONE
    with cell.engine.connect() as connection, connection.begin() as transaction:
        row = planned[0]["devices"][0]["id"]
        connection.exec_driver_sql(f"INSERT INTO compute_nodes {record} FROM pci_devices WHERE id = {row}")
        transaction.commit()
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED
    assert "this is another database, or the host was added again" in outcome.detail
    sql(cell, "DELETE FROM compute_nodes WHERE host = 'back'")
    for check in (True, False):
        (outcome,) = undone(tmp_path / "journal", sources, check=check)
        assert outcome.result is ChangeResult.DONE, outcome.detail
    assert cell.dump() == before


@pytest.mark.parametrize("late", [False, True])
def test_another_live_row_at_the_address(
    cell: CellFile, sources: Sources, tmp_path: Path, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova soft-deleted the row and created a new one; both repairs of a row are undone alike."""
    planned = [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"]
    run(sources, tmp_path / "journal", planned)
    columns = "compute_node_id, address, vendor_id, product_id, dev_type"
    row = planned[0]["devices"][0]["id"]
    other = (
        f"INSERT INTO pci_devices (id, status, deleted, {columns}) SELECT 9999, 'available', 0, {columns}"
        f" FROM pci_devices WHERE id = {row}"
    )
    if late:
        _late(cell, [other], monkeypatch)
    else:
        sql(cell, other)
    (outcome,) = undone(tmp_path / "journal", sources)
    written = f"pci_devices {row}, or its owner or host, was written"
    reason = written if late else "row 9999 is the row of 0000:01:00.0 by now"
    assert (outcome.result, outcome.detail) == (
        ChangeResult.SKIPPED,
        f"{reason}; nothing was restored",
    )


def test_a_check_restores_nothing(
    cell: CellFile, sources: Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cell.dump()
    run(sources, tmp_path / "journal", wanted(sources))
    repaired, made = cell.dump(), results(tmp_path / "journal")
    command = ["cleanup", "undo", str(tmp_path / "journal"), "--config-file", str(tmp_path)]
    assert main([*command, "--check"]) == 14  # class I: it would offer a physical function beside a virtual one
    assert capsys.readouterr().err.count(": would be restored: ") == len(made) - 1
    assert cell.dump() == repaired
    outcomes = {outcome.result for outcome in undone(tmp_path / "journal", sources)}
    assert outcomes == {ChangeResult.DONE, ChangeResult.SKIPPED}
    assert undoable(cell) == undoable(cell, before)


def without_origins(path: Path) -> None:
    """Make a journal one of an older gpustack."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.get("payload", {}).pop("origin", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_journal_without_the_origin_knows_whether_the_compute_node_was_deleted(
    cell: CellFile, sources: Sources, tmp_path: Path
) -> None:
    sql(cell, "UPDATE pci_devices SET uuid = 'row-' || id")
    run(sources, tmp_path / "journal", [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"])
    without_origins(tmp_path / "journal")
    sql(cell, f"UPDATE compute_nodes SET deleted = id WHERE {OLD}")
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED
    assert "compute node old was deleted since" in outcome.detail


@pytest.mark.parametrize("owner", ["vm-a", "vm-c", "vm-d", "gone"])
@pytest.mark.parametrize("since", ["", "UPDATE instances SET host = 'up', node = 'up'"])
def test_a_journal_without_the_origin(cell: CellFile, sources: Sources, tmp_path: Path, owner: str, since: str) -> None:
    """An older gpustack did not record it: the rows' uuids and the evidence prove what they can."""
    sql(cell, "UPDATE pci_devices SET uuid = 'row-' || id WHERE address <> '0000:03:00.0'")
    run(sources, tmp_path / "journal", [verdict for verdict in wanted(sources) if verdict["instance"] == owner])
    without_origins(tmp_path / "journal")
    if since:
        sql(cell, f"{since} WHERE uuid = '{owner}'")
    (outcome,) = undone(tmp_path / "journal", sources)
    if owner == "vm-d":  # its row has no uuid
        assert "nothing in it proves that this is the same database" in outcome.detail
    elif since and owner != "gone":
        assert "the journal does not name that place" in outcome.detail
    else:
        assert outcome.result is ChangeResult.DONE, outcome.detail


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
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED, outcome.detail
    assert "or its owner or host, was written" in outcome.detail
    assert why not in outcome.detail  # not by the checks before


def test_a_virtual_function_that_is_taken_while_its_parent_is_restored(
    cell: CellFile, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sources, tmp_path / "journal", [verdict for verdict in wanted(sources) if verdict["class"] == "I"])
    child = "WHERE address = '0000:05:00.1' AND compute_node_id = (SELECT id FROM compute_nodes WHERE host = 'stopped')"
    sql(cell, f"UPDATE pci_devices SET status = 'available', instance_uuid = NULL {child}")
    _late(cell, [f"UPDATE pci_devices SET status = 'claimed', instance_uuid = 'other' {child}"], monkeypatch)
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED, outcome.detail
    assert "or its owner or host, was written" in outcome.detail


@pytest.mark.parametrize(("related", "result"), [(True, ChangeResult.SKIPPED), (False, ChangeResult.DONE)])
def test_a_device_that_is_taken_while_the_migration_of_a_virtual_function_is_restored(
    cell: CellFile,
    sources: Sources,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    related: bool,
    result: ChangeResult,
) -> None:
    """The repair wrote the migration alone; restoring it gives the function to the instance again."""
    (node,) = cell.engine.connect().execute(sa.text("SELECT id FROM compute_nodes WHERE host = 'up'")).scalars()
    parent = cell.device(node, "0000:07:00.0", "unavailable", dev_type="type-PF")
    other = cell.device(node, "0000:08:00.0")
    values = "dev_type = 'type-VF', parent_addr = '0000:07:00.0'"
    sql(cell, f"UPDATE pci_devices SET {values} WHERE instance_uuid = 'vm-b'")
    (outcome,) = run(sources, tmp_path / "journal", [one for one in wanted(sources) if one["instance"] == "vm-b"])
    assert outcome.result is ChangeResult.DONE
    _late(cell, [f"{TAKEN} WHERE id = {parent if related else other}"], monkeypatch)
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is result, outcome.detail
    assert ("or its owner or host, was written" in outcome.detail) is related


def _late(cell: CellFile, statements: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make others write after the last check, before the first statement."""
    original = undo.conditions

    def late(*arguments: object) -> object:
        for statement in statements:
            sql(cell, statement)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(undo, "conditions", late)
    monkeypatch.setattr(undo, "writing", lambda database: cell.engine.begin())


def test_a_physical_function_is_not_offered_again_beside_a_taken_one(
    cell: CellFile, sources: Sources, tmp_path: Path
) -> None:
    planned = [verdict for verdict in wanted(sources) if verdict["class"] == "I"]
    (outcome,) = run(sources, tmp_path / "journal", planned)
    assert outcome.result is ChangeResult.DONE
    before = cell.dump()
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED, outcome.detail
    assert "0000:05:00.1 belongs to instance vm-i, and 0000:05:00.0 would be offered" in outcome.detail
    assert cell.dump() == before
    sql(cell, "UPDATE pci_devices SET status = 'available', instance_uuid = NULL WHERE instance_uuid = 'vm-i'")
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.DONE, outcome.detail


def repaired_entry(sources: Sources, path: Path) -> journal.JournalEntry:
    """The record of the repair of vm-a's device."""
    run(sources, path, [verdict for verdict in wanted(sources) if verdict["instance"] == "vm-a"])
    (payload,) = changes_journal.read(path).payloads.values()
    return journal.entry(payload or {})


def test_an_undo_is_recorded_before_it_is_committed(cell: CellFile, sources: Sources, tmp_path: Path) -> None:
    cell.device(cell.host("old", deleted=True), "0000:77:00.0")  # it was reinstalled: another compute node
    before = cell.dump()
    entry = repaired_entry(sources, tmp_path / "journal")
    repaired, recorded = cell.dump(), []

    def begin(payload: object) -> None:
        assert cell.dump() == repaired
        recorded.append(payload)

    api = Repairing(sources=sources)
    checked = undo.undo_repair(entry, api, None)
    assert (checked.result, checked.detail) == (ChangeResult.DONE, "would be restored: 1 row as before the repair")
    ended = undo.undo_repair(entry, api, begin)
    assert (ended.result, ended.detail) == (ChangeResult.DONE, "the rows are as they were before the repair")
    assert recorded == [{"rows": [f"pci_devices {entry.changes[0].id}"]}]
    assert cell.dump() == before
    again = undo.undo_repair(entry, api, lambda payload: pytest.fail(f"{payload} was recorded"))
    assert (again.result, again.detail) == (ChangeResult.UNCHANGED, "the rows are as they were before the repair")


@pytest.mark.parametrize(
    ("commit", "result", "detail"),
    [
        (Ended(ChangeResult.DONE, "read back"), ChangeResult.DONE, "the rows are as they were before the repair"),
        (Ended(ChangeResult.FAILED, "refused"), ChangeResult.FAILED, "refused; nothing was restored"),
        (Ended(ChangeResult.UNKNOWN, "lost"), ChangeResult.UNKNOWN, "lost"),
    ],
)
def test_an_undo_ends_as_its_commit(
    sources: Sources,
    tmp_path: Path,
    commit: Ended,
    result: ChangeResult,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    entry = repaired_entry(sources, tmp_path / "journal")
    monkeypatch.setattr(undo, "committed", lambda *_, undone: asked.append(undone) or commit)
    ended = undo.undo_repair(entry, Repairing(sources=sources), lambda payload: None)
    assert (ended.result, ended.detail) == (result, detail)
    assert asked == [True]


# --- both hosts of a migration ----------------------------------------------------------------------------------------

Leak = tuple[str, str, Repair, str]
"""The class, host and repair of a verdict, and another device that its migration holds (address and host)."""
LEAKS: tuple[Leak, ...] = (
    ("B", "old", Repair.FREE, "0000:02:00.0 on new"),
    ("B", "new", Repair.FAIL_MIGRATION, "0000:01:00.0 on old"),
    ("E", "up", Repair.FAIL_MIGRATION, "0000:03:00.0 on new"),
    ("E", "up", Repair.FAIL_MIGRATION, "0000:04:00.0 on up"),
    ("A", "destination", Repair.FAIL_MIGRATION, "0000:01:00.0 on up"),
    ("A", "destination", Repair.FAIL_MIGRATION, "0000:03:00.0 on destination"),
)
CHANGES = (
    ("status = 'available', instance_uuid = NULL, request_id = NULL", "is available by now"),
    ("instance_uuid = 'other'", "belongs to instance other by now"),
    ("request_id = 'other'", "has request_id other (not x) by now"),
    ("status = 'unavailable'", "has status unavailable (not allocated) by now"),
    ("deleted = id", "has no row by now"),
)


@pytest.fixture
def moves(tmp_path: Path) -> CellFile:
    """Migrations with devices on both hosts: of an instance that was evacuated since, a deleted one, a power cut."""
    made = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    old, new, up, destination = (
        made.host("old"),
        made.host("new", seen=1),
        made.host("up", seen=1),
        made.host("destination", seen=1),
    )
    made.instance("vm-b", "third")
    made.device(made.host("third", seen=1), "0000:05:00.0", "allocated", instance_uuid="vm-b", request_id="r1")
    made.move("vm-b", "old", "new", "error")
    made.instance("vm-e", "up", deleted=7, deleted_at=ago())
    made.move("vm-e", "up", "new", "error")
    made.instance("vm-s", "up", wants=("x",), updated_at=ago(9000))
    made.move("vm-s", "up", "destination", "migrating", updated_at=ago(9000))
    for node, address, owner in (
        (old, "0000:01:00.0", "vm-b"),
        (new, "0000:02:00.0", "vm-b"),
        (up, "0000:04:00.0", "vm-e"),
        (up, "0000:02:00.0", "vm-e"),
        (new, "0000:03:00.0", "vm-e"),
        (up, "0000:01:00.0", "vm-s"),
        (destination, "0000:02:00.0", "vm-s"),
        (destination, "0000:03:00.0", "vm-s"),
    ):
        made.device(node, address, "allocated", instance_uuid=owner, request_id="x", updated_at=ago(9000))
    nova_conf(tmp_path, {"cell1": made.url})
    return made


def repaired(moves: CellFile, tmp_path: Path, leak: Leak) -> tuple[Sources, str]:
    """Carry out the first repair of a leak; the sources, and the condition for the row of the other device."""
    klass, host, repair, other = leak
    sources = Sources.from_nova_conf([tmp_path])
    planned = next(
        one for one in wanted(sources) if (one["class"], one["host"], one["repair"]) == (klass, host, repair)
    )
    address, _on, its_host = other.split()
    assert (host, address) not in {(planned["host"], device["address"]) for device in planned["devices"]}
    (outcome,) = run(sources, tmp_path / "journal", [planned], restarted(sources))
    assert outcome.result is ChangeResult.DONE, outcome
    node = f"(SELECT id FROM compute_nodes WHERE host = '{its_host}')"
    return sources, f"WHERE address = '{address}' AND compute_node_id = {node}"


def restarted(sources: Sources) -> Callable[[str], Usage]:
    """All hosts answer that their nova-compute has just started."""
    answer = answering(sources)
    return lambda host: replace(answer(host), age=timedelta(0))


@pytest.mark.parametrize(
    ("leak", "change"), [*((LEAKS[0], change) for change in CHANGES), *((leak, CHANGES[1]) for leak in LEAKS[1:])]
)
def test_both_hosts_of_a_migration_are_compared(
    moves: CellFile, tmp_path: Path, leak: Leak, change: tuple[str, str]
) -> None:
    new, why = change
    sources, other = repaired(moves, tmp_path, leak)
    sql(moves, f"UPDATE pci_devices SET {new} {other}")
    before = moves.dump()
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED, outcome.detail
    assert f"{leak[3]}, which the migration held, {why}" in outcome.detail
    assert moves.dump() == before


@pytest.mark.parametrize("leak", LEAKS[:2])
def test_both_hosts_of_a_migration_are_compared_by_the_statement_that_writes(
    moves: CellFile, tmp_path: Path, leak: Leak, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, other = repaired(moves, tmp_path, leak)
    _late(moves, [f"UPDATE pci_devices SET {CHANGES[1][0]} {other}"], monkeypatch)
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED, outcome.detail
    assert "or its owner or host, was written" in outcome.detail


@pytest.mark.parametrize("leak", LEAKS)
def test_a_migration_is_restored_if_both_hosts_are_unchanged(moves: CellFile, tmp_path: Path, leak: Leak) -> None:
    before = moves.dump()
    sources, _other = repaired(moves, tmp_path, leak)
    assert moves.dump() != before
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.DONE, outcome.detail
    assert moves.dump() == before


def test_devices_of_a_third_host_are_not_the_migrations(moves: CellFile, tmp_path: Path) -> None:
    sources, _other = repaired(moves, tmp_path, LEAKS[0])
    sql(moves, "UPDATE pci_devices SET status = 'claimed' WHERE address = '0000:05:00.0'")
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.DONE, outcome.detail


@pytest.mark.parametrize("leak", LEAKS[:2])
def test_a_journal_without_the_devices_of_both_hosts(moves: CellFile, tmp_path: Path, leak: Leak) -> None:
    """Older versions did not record them: nothing shows that they are unchanged."""
    sources, _other = repaired(moves, tmp_path, leak)
    lines = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    del lines[1]["payload"]["held"]
    (tmp_path / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = moves.dump()
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is ChangeResult.SKIPPED, outcome.detail
    assert "does not record the devices on both hosts" in outcome.detail
    assert f"gpustack cleanup explain {lines[1]['payload']['verdict']['instance']}" in outcome.detail
    assert moves.dump() == before


@pytest.mark.parametrize(
    ("owner", "mapped", "result"),
    [
        ("vm-a", 1, ChangeResult.DONE),
        ("vm-a", None, ChangeResult.DONE),
        ("vm-a", 2, ChangeResult.SKIPPED),  # a move into the other cell may have ended
        ("gone", None, ChangeResult.DONE),
        ("gone", 2, ChangeResult.SKIPPED),
        ("moved", 2, ChangeResult.SKIPPED),
    ],
)
def test_a_cell_that_cannot_be_read_matters_only_to_its_own_instances(
    cell: CellFile, tmp_path: Path, owner: str, mapped: int | None, result: ChangeResult
) -> None:
    """The instance ``moved`` was in the other cell at the repair, and ``gone`` nowhere."""
    second = CellFile(f"sqlite:///{tmp_path}/second.sqlite")
    second.instance("moved", "new")
    cell.device(cell.host("old2"), "0000:09:00.0", "allocated", instance_uuid="moved", request_id="x")
    (tmp_path / "api.sqlite").unlink()
    nova_conf(tmp_path, {"cell1": cell.url, "cell2": second.url})
    sources, before = Sources.from_nova_conf([tmp_path]), cell.dump()
    (outcome,) = run(sources, tmp_path / "journal", [v for v in wanted(sources) if v["instance"] == owner])
    assert outcome.result is ChangeResult.DONE, outcome.detail
    if mapped:
        with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql(f"INSERT INTO instance_mappings VALUES (1, '{owner}', {mapped})")
    (tmp_path / "second.sqlite").unlink()
    (outcome,) = undone(tmp_path / "journal", sources)
    assert outcome.result is result, outcome.detail
    assert ("it may be in cell cell2" in outcome.detail) is (result is ChangeResult.SKIPPED)
    assert (cell.dump() == before) is (result is ChangeResult.DONE)


@pytest.mark.parametrize(("others", "why"), [(1, "host old"), (2, "every mapped host of the database")])
def test_nothing_is_restored_in_a_database_that_may_be_another_cells(
    cell: CellFile, tmp_path: Path, others: int, why: str
) -> None:
    """The connections of two cells were exchanged since: the mapping of the host names the other one.

    :param others: the cell to which the other hosts are mapped.
    """
    second = CellFile(f"sqlite:///{tmp_path}/second.sqlite")
    (tmp_path / "api.sqlite").unlink()
    nova_conf(tmp_path, {"cell1": cell.url, "cell2": second.url})
    sources = Sources.from_nova_conf([tmp_path])
    entry = repaired_entry(sources, tmp_path / "journal")
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(f"INSERT INTO host_mappings VALUES (1, 'old', 2), (2, 'up', {others})")
    repaired = cell.dump()
    ended = undo.undo_repair(entry, Repairing(sources=sources), lambda payload: None)
    assert ended.result is ChangeResult.SKIPPED
    assert why in ended.detail
    assert cell.dump() == repaired


@pytest.mark.parametrize(
    ("cells", "database", "name", "expected"),
    [
        ({"cell1": "u1", "cell2": "u2"}, "u2", "cell2", "cell2"),
        ({"cell1": "u1", "renamed": "u2"}, "u2", "cell2", "renamed"),
        ({"cell1": "u1", "cell2": "u2"}, "u3", "cell2", None),
        ({"a": "", "b": ""}, "", "b", "b"),  # named by --db-url
        ({"a": ""}, "", "b", None),
        ({"cell1": "u1"}, "", "cell1", None),
        ({"cell1": ""}, "u1", "cell1", None),
    ],
)
def test_a_repair_is_undone_in_its_own_database(
    cells: dict[str, str], database: str, name: str, expected: str | None
) -> None:
    entry: Any = SimpleNamespace(database=database, cell=name)
    named: Any = [SimpleNamespace(name=one, uuid=uuid) for one, uuid in cells.items()]
    found = undo._cell_of(entry, named)
    assert (found and found.name) == expected


BEFORE = {
    "allocations": {"node": {"resources": {"VCPU": 1}}, "gpu": {"resources": {"CUSTOM_GPU": 1}}},
    "consumer_generation": 3,
    "project_id": "p",
    "user_id": "u",
}


@pytest.mark.parametrize(
    ("row", "host", "result", "why"),
    [
        ({}, "gpu1", ChangeResult.DONE, "as it was before"),
        ({"status": "allocated", "instance_uuid": "vm"}, "gpu1", ChangeResult.SKIPPED, "belongs to instance vm"),
        ({"status": "claimed", "instance_uuid": "other"}, "gpu1", ChangeResult.SKIPPED, "belongs to instance other"),
        ({"status": "allocated", "instance_uuid": "before"}, "gpu1", ChangeResult.DONE, "as it was before"),
        ({"address": "0000:99:00.0"}, "gpu1", ChangeResult.SKIPPED, "gpu1 has no row of 0000:09:00.0"),
        ({}, "gone", ChangeResult.SKIPPED, "no compute node gone"),
    ],
)
def test_no_allocation_of_a_gpu_whose_row_names_another_instance(
    cell: CellFile,
    sources: Sources,
    row: dict[str, str],
    host: str,
    result: ChangeResult,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Placement has it free until nova-compute's next periodic. Placement is replaced by its last answer."""
    cell.device(cell.host("gpu1", deleted=True), "0000:09:00.0", "allocated", instance_uuid="older")
    node = cell.host("gpu1", seen=3)
    cell.device(node, **{"address": "0000:09:00.0", **row})
    other = cell.insert("compute_nodes", host="gpu1", hypervisor_hostname="bare-metal", uuid="other")
    cell.device(other, "0000:09:00.0", "allocated", instance_uuid="another")
    rest = {"allocations": {"node": BEFORE["allocations"]["node"]}, "consumer_generation": 4}  # type: ignore[index]
    written: list[object] = []
    monkeypatch.setattr(placement, "allocations_of", lambda *_: {**BEFORE, **rest})
    monkeypatch.setattr(placement, "put", lambda *arguments: written.append(arguments) or True)
    entry = journal.JournalEntry(
        cell=sources.cells[0].name,
        database=str(sources.cells[0].uuid),
        verdict={"host": host, "node": host, "instance": "vm", "allocation": {"addresses": "0000:09:00.0"}},
        changes=[],
        before=(),
        allocation={"consumer": "vm", "provider": "gpu", "before": BEFORE},
        origin={"node_id": node, "node_uuid": None, "node_deleted": False, "owner": None, "users": ["before"]},
    )

    api = Repairing(sources=sources, cloud=object())  # type: ignore[arg-type]
    ended = undo.undo_repair(entry, api, lambda payload: None)

    assert ended.result is result, ended.detail
    assert why in ended.detail
    assert bool(written) is (result is ChangeResult.DONE)


def test_a_row_of_a_deleted_compute_node_without_a_host_is_retired_and_restored(tmp_path: Path) -> None:
    """Nova wrote no host before Liberty."""
    cell, path = CellFile(f"sqlite:///{tmp_path}/cell.sqlite"), tmp_path / "journal"
    cell.conductor(5)
    cell.device(cell.host("old", deleted=True), "0000:01:00.0", "allocated", instance_uuid="gone", request_id="r")
    sql(cell, "UPDATE compute_nodes SET host = NULL")
    sources, before = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})]), cell.dump()
    assert [outcome.result for outcome in run(sources, path, wanted(sources))] == [ChangeResult.DONE]
    assert cell.dump() != before
    assert [outcome.result for outcome in undone(path, sources)] == [ChangeResult.DONE]
    assert cell.dump() == before
