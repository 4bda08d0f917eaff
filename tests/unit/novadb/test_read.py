"""Cells are read 500 compute nodes at a time, and healthy ones cost no statement of their own, and no rule."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.novadb import read, tables
from gpustack.novadb.read import CellReader, reading, reports
from gpustack.novadb.sources import Sources
from gpustack.novadb.view import NodeView
from gpustack.repair import plan, rules
from gpustack.repair.plan import Selection
from support.cellfile import CellFile, ago, nova_conf
from support.small_cells import SmallCloud, draw


def healthy(cell: CellFile, first: int, count: int) -> None:
    """Add compute nodes that are up, each with an instance that has the device it requests."""
    numbers = range(first, first + count)
    requests = json.dumps([{"count": 1, "alias_name": "g", "request_id": "r", "spec": []}])
    pools = json.dumps({"nova_object.data": {"objects": []}})
    row = {"vendor_id": "10de", "product_id": "1", "dev_type": "type-PCI", "label": "l", "status": "allocated"}
    with cell.engine.begin() as connection:
        for table, values in (
            (tables.compute_nodes, lambda n: {"host": f"h{n}", "hypervisor_hostname": f"h{n}", "pci_stats": pools}),
            (tables.services, lambda n: {"host": f"h{n}", "binary": "nova-compute", "last_seen_up": ago(-30)}),
            (tables.instances, lambda n: {"uuid": f"vm{n}", "host": f"h{n}", "node": f"h{n}", "vm_state": "active"}),
            (tables.instance_extra, lambda n: {"instance_uuid": f"vm{n}", "pci_requests": requests}),
            (
                tables.pci_devices,
                lambda n: {**row, "compute_node_id": n, "address": "a", "instance_uuid": f"vm{n}", "request_id": "r"},
            ),
        ):
            records = [{"id": n, "deleted": 0, "updated_at": ago(), "created_at": ago(), **values(n)} for n in numbers]
            connection.execute(table.insert(), records)


def test_statements_grow_by_five_hundred_compute_nodes(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    counts, statements = [], []

    def record(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        for first in (1, 501, 1501):
            healthy(cell, first, 1000 if first > 500 else 500)
            statements.clear()
            assert plan.make(Sources.from_nova_conf([conf]), Selection()).verdicts == ()
            counts.append(len(statements))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    once, thrice, five_times = counts
    assert thrice - once == five_times - thrice == 2 * 3  # compute nodes, rows, instances with requests


def test_few_rows_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with many rows, such as one with virtual functions, is read alone."""
    monkeypatch.setattr(read, "_ROWS_AT_ONCE", 5)
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for number, rows in enumerate((2, 3, 1, 7, 0, 5, 1)):
        node = cell.host(f"h{number}", seen=1)
        for row in range(rows):
            cell.device(node, f"0000:81:00.{row}")
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])
    chunks: list[list[int]] = []
    chunk = CellReader._rows
    monkeypatch.setattr(CellReader, "_rows", lambda self, ids: chunks.append(ids) or chunk(self, ids))
    with reading(sources, sources.cells[0], Selection()) as (reader, _clock):
        assert [len(view.rows) for view in reader.views()] == [2, 3, 1, 7, 5, 1]
    assert [len(ids) for ids in chunks] == [2, 1, 1, 1, 1]


def test_no_rule_runs_on_healthy_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    healthy(cell, 1, 50)
    judged: list[str | None] = []
    judge = rules.judge
    monkeypatch.setattr(rules, "judge", lambda view, clock: judged.append(view.node.host) or judge(view, clock))
    sources = Sources.from_nova_conf([conf])
    made = plan.make(sources, Selection())
    assert (made.verdicts, judged) == ((), [])
    assert str(made.checked) == "1 cell, 50 hosts, 50 devices checked"
    with cell.engine.begin() as connection:
        connection.execute(tables.instances.update().where(tables.instances.c.id == 7).values(host="h8", node="h8"))
        connection.execute(tables.pci_devices.update().where(tables.pci_devices.c.id == 9).values(request_id="x"))
    assert {verdict.host for verdict in plan.make(sources, Selection()).verdicts} == {"h7", "h8", "h9"}
    assert judged == ["h7", "h8", "h9"]


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_node_that_is_left_out_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    cloud = SmallCloud(tmp_path)
    draw(cloud, Random(seed))  # noqa: S311
    sources = Sources.from_nova_conf([cloud.conf])
    quick = plan.make(sources, Selection())
    monkeypatch.setattr(rules, "healthy", lambda _node: False)
    complete = plan.make(sources, Selection())
    assert [(v.klass, v.status, v.host, v.owner) for v in quick.verdicts] == [
        (v.klass, v.status, v.host, v.owner) for v in complete.verdicts
    ]
    assert str(quick.checked) == str(complete.checked)


# --- one cell, as the rules see it ----------------------------------------------------------------------------------


class Cloud:
    """Two cells with mappings; the views are those of the first."""

    def __init__(self, directory: Path) -> None:
        self.cell, self.other = (CellFile(f"sqlite:///{directory}/{name}.sqlite") for name in ("one", "two"))
        self.sources = Sources.from_nova_conf([nova_conf(directory, {"one": self.cell.url, "two": self.other.url})])

    def views(self, **more: Any) -> dict[str, NodeView]:
        with reading(self.sources, self.sources.cells[0], Selection()) as (reader, _clock):
            return {view.node.host or f"#{view.node.id}": view for view in reader.views(**more)}


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path)


def test_devices_elsewhere_whose_owner_is_in_capitals(cloud: Cloud) -> None:
    cloud.cell.instance("vm-a", "gpu3")
    for host, uuid in (("gpu1", "vm-a"), ("gpu2", "VM-A")):
        cloud.cell.device(cloud.cell.host(host), "0000:01:00.0", "allocated", instance_uuid=uuid)
    assert [host for host, _row in cloud.views()["gpu1"].elsewhere["vm-a"]] == ["gpu2"]


def test_the_last_report_of_each_kind_of_service(cloud: Cloud) -> None:
    for seen, more in ((50, {}), (10, {"deleted": 7})):
        cloud.cell.insert("services", host="c", binary="nova-scheduler", last_seen_up=ago(seen), **more)
    cloud.cell.insert("services", host="c", binary="nova-console", last_seen_up=None, created_at=ago(70))
    cloud.cell.insert("services", host="c", binary="nova-damaged", last_seen_up=None, created_at=None)
    with cloud.cell.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE services SET created_at = '0000-00-00 00:00:00' WHERE binary = 'nova-damaged'"
        )
        found = reports(connection)
    assert found.keys() == {"nova-conductor", "nova-scheduler", "nova-console"}
    assert found["nova-console"] < found["nova-scheduler"] < ago(40)


def test_the_service_of_a_host_is_its_live_nova_compute(cloud: Cloud) -> None:
    node = cloud.cell.host("gpu1")
    cloud.cell.device(node, "0000:01:00.0")
    cloud.cell.insert("services", host="gpu1", binary="nova-console", last_seen_up=None)
    cloud.cell.insert("services", host="gpu1", binary="nova-compute", last_seen_up=None, deleted=9)
    cloud.cell.insert("services", host="GPU2", binary="nova-compute", last_seen_up=None)
    view = cloud.views()["gpu1"]
    assert view.service is not None
    assert view.service.last_seen_up is not None
    assert view.service_on("gpu2") is not None


def test_the_owner_of_a_row_wherever_it_is(cloud: Cloud) -> None:
    node, other = cloud.cell.host("gpu1"), cloud.cell.host("gpu2")
    cloud.cell.instance("here", "gpu1")
    cloud.cell.instance("moved", "gpu2", wants=("r1", "r2"))
    cloud.cell.instance("deleted", "gpu1", deleted=5)
    cloud.other.instance("away", "gpu9", wants=("r3",))
    cloud.cell.instance("both", "gpu1")
    cloud.other.instance("both", "gpu9")
    cloud.cell.move("moved", "gpu1", "gpu2", "confirmed")
    cloud.other.move("away", "gpu9", "gpu8", "error")
    for number, uuid in enumerate(("here", "moved", "deleted", "away", "both", "nowhere"), start=1):
        cloud.cell.device(node, f"0000:0{number}:00.0", "allocated", instance_uuid=uuid, request_id="x")
    cloud.cell.device(other, "0000:01:00.0", "claimed", instance_uuid="moved", request_id="r1")
    cloud.cell.device(other, "0000:02:00.0", "available", instance_uuid="away")
    view = cloud.views()["gpu1"]
    assert {uuid: owner.alive for uuid, owner in view.owners.items()} == {
        **dict.fromkeys(("here", "moved", "away", "both"), True),
        **dict.fromkeys(("deleted", "nowhere"), False),
    }
    assert not [owner for owner in view.owners.values() if owner.unknown_because]
    owners = view.owners
    assert (owners["here"].on(view.node), owners["moved"].on(view.node)) == (True, False)
    assert owners["away"].instance is not None
    assert (owners["away"].instance.cell, owners["away"].wanted, owners["moved"].wanted) == ("two", 1, 2)
    assert [move.status for move in owners["moved"].migrations] == ["confirmed"]
    assert [move.status for move in owners["away"].migrations_elsewhere] == ["error"]
    assert not [uuid for uuid, owner in owners.items() if owner.in_several_cells]
    elsewhere = {uuid: [(host, row.address) for host, row in rows] for uuid, rows in view.elsewhere.items()}
    assert {uuid: rows for uuid, rows in elsewhere.items() if rows} == {"moved": [("gpu2", "0000:01:00.0")]}
    assert not view.moves


def test_an_instance_of_two_cells_is_seen_if_it_is_not_on_the_node_of_its_row(cloud: Cloud) -> None:
    node = cloud.cell.host("gpu1")
    cloud.cell.instance("both", "gpu2")
    cloud.other.instance("both", "gpu9")
    cloud.cell.device(node, "0000:01:00.0", "allocated", instance_uuid="both", request_id="r1")
    owner = cloud.views()["gpu1"].owners["both"]
    assert owner.in_several_cells
    assert owner.instance is not None
    assert owner.instance.cell == "one"


def test_owners_in_capitals_are_read_and_their_spelling_is_kept(cloud: Cloud) -> None:
    node = cloud.cell.host("gpu1")
    cloud.cell.instance("vm1", "gpu1")
    number = cloud.cell.device(node, "0000:01:00.0", "allocated", instance_uuid="VM1", request_id="r1")
    view = cloud.views()["gpu1"]
    assert [row.instance_uuid for row in view.rows] == ["vm1"]
    assert view.written == {number: "VM1"}
    assert view.owners["vm1"].on(view.node)


def test_instances_that_are_there_under_another_name_are_among_the_owners(cloud: Cloud) -> None:
    node = cloud.cell.host("gpu1.example.org")
    cloud.cell.device(node, "0000:01:00.0")
    cloud.cell.instance("short", "gpu1")
    cloud.cell.instance("other", "gpu2")
    cloud.cell.instance("node", "kvm7", node="GPU1")
    cloud.cell.instance("deleted", "gpu1", deleted=4)
    view = cloud.views()["gpu1.example.org"]
    assert view.owners.keys() == {"short", "node"}
    assert not view.owners["short"].on(view.node)


def test_a_node_that_can_not_be_read_does_not_hide_the_others(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that nobody has foreseen."""
    nodes = [cloud.cell.host(name) for name in ("gpu1", "gpu2")]
    for node in nodes:
        cloud.cell.device(node, "0000:01:00.0")
    read = CellReader._rows

    def damaged(reader: CellReader, ids: list[int]) -> Any:
        if nodes[1] in ids:
            raise ArithmeticError("unforeseen")
        return read(reader, ids)

    monkeypatch.setattr(CellReader, "_rows", damaged)
    first, second = cloud.views().values()
    assert (first.unread, len(first.rows)) == ("", 1)
    assert second.unread.endswith("a value can't be read: ArithmeticError: unforeseen")
    assert (second.rows, second.owners, second.node.deleted) == ((), {}, 0)
    assert second.node.hypervisor_hostname == "gpu2"


def test_the_rows_of_a_node_that_does_not_exist_are_read(cloud: Cloud) -> None:
    cloud.cell.device(77, "0000:01:00.0", "allocated", instance_uuid="vm1")
    cloud.cell.device(78, "0000:02:00.0", deleted=3)
    views = cloud.views()
    assert [(name, len(view.rows), view.node.deleted) for name, view in views.items()] == [
        ("#77", 1, 77),
        ("#78", 0, 78),
    ]


def test_which_nodes_are_read(cloud: Cloud) -> None:
    first, second, _third = (cloud.cell.host(name) for name in ("gpu1", "gpu2", "gpu3"))
    cloud.cell.device(first, "0000:01:00.0", "allocated", instance_uuid="vm1")
    cloud.cell.device(second, "0000:01:00.0")
    cloud.cell.move("vm5", "gpu1", "gpu4", "error")
    views = cloud.views()
    assert views.keys() == {"gpu1", "gpu2"}
    assert [move.instance_uuid for move in views["gpu1"].moves] == ["vm5"]
    assert views["gpu2"].moves == ()
    assert cloud.views(hosts=frozenset({"gpu2"})).keys() == {"gpu2"}
    assert cloud.views(instance_uuid="vm1").keys() == {"gpu1"}
    assert cloud.views(hosts=frozenset(), uuids=("node-gpu3",)).keys() == {"gpu3"}
    assert cloud.views(names=("GPU3.example.org",)).keys() == {"gpu1", "gpu2", "gpu3"}
    assert cloud.views(healthy=lambda counts: counts.id == first).keys() == {"gpu2"}


def test_one_instance_by_its_uuid(cloud: Cloud) -> None:
    cloud.other.instance("away", "gpu9")
    with reading(cloud.sources, cloud.sources.cells[0], Selection()) as (reader, clock):
        assert reader.owner("away").alive
        assert not reader.owner("nowhere").alive
        assert reader.owner("nowhere").unknown_because is None
        assert clock.doubt == ""
    Path(cloud.other.url.removeprefix("sqlite:///")).unlink()
    with reading(cloud.sources, cloud.sources.cells[0], Selection()) as (reader, _clock):
        owner = reader.owner("nowhere")
    assert owner.unknown_because is not None
    assert "cell two" in owner.unknown_because
