"""One repair: the ends without a write, the record before the write, a lost answer to COMMIT, and the wait for Nova."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from gpustack.base.errors import DatabaseError
from gpustack.changes.change import ChangeResult, Ended
from gpustack.novadb import databases
from gpustack.novadb.sources import Sources
from gpustack.repair import apply, permission, plan
from gpustack.repair.apply import carry_out_repair
from gpustack.repair.hypervisor import Usage
from gpustack.repair.outcome import Repairing
from gpustack.repair.plan import Selection
from gpustack.repair.repair import Change
from gpustack.repair.verdict import PlannedVerdict, Repair, Seen
from support.cellfile import CellFile, ago, answering, nova_conf
from support.cleanup_runs import sql

GPU = "0000:01:00.0"
PLAIN = Selection()
TASK = "UPDATE instances SET task_state = 'rebuilding', updated_at = '{now}'"
FREED = "UPDATE pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL"


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    """A cell with a device on old, which is down, of an instance on new, and one on up that a migration holds."""
    made = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for host, uuid in (("old", "vm"), ("up", "vm-b")):
        node = made.host(host, seen=1 if host == "up" else 864000)
        made.instance(uuid, "new", updated_at=ago(500))
        made.device(node, GPU, "allocated", instance_uuid=uuid, request_id="x", updated_at=ago(500))
    made.move("vm-b", "up", "new", "error")
    nova_conf(tmp_path, {"cell1": made.url})
    return made


@pytest.fixture
def sources(cell: CellFile, tmp_path: Path) -> Sources:
    return Sources.from_nova_conf([tmp_path])


def planned(sources: Sources, owner: str | None = "vm", selection: Selection = PLAIN) -> PlannedVerdict:
    (verdict,) = (verdict for verdict in plan.make(sources, selection).repairs if verdict.owner == owner)
    return verdict.to_dict()


def carry_out(
    sources: Sources,
    verdict: PlannedVerdict,
    ask: Callable[[str], Usage] | None = None,
    selection: Selection = PLAIN,
    begin: Callable[[Any], object] = lambda payload: None,
) -> Ended:
    api = Repairing(sources=sources, selection=selection, ask=ask or answering(sources))
    return carry_out_repair(verdict, api, begin)


def write(cell: CellFile, statement: str) -> None:
    """Carry out a statement with the time 45 seconds from now, which leaves a slow test some."""
    sql(cell, statement.format(now=ago(-45)))


def state(cell: CellFile) -> set[tuple[object, ...]]:
    """Addresses, statuses and owners of all devices, and statuses of all migrations."""
    with cell.engine.connect() as connection:
        devices = connection.exec_driver_sql("SELECT address, status, instance_uuid FROM pci_devices").all()
        moves = connection.exec_driver_sql("SELECT 'migration', status FROM migrations").all()
        return {tuple(row) for row in (*devices, *moves)}


def test_a_repair_is_recorded_before_it_is_committed(cell: CellFile, sources: Sources) -> None:
    before, recorded = state(cell), []

    def begin(payload: Mapping[str, Any]) -> None:
        assert state(cell) == before
        impatient = sa.create_engine(cell.url, poolclass=sa.NullPool, connect_args={"timeout": 0})
        with impatient.connect() as other, pytest.raises(OperationalError, match="locked"):
            other.exec_driver_sql(TASK)
        recorded.append(payload)

    other = Selection(instance="another", classes=frozenset("B"), hosts=frozenset({"third"}))
    ended = carry_out(sources, planned(sources), selection=other, begin=begin)
    witness = "old: no guest uses a device that may become free"
    assert (ended.result, ended.detail) == (ChangeResult.DONE, f"written; {witness}")
    assert state(cell) == before - {(GPU, "allocated", "vm")} | {(GPU, "available", None)}
    (payload,) = recorded
    assert payload["witness"] == witness
    (row,), (change,) = payload["before"], payload["changes"]
    assert (row["instance_uuid"], row["label"]) == ("vm", "label_10de_11b4")
    assert datetime.fromisoformat(change["new"]["updated_at"]["datetime"]).microsecond == 0


def test_a_failed_migration_is_named_as_such(cell: CellFile, sources: Sources) -> None:
    before = state(cell)
    verdict = planned(sources, "vm-b")
    assert verdict["repair"] == Repair.FAIL_MIGRATION
    ended = carry_out(sources, verdict)
    assert (ended.result, ended.detail.partition("; ")[0]) == (ChangeResult.DONE, "migration set to failed")
    assert state(cell) == before - {("migration", "error")} | {("migration", "failed")}


def test_each_repair_is_judged_by_its_own_rows(cell: CellFile, sources: Sources) -> None:
    """Another verdict of the same class, host and instance comes first."""
    (first,) = (verdict for verdict in plan.make(sources, PLAIN).repairs if verdict.owner == "vm")
    other = {"instance_uuid": "vm", "request_id": "x", "updated_at": ago(500)}
    cell.device(first.rows[0].compute_node_id, "0000:02:00.0", "allocated", **other)
    second = plan.make(sources, PLAIN).repairs[1].to_dict()
    (device,) = second["devices"]
    assert carry_out(sources, second).result is ChangeResult.DONE
    assert (device["address"], "available", None) in state(cell)


def test_rows_whose_compute_node_does_not_exist_are_repaired(cell: CellFile, sources: Sources) -> None:
    cell.device(777, "0000:07:00.0", "allocated", instance_uuid="gone", request_id="x")
    verdict = planned(sources, "gone")
    assert (verdict["host"], verdict["repair"]) == ("", Repair.RETIRE)
    assert carry_out(sources, verdict).result is ChangeResult.DONE


@pytest.mark.parametrize(
    ("change", "result", "detail"),
    [
        (FREED, ChangeResult.UNCHANGED, "nothing is wrong any more"),
        (TASK, ChangeResult.SKIPPED, "{moment}; now it is protected: instance vm has a task under way (rebuilding)"),
        (
            "UPDATE services SET last_seen_up = '{now}', updated_at = '{now}' WHERE host = 'old'",
            ChangeResult.UNCHANGED,
            "nova-compute is up, and frees the row in its next periodic (60 seconds)",
        ),
        (
            "UPDATE pci_devices SET instance_uuid = 'gone' WHERE instance_uuid = 'vm'",
            ChangeResult.SKIPPED,
            "{moment}; now it is stale: no cell has",
        ),
    ],
    ids=["freed", "work", "up", "another owner"],
)
def test_a_repair_whose_verdict_changed_is_not_made(
    cell: CellFile, sources: Sources, change: str, result: ChangeResult, detail: str
) -> None:
    verdict = planned(sources)
    original = cell.dump()

    def ask(host: str) -> Usage:
        write(cell, change)
        return answering(sources)(host)

    while_asked = carry_out(sources, verdict, ask, begin=pytest.fail)
    assert while_asked.result is result
    assert while_asked.detail.startswith(detail.format(moment="changed while the hosts were asked"))
    assert cell.dump() != original
    earlier = carry_out(sources, verdict, lambda host: pytest.fail(f"{host} was asked"), begin=pytest.fail)
    assert earlier.result is result
    assert earlier.detail.startswith(detail.format(moment="changed since the plan"))


def test_a_repair_in_a_cell_that_is_not_named_is_skipped(sources: Sources) -> None:
    ended = carry_out(sources, {**planned(sources), "cell": "another"})
    assert ended.detail == "cell another is not among the named databases; nothing was written"
    assert ended.result is ChangeResult.SKIPPED


def test_an_allocation_is_not_looked_for_among_rows(sources: Sources) -> None:
    ended = carry_out(sources, {**planned(sources), "repair": Repair.UNSET_ALLOCATION})
    assert (ended.result, ended.detail) == (ChangeResult.SKIPPED, "Placement is not named: add --os-cloud")


def test_a_device_in_use_is_not_freed(cell: CellFile, sources: Sources) -> None:
    before = cell.dump()
    ended = carry_out(sources, planned(sources), answering(sources, {GPU: frozenset({"other"})}))
    assert ended.result is ChangeResult.SKIPPED
    assert ended.detail.startswith(f"report: the hypervisor of old reports {GPU} in use by other; settle")
    assert cell.dump() == before


def test_a_repair_that_needs_a_stop_waits_for_the_operator(cell: CellFile, sources: Sources) -> None:
    cell.device(cell.host("stopped"), "0000:09:00.0", "available", instance_uuid="gone")
    stopped = Selection(stopped=frozenset({"stopped"}))
    verdict = planned(sources, "gone", stopped)
    ended = carry_out(sources, verdict, lambda host: pytest.fail(f"{host} was asked"))
    assert ended.result is ChangeResult.SKIPPED
    assert ended.detail == "stop nova-compute on stopped first, then add --stopped stopped"
    assert carry_out(sources, verdict, selection=stopped).result is ChangeResult.DONE


@pytest.mark.parametrize("pools", [False, True])
def test_nova_compute_is_restarted_by_a_person(cell: CellFile, sources: Sources, pools: bool) -> None:
    """Also for a verdict without rows: on the pools of the scheduler."""
    if pools:
        sql(cell, 'UPDATE compute_nodes SET pci_stats = \'{"nova_object.data": {"objects": []}}\'')
        node = cell.host("third", seen=1)
        cell.device(node, "0000:09:00.0")
        cell.device(node, "0000:0a:00.0", "removed")  # a verdict of its own, with the same repair
    else:
        cell.device(cell.host("third", seen=1), "0000:09:00.0", "allocated")
    (verdict,) = (v for v in plan.make(sources, Selection()).repairs if v.klass == ("P" if pools else "J"))
    ended = carry_out(sources, verdict.to_dict(), begin=pytest.fail)
    assert ended.result is ChangeResult.SKIPPED
    assert ended.detail.startswith("restart nova-compute on third; instances keep running. third: no guest uses")


CHILD = (
    "INSERT INTO pci_devices (id, compute_node_id, address, status, parent_addr, vendor_id, product_id, dev_type,"
    f" deleted) SELECT 900, compute_node_id, '0000:01:00.1', 'unavailable', '{GPU}', '10de', '11b4', 'type-VF', 0"
    " FROM pci_devices WHERE instance_uuid = 'vm'"
)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (CHILD, "a related function changed since the hosts were asked; nothing was written"),
        (
            "DELETE FROM pci_devices WHERE instance_uuid = 'vm'",
            "a row is gone since it was judged; nothing was written",
        ),
        (
            "UPDATE pci_devices SET request_id = 'y' WHERE instance_uuid = 'vm'",
            "pci_devices {id}, or what its verdict rests on, changed meanwhile; nothing was written",
        ),
        (TASK, "pci_devices {id}, or what its verdict rests on, changed meanwhile; nothing was written"),
    ],
    ids=["related", "gone", "row", "fact"],
)
def test_a_change_after_the_last_judgement_stops_the_repair(
    cell: CellFile, sources: Sources, change: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = planned(sources)
    settle = permission.settle
    monkeypatch.setattr(permission, "settle", lambda *arguments: (write(cell, change), settle(*arguments))[1])
    ended = carry_out(sources, verdict)
    assert (ended.result, ended.detail) == (ChangeResult.SKIPPED, detail.format(id=verdict["devices"][0]["id"]))
    assert (GPU, "available", None) not in state(cell)


def test_all_rows_of_a_repair_are_written_or_none(
    cell: CellFile, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second statement changes no row: the first one is rolled back."""
    parent = {"dev_type": "type-PF", "address": "0000:05:00.0"}
    node = cell.host("third")
    cell.device(node, status="unavailable", **parent)  # type: ignore[arg-type]
    virtual = {"dev_type": "type-VF", "parent_addr": "0000:05:00.0", "instance_uuid": "gone", "request_id": "x"}
    cell.device(node, "0000:05:00.1", "allocated", **virtual)
    before = cell.dump()
    statements = apply.statements

    def second_fails(*arguments: Any) -> list[sa.Update]:
        first, last = statements(*arguments)
        return [first, last.where(sa.false())]

    with monkeypatch.context() as patched:
        patched.setattr(apply, "statements", second_fails)
        ended = carry_out(sources, planned(sources, "gone"))
    assert ended.result is ChangeResult.SKIPPED
    assert cell.dump() == before
    assert carry_out(sources, planned(sources, "gone")).result is ChangeResult.DONE
    assert {("0000:05:00.0", "available", None), ("0000:05:00.1", "available", None)} <= state(cell)


# --- a lost answer to COMMIT -----------------------------------------------------------------------------------------


class Losing:
    """A connection that loses the answer to its COMMIT.

    :ivar commits: whether the database carries it out.
    """

    def __init__(self, connection: sa.Connection, *, commits: bool) -> None:
        self._connection, self.commits = connection, commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        if self.commits:
            self._connection.commit()
        raise OperationalError("COMMIT", {}, Exception("server has gone away"))


BACK = "UPDATE pci_devices SET status = 'allocated', instance_uuid = 'vm'"
NEW = {"status": "available", "instance_uuid": None}


def lost(cell: CellFile, sources: Sources, *, commits: bool, undone: bool = False, meanwhile: str = "") -> Ended:
    """The end of a transaction that frees both devices, and whose answer to COMMIT is lost."""
    database = sources.cells[0].database
    with cell.engine.connect() as connection:
        before = [dict(row) for row in connection.exec_driver_sql("SELECT * FROM pci_devices").mappings()]
    changes = [Change(table="pci_devices", id=row["id"], seen={}, new=NEW) for row in before]
    with apply.writing(database) as connection:
        for change in changes:
            connection.execute(change.statement([]))
        losing = Losing(connection, commits=commits)
        losing.invalidate = lambda: (connection.invalidate(), meanwhile and sql(cell, meanwhile))
        return apply.committed(losing, database, changes, before, undone=undone)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("commits", "undone", "result", "rows"),
    [
        (True, False, ChangeResult.DONE, "as the repair writes them"),
        (False, False, ChangeResult.FAILED, "as they were before the repair"),
        (True, True, ChangeResult.FAILED, "as the repair writes them"),
        (False, True, ChangeResult.DONE, "as they were before the repair"),
    ],
)
def test_a_lost_answer_is_settled_by_the_rows(
    cell: CellFile, sources: Sources, commits: bool, undone: bool, result: ChangeResult, rows: str
) -> None:
    ended = lost(cell, sources, commits=commits, undone=undone)
    assert (ended.result, ended.lost) == (result, None)
    assert ended.detail.startswith("the answer to COMMIT was lost (")
    assert ended.detail.endswith(f"; read back: the rows are {rows}")


@pytest.mark.parametrize(
    "meanwhile",
    [
        "UPDATE pci_devices SET status = 'claimed'",
        "DELETE FROM pci_devices",
        f"{BACK} WHERE id = (SELECT min(id) FROM pci_devices)",
    ],
)
def test_rows_that_somebody_else_wrote_settle_nothing(cell: CellFile, sources: Sources, meanwhile: str) -> None:
    ended = lost(cell, sources, commits=True, meanwhile=meanwhile)
    assert ended.result is ChangeResult.UNKNOWN
    assert ended.detail.endswith(", and somebody else has written the rows since")
    assert isinstance(ended.lost, DatabaseError)
    assert ended.lost.what.startswith("whether it was committed is not known: the answer to COMMIT was lost")
    assert "gpustack undo ID --check" in str(ended.lost.remedy)


@pytest.mark.parametrize("fails", [2, 1000])
def test_a_lost_database_is_read_again_for_some_time(
    cell: CellFile, sources: Sources, fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "PATIENCE", 60.0 if fails == 2 else 0.2)
    monkeypatch.setattr(apply, "PAUSE", 0.05)
    attempts = []
    whole_row = apply.whole_row

    def away(*arguments: Any, **more: Any) -> object:
        attempts.append(more)
        if len(attempts) <= fails:
            raise DatabaseError("no route to host")
        return whole_row(*arguments, **more)

    monkeypatch.setattr(apply, "whole_row", away)
    started = time.monotonic()
    ended = lost(cell, sources, commits=True)
    if fails == 2:
        assert ended.result is ChangeResult.DONE
        assert attempts == [{"lock": True}] * 4  # twice in vain, and both rows
    else:
        assert time.monotonic() - started >= 0.2
        assert len(attempts) <= 6
        assert ended.result is ChangeResult.UNKNOWN
        assert ended.detail.endswith(", and the rows could not be read back: no route to host")


@pytest.mark.parametrize(
    ("commits", "result", "end"),
    [
        (True, ChangeResult.DONE, "old: no guest uses"),
        (False, ChangeResult.FAILED, "before the repair; nothing was written"),
    ],
)
def test_a_repair_ends_as_its_lost_commit(
    sources: Sources, commits: bool, result: ChangeResult, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = apply.committed
    losing = lambda connection, *more: committed(Losing(connection, commits=commits), *more)  # type: ignore[arg-type]  # noqa: E731
    monkeypatch.setattr(apply, "committed", losing)
    ended = carry_out(sources, planned(sources))
    assert ended.result is result
    assert "the answer to COMMIT was lost" in ended.detail
    assert end in ended.detail


def test_a_repair_whose_commit_is_unknown_stays_so(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Ended(ChangeResult.UNKNOWN, "lost", DatabaseError("lost"))
    monkeypatch.setattr(apply, "committed", lambda *_: unknown)
    assert carry_out(sources, planned(sources)) is unknown


def test_a_locked_database_fails_one_repair(cell: CellFile, sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[dict[str, Any]] = []
    engine = apply.engine
    monkeypatch.setattr(apply, "engine", lambda of, **more: (limits.append(more), engine(of, **more))[1])
    monkeypatch.setattr(databases, "LOCK_TIMEOUT", 0.05)
    verdict = planned(sources)
    with cell.engine.connect() as nova:
        nova.exec_driver_sql("BEGIN IMMEDIATE")
        ended = carry_out(sources, verdict)
    assert limits == [{"timeout": 0.05}]
    assert ended.result is ChangeResult.FAILED
    assert ended.detail.endswith("; nothing was written")
    assert carry_out(sources, verdict).result is ChangeResult.DONE


# --- statements, and what Nova does afterwards -----------------------------------------------------------------------


def test_facts_about_rows_of_other_repairs_are_not_compared(cell: CellFile, sources: Sources) -> None:
    """In a script, a repair before may have written them."""
    (verdict,) = (v for v in plan.make(sources, Selection()).repairs if v.owner == "vm")
    (row,) = verdict.rows
    other = Seen.of("pci_devices", {"id": 4711, "status": "allocated"})
    verdict = replace(verdict, seen=(other,))
    change = Change(table="pci_devices", id=row.id, seen={}, new=NEW)
    with apply.writing(sources.cells[0].database) as connection:
        (alone,) = apply.statements(connection, verdict, [change])
        assert connection.execute(alone).rowcount == 0
        (beside,) = apply.statements(connection, verdict, [change], [replace(change, id=4711)])
        assert connection.execute(beside).rowcount == 1


def test_relatives_are_the_live_rows_of_the_compute_node(cell: CellFile, sources: Sources) -> None:
    (verdict,) = (v for v in plan.make(sources, Selection()).repairs if v.owner == "vm")
    (row,) = verdict.rows
    cell.device(row.compute_node_id, "0000:02:00.0", deleted=5)
    cell.device(row.compute_node_id, "0000:03:00.0")
    with apply.writing(sources.cells[0].database) as connection:
        assert apply.relatives(connection, verdict).keys() == {GPU, "0000:03:00.0"}
        assert apply.relatives(connection, replace(verdict, rows=())) == {}
        gone = Change(table="pci_devices", id=4711, seen={}, new=NEW)
        assert apply.whole_row(connection, gone) is None


HELD = "UPDATE pci_devices SET {} WHERE instance_uuid = 'vm-b'"


@pytest.mark.parametrize(
    ("change", "held"),
    [
        ("status = 'allocated'", True),
        ("status = 'claimed'", True),
        ("status = 'available', instance_uuid = NULL", False),
        ("status = 'available'", False),
        ("instance_uuid = 'other'", False),
    ],
)
def test_nova_compute_has_freed_a_row_that_is_not_its_owners(
    cell: CellFile, tmp_path: Path, change: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "api.sqlite").unlink()
    nova_conf(tmp_path, {"cell1": cell.url, "cell2": CellFile(f"sqlite:///{tmp_path}/second.sqlite").url})
    sources = Sources.from_nova_conf([tmp_path])
    verdict = planned(sources, "vm-b")
    other = {**verdict, "devices": [{**verdict["devices"][0], "id": 4711}]}
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", lambda pause: (pauses.append(pause), sql(cell, HELD.format(change))))
    assert apply.unfreed([verdict, other], sources, 0) == [verdict]  # type: ignore[list-item]
    assert pauses == []
    if held:
        assert apply.unfreed([verdict], sources, 0.01) == [verdict]
    else:
        assert apply.unfreed([verdict], sources, 20) == []
        assert pauses == [1.0]
