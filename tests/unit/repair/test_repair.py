"""Whatever changes between the judgement and the write: nothing is written then."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from gpustack.base.errors import JournalError
from gpustack.changes import journal
from gpustack.changes.change import ChangeResult
from gpustack.cli.app import main
from gpustack.cli.change import former
from gpustack.novadb import databases, tables
from gpustack.novadb.model import TERMINAL, PciRow
from gpustack.novadb.sources import Sources
from gpustack.novadb.view import HostState, NodeView
from gpustack.repair import apply, permission, plan, repair, rules
from gpustack.repair.evidence import about
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import Selection
from gpustack.repair.repair import COMPARED, Change, around, changes, conditions, resting_on
from gpustack.repair.verdict import NotBefore, NotIn, Repair, Seen, Status, Verdict
from support import neighbourhood
from support.cellfile import CellFile, ago, answering, fill, nova_conf, silent
from support.cleanup_runs import SELECTION, head, results, run, sql, undone, verdict_of, wanted
from support.neighbourhood import HOUR, clock, view

NODE = {"id": 1, "uuid": "node", "deleted": 0, "host": "gpu1", "hypervisor_hostname": "gpu1"}
SERVICE = {"binary": "nova-compute", "deleted": 0, "host": "gpu1"}
DOWN = [
    Seen.of("compute_nodes", {**NODE, "updated_at": neighbourhood.ago(HOUR)}),
    Seen.of("services", {**SERVICE, "last_seen_up": neighbourhood.ago(HOUR)}),
]


def facts(seen: NodeView, *rows: PciRow) -> list[Seen]:
    """The facts around these rows and all owners."""
    return list(around(seen, rows, seen.owners.values(), clock({})))


def row(seen: PciRow) -> Seen:
    return Seen.of("pci_devices", {"id": seen.id, **{name: getattr(seen, name) for name in COMPARED}})


def test_a_host_that_is_down_may_not_start() -> None:
    assert facts(view({})) == DOWN


def test_a_host_that_is_up_may_report_again() -> None:
    assert facts(view({"service": {"seen": 5}})) == [
        Seen.of("compute_nodes", NODE),
        Seen.of("services", {**SERVICE, "last_seen_up": NotBefore(neighbourhood.ago(5))}),  # type: ignore[arg-type]
    ]


def test_a_host_that_was_just_created_may_not_report() -> None:
    """Nova takes it for up, by the time of its creation."""
    seen = view({"service": {"seen": 5}})
    assert seen.service is not None
    created = replace(seen.service, last_seen_up=None, created_at=neighbourhood.ago(5))
    assert facts(replace(seen, service=created))[1] == Seen.of("services", {**SERVICE, "last_seen_up": None})


def test_a_host_without_a_service_may_not_get_one() -> None:
    assert facts(view({"service": None})) == [DOWN[0], Seen.of("services", SERVICE, 0)]


def test_a_compute_node_without_a_row_may_not_get_one() -> None:
    seen = view({})
    lost = replace(seen, node=replace(seen.node, host=None, hypervisor_hostname=None, deleted=1, updated_at=None))
    assert facts(lost)[0] == Seen.of("compute_nodes", {"id": 1}, 0)


@pytest.mark.parametrize("changes", [{"deleted": 1}, {"host": None}])
def test_a_compute_node_with_a_row_stays_as_it_is(changes: Mapping[str, Any]) -> None:
    seen = view({})
    node = replace(seen, node=replace(seen.node, **changes))
    assert facts(node)[0] == Seen.of("compute_nodes", {**NODE, **changes, "updated_at": neighbourhood.ago(HOUR)})


INSTANCE = {"uuid": "vm", "host": "gpu2", "node": "gpu2", "vm_state": "active", "task_state": None, "deleted": 0}


def of_instance(seen: NodeView) -> list[Seen]:
    return [fact for fact in facts(seen) if fact.table in ("instances", "instance_extra")]


def with_requests(case: dict[str, Any], **changes: Any) -> NodeView:
    """A view whose instance has a text of PCI requests."""
    seen = view(case)
    return replace(seen, owners={"vm": replace(seen.owners["vm"], asked="[]", **changes)})


def test_an_instance_and_its_requests_stay_as_they_are() -> None:
    requests = Seen.of("instance_extra", {"instance_uuid": "vm", "deleted": 0, "pci_requests": "[]"})
    assert of_instance(with_requests({"owners": {"vm": {}}})) == [Seen.of("instances", INSTANCE), requests]


def test_an_instance_without_requests_has_none_to_compare() -> None:
    assert of_instance(view({"owners": {"vm": {}}})) == [Seen.of("instances", INSTANCE)]


def test_requests_of_a_deleted_instance_do_not_matter() -> None:
    deleted = with_requests({"owners": {"vm": {"deleted": HOUR}}})
    assert of_instance(deleted) == [Seen.of("instances", {**INSTANCE, "deleted": 7})]


def test_an_absent_instance_may_not_appear() -> None:
    absent = with_requests({"owners": {"vm": {"absent": True}}})
    assert of_instance(absent) == [Seen.of("instances", {"uuid": "vm", "deleted": 0}, 0)]


def test_an_instance_of_another_cell_may_not_appear_in_this_one() -> None:
    seen = with_requests({"owners": {"vm": {}}})
    instance = seen.owners["vm"].instance
    assert instance is not None
    moved = with_requests({"owners": {"vm": {}}}, instance=instance._replace(cell="cell2"))
    assert of_instance(moved) == [Seen.of("instances", {"uuid": "vm", "deleted": 0}, 0)]


def test_unfinished_moves_stay_and_none_is_added() -> None:
    moves = [{"status": status} for status in ("completed", "error", "accepted", None)]
    seen = facts(view({"owners": {"vm": {"moves": moves}}}))
    ends = {"source_compute": "gpu1", "source_node": "gpu1", "dest_compute": "gpu2", "dest_node": "gpu2"}
    others = {"instance_uuid": "vm", "deleted": 0, "status": NotIn(TERMINAL), "id": NotIn(frozenset({2, 3, 4}))}
    assert [fact for fact in seen if fact.table == "migrations"] == [
        *(
            Seen.of("migrations", {"id": number, "deleted": 0, "instance_uuid": "vm", "status": status, **ends})
            for number, status in ((2, "error"), (3, "accepted"), (4, None))
        ),
        Seen.of("migrations", others, 0),
    ]


def test_devices_of_an_owner_stay_and_none_is_added() -> None:
    seen = view({"owners": {"vm": {}}, "rows": [OWNED, {"status": "available"}, OWNED]})
    first, _free, third = seen.rows
    away = first._replace(id=9, compute_node_id=2)
    others = {"compute_node_id": 1, "instance_uuid": "vm", "deleted": 0, "id": NotIn(frozenset({1, 3}))}
    found = facts(replace(seen, elsewhere={"vm": (("gpu2", away),), "another": (("gpu3", away._replace(id=8)),)}))
    assert [fact for fact in found if fact.table == "pci_devices"] == [
        *(row(first), row(third), row(away)),
        Seen.of("pci_devices", others, 0),
    ]


FUNCTIONS = [
    {"status": "unavailable", "type": "type-PF", "address": "0000:81:00.0"},
    {"status": "allocated", "type": "type-VF", "address": "0000:81:00.1", "parent": "0000:81:00.0"},
    {"status": "available", "type": "type-VF", "address": "0000:81:00.2", "parent": "0000:81:00.0"},
    {"status": "available", "address": "0000:82:00.0"},
]


@pytest.mark.parametrize(("number", "relatives"), [(1, [1, 2, 3]), (2, [2, 3, 1]), (4, [4])])
def test_functions_of_one_device_are_compared_together(number: int, relatives: list[int]) -> None:
    seen = view({"rows": FUNCTIONS})
    assert facts(seen, seen.rows[number - 1])[2:] == [row(seen.rows[relative - 1]) for relative in relatives]


def test_a_deleted_row_has_no_relatives() -> None:
    deleted = {**FUNCTIONS[0], "deleted": HOUR}
    seen = view({"rows": [deleted, *FUNCTIONS]})
    assert facts(seen, seen.rows[0])[2:] == [row(seen.rows[0])]


def test_a_virtual_function_without_a_row_of_its_parent() -> None:
    seen = view({"rows": FUNCTIONS[1:2]})
    assert facts(seen, *seen.rows)[2:] == [row(seen.rows[0])]


def test_a_verdict_depends_on_its_rows_and_the_owners_of_these() -> None:
    owners: dict[str, Any] = {"vm": {}, "mover": {}, "bystander": {}}
    seen = view(
        {"owners": owners, "rows": [OWNED, {"status": "allocated", "owner": "unknown"}, {"status": "available"}]}
    )
    verdict = Verdict(
        klass="A",
        title="",
        status=Status.STALE,
        cell="cell1",
        host="gpu1",
        node="gpu1",
        host_state=HostState.DOWN,
        rows=seen.rows,
        owner="mover",
        evidence=(),
        because="",
    )
    rests_on = resting_on(verdict, seen, clock({}))
    assert rests_on == around(seen, seen.rows, [seen.owners["mover"], seen.owners["vm"]], clock({}))
    assert {dict(fact.match)["uuid"] for fact in rests_on if fact.table == "instances"} == {"mover", "vm"}


# --- conditions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    """A cell with an instance and three migrations; its tables lack columns that Nova has."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as opened:
        for statement in (
            "CREATE TABLE instances (id INTEGER, uuid TEXT, host TEXT, vm_state TEXT, deleted INTEGER)",
            "INSERT INTO instances VALUES (7, 'vm', 'gpu1', NULL, 0)",
            "CREATE TABLE migrations (id INTEGER, instance_uuid TEXT, status TEXT, updated_at DATETIME)",
            "INSERT INTO migrations VALUES (1, 'vm', 'completed', '2026-11-21 11:00:00.000000')",
            "INSERT INTO migrations VALUES (2, 'vm', 'error', '2026-11-21 11:00:00.000000')",
            "INSERT INTO migrations VALUES (3, 'vm', NULL, '2026-11-21 11:00:00.000000')",
        ):
            opened.exec_driver_sql(statement)
        yield opened
    engine.dispose()


def hold(connection: sa.Connection, *seen: Seen, written: Mapping[str, Collection[int]] | None = None) -> bool:
    """Whether a statement with the conditions of these facts would write."""
    return bool(
        connection.execute(sa.select(sa.and_(sa.true(), *conditions(seen, connection, written or {})))).scalar()
    )


@pytest.mark.parametrize(
    ("table", "match", "expected"),
    [
        ("instances", {"uuid": "vm", "host": "gpu1"}, 1),
        ("instances", {"uuid": "vm", "host": "gpu2"}, 0),
        ("instances", {"uuid": "vm", "vm_state": None}, 1),
        ("instances", {"uuid": "vm", "host": None}, 0),
        ("instances", {"uuid": "vm", "task_state": "no column of this release"}, 1),
        ("migrations", {"id": 1, "updated_at": NotBefore(neighbourhood.ago(HOUR))}, 1),  # type: ignore[arg-type]
        ("migrations", {"id": 1, "updated_at": NotBefore(neighbourhood.ago(HOUR - 1))}, 0),  # type: ignore[arg-type]
        ("migrations", {"id": 3, "status": NotIn(TERMINAL)}, 1),
        ("migrations", {"id": 1, "status": NotIn(TERMINAL)}, 0),
        ("migrations", {"id": 1, "status": NotIn(frozenset())}, 1),
        ("migrations", {"instance_uuid": "vm", "status": NotIn(TERMINAL), "id": NotIn(frozenset({2, 3}))}, 0),
        ("migrations", {"instance_uuid": "vm", "status": NotIn(TERMINAL), "id": NotIn(frozenset({2}))}, 1),
    ],
)
def test_a_fact_holds_for_its_count_only(
    connection: sa.Connection, table: str, match: Mapping[str, Any], expected: int
) -> None:
    assert hold(connection, Seen.of(table, match, expected))
    assert not hold(connection, Seen.of(table, match, 1 - expected))


def test_all_facts_must_hold(connection: sa.Connection) -> None:
    here, gone = Seen.of("instances", {"uuid": "vm"}), Seen.of("instances", {"uuid": "another"})
    assert hold(connection, here, here)
    assert not hold(connection, here, gone)


def test_more_rows_than_one_do_not_hold(connection: sa.Connection) -> None:
    assert not hold(connection, Seen.of("migrations", {"instance_uuid": "vm"}))


def test_rows_that_the_repair_writes_are_left_out(connection: sa.Connection) -> None:
    changed = Seen.of("migrations", {"id": 2, "status": "accepted"})
    others = Seen.of("migrations", {"instance_uuid": "vm", "status": NotIn(TERMINAL), "id": NotIn(frozenset({3}))}, 0)
    assert not hold(connection, changed)
    assert not hold(connection, others)
    assert hold(connection, changed, others, written={"migrations": {2}})
    assert not hold(connection, changed, written={"migrations": {3}, "instances": {2}})
    assert not hold(connection, others, written={"instances": {2}})


def test_other_facts_of_a_table_that_the_repair_writes_still_count(connection: sa.Connection) -> None:
    assert hold(connection, Seen.of("instances", {"uuid": "vm"}), written={"instances": {7}})


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
    for klass, planned_repair in planned.items():
        (outcome,) = run(sources, tmp_path / f"journal-{klass}", [planned_repair])
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
    monkeypatch.setattr(databases, "LOCK_TIMEOUT", 0.1)
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
    moves = [{"status": lingering}] if lingering else []
    moving = neighbourhood.view({"rows": [OWNED], "owners": {"vm": {"moves": moves}}}).owners["vm"]
    last = next(iter(moving.migrations), None)
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


HERE = "0000:81:00.0"
MOVED = """
service: {seen: 5}
rows: [{status: allocated, owner: vm}]
owners: {vm: {host: gpu4, moves: [{status: error, from: gpu2, to: gpu1}, {status: confirmed, from: gpu3, to: gpu4}]}}
"""


def judged(case: str) -> tuple[Verdict, NodeView]:
    """The verdict on the row of gpu1, with rows of the owner on other hosts, one of which is soft-deleted."""
    data: dict[str, Any] = yaml.safe_load(case)
    view = neighbourhood.view(data)
    others = tuple(
        (host, view.rows[0]._replace(id=number, compute_node_id=number, deleted=deleted))
        for number, (host, deleted) in enumerate((("GPU2", 0), ("gpu2", 12), ("gpu3", 0)), start=11)
    )
    view = dataclasses.replace(view, elsewhere={"vm": others})
    (verdict,) = rules.judge(view, neighbourhood.clock(data))
    return verdict, view


def test_the_devices_of_both_hosts_of_the_migration_are_recorded() -> None:
    """Not those of another migration's hosts, nor soft-deleted rows, which Nova does not free."""
    verdict, _view = judged(MOVED)
    assert verdict.migrations == (1,)
    assert [(device.host, device.id) for device in verdict.held] == [("gpu1", 1), ("GPU2", 11)]


def test_a_repair_without_a_migration_records_none() -> None:
    verdict, view = judged("rows: [{status: allocated, owner: vm}]\nowners: {vm: }")
    assert verdict.repair == "free"
    assert repair.held_devices(verdict, view) == ()


@pytest.mark.parametrize(
    ("change", "objection"),
    [
        ({}, []),
        ({"deleted": 1}, ["has no row"]),
        ({"status": "available", "instance_uuid": None}, ["is available"]),
        ({"instance_uuid": "other"}, ["belongs to instance other"]),
        ({"request_id": "r9"}, ["has request_id r9 (not None)"]),
    ],
    ids=str,
)
def test_a_changed_row_is_an_objection(change: dict[str, Any], objection: list[str]) -> None:
    verdict, view = judged(MOVED)
    row = view.rows[0]._replace(**change)
    found = repair.objections(verdict.held[:1], {row.id: row})
    assert list(found) == [f"{HERE} on gpu1, which the migration held, {text} by now" for text in objection]


def test_an_archived_row_is_an_objection() -> None:
    verdict, _view = judged(MOVED)
    assert len(list(repair.objections(verdict.held, {}))) == len(verdict.held)
