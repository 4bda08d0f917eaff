"""The facts of a verdict, and the conditions that compare them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.novadb.model import TERMINAL, PciRow
from gpustack.novadb.view import HostState, NodeView
from gpustack.repair.guards import COMPARED, around, conditions, resting_on
from gpustack.repair.verdict import NotBefore, NotIn, Seen, Status, Verdict
from support.neighbourhood import HOUR, ago, clock, view

NODE = {"id": 1, "deleted": 0, "host": "gpu1", "hypervisor_hostname": "gpu1"}
SERVICE = {"binary": "nova-compute", "deleted": 0, "host": "gpu1"}
DOWN = [
    Seen.of("compute_nodes", {**NODE, "updated_at": ago(HOUR)}),
    Seen.of("services", {**SERVICE, "last_seen_up": ago(HOUR)}),
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
        Seen.of("services", {**SERVICE, "last_seen_up": NotBefore(ago(5))}),  # type: ignore[arg-type]
    ]


def test_a_host_that_was_just_created_may_not_report() -> None:
    """Nova takes it for up, by the time of its creation."""
    seen = view({"service": {"seen": 5}})
    assert seen.service is not None
    created = replace(seen.service, last_seen_up=None, created_at=ago(5))
    assert facts(replace(seen, service=created))[1] == Seen.of("services", {**SERVICE, "last_seen_up": None})


def test_a_host_without_a_service_may_not_get_one() -> None:
    assert facts(view({"service": None})) == [DOWN[0], Seen.of("services", SERVICE, 0)]


def test_a_compute_node_without_a_row_may_not_get_one() -> None:
    seen = view({})
    lost = replace(seen, node=replace(seen.node, host=None, hypervisor_hostname=None, deleted=1, updated_at=None))
    names = {"host": None, "hypervisor_hostname": None}
    assert facts(lost)[0] == Seen.of("compute_nodes", {**NODE, **names, "deleted": 1}, 0)


@pytest.mark.parametrize("changes", [{"deleted": 1}, {"host": None}])
def test_a_compute_node_with_a_row_stays_as_it_is(changes: Mapping[str, Any]) -> None:
    seen = view({})
    node = replace(seen, node=replace(seen.node, **changes))
    assert facts(node)[0] == Seen.of("compute_nodes", {**NODE, **changes, "updated_at": ago(HOUR)})


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


OWNED = {"status": "allocated", "owner": "vm"}


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
        ("migrations", {"id": 1, "updated_at": NotBefore(ago(HOUR))}, 1),  # type: ignore[arg-type]
        ("migrations", {"id": 1, "updated_at": NotBefore(ago(HOUR - 1))}, 0),  # type: ignore[arg-type]
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
