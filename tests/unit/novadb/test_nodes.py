"""The compute nodes that a plan reads: with rows, without rows but with instances that need them, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.novadb import nodes, tables
from support.cellfile import CellFile


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    return CellFile(f"sqlite:///{tmp_path}/cell1.sqlite")


def test_nodes_with_any_row(cell: CellFile) -> None:
    first, second, gone = cell.host("gpu1"), cell.host("gpu2"), cell.host("gpu3", deleted=True)
    cell.host("empty")
    cell.device(first, "0000:01:00.0", "allocated", instance_uuid="vm1")
    cell.device(first, "0000:02:00.0")
    cell.device(second, "0000:01:00.0", deleted=9)
    cell.device(gone, "0000:01:00.0")
    with cell.engine.connect() as connection:
        assert sorted(nodes.nodes_with_rows(connection, None, None)) == [first, second, gone]
        assert list(nodes.nodes_with_rows(connection, frozenset({"gpu2", "empty"}), None)) == [second]
        assert list(nodes.nodes_with_rows(connection, None, "vm1")) == [first]
        assert list(nodes.nodes_with_rows(connection, frozenset({"gpu2"}), "vm1")) == []
        assert nodes.hosts_with_rows(connection, None) == {"gpu1"}
        assert nodes.hosts_with_rows(connection, frozenset({"gpu2"})) == set()


def test_nodes_whose_rows_were_deleted_by_hand(cell: CellFile) -> None:
    with_rows, bare, other, gone = (
        cell.host(name, deleted=name == "gone") for name in ("gpu1", "gpu2", "gpu3", "gone")
    )
    cell.device(with_rows, "0000:01:00.0")
    for uuid, host in (("vm1", "gpu1"), ("vm2", "gpu2"), ("vm2b", "gpu2"), ("vm4", "gone")):
        cell.instance(uuid, host)
    cell.instance("vm3", "gpu3", wants=())
    cell.instance("vm5", "gpu3", deleted=8)
    with cell.engine.connect() as connection:
        assert list(nodes.nodes_of_guests(connection, None, None)) == [bare]
        assert list(nodes.nodes_of_guests(connection, frozenset({"gpu1", "gpu3"}), None)) == []
        assert list(nodes.nodes_of_guests(connection, None, "vm3")) == [other]
        assert list(nodes.nodes_of_guests(connection, frozenset({"gpu1"}), "vm3")) == []
        assert list(nodes.nodes_of_guests(connection, None, "vm5")) == []
    assert gone


def test_nodes_are_found_by_any_of_their_names(cell: CellFile) -> None:
    first, second = cell.host("gpu1.example.org"), cell.host("gpu2")
    cell.host("gpu1", deleted=True)
    table = tables.compute_nodes
    with cell.engine.begin() as connection:
        connection.execute(table.update().where(table.c.id == second).values(hypervisor_hostname="kvm2.example.org"))
        assert list(nodes.nodes_called(connection, ["GPU1"], None)) == [first]
        assert list(nodes.nodes_called(connection, ["kvm2"], None)) == [second]
        assert list(nodes.nodes_called(connection, ["gpu2"], None)) == [second]
        assert list(nodes.nodes_called(connection, ["kvm2"], frozenset({"gpu1.example.org"}))) == []
        assert list(nodes.nodes_called(connection, [], None)) == []
        assert list(nodes.nodes_with_uuids(connection, ["node-gpu2", "node-gpu1"])) == [second]
        assert nodes.uuids_of(connection, frozenset({"gpu2", "gpu1"})) == ["node-gpu2"]


def test_owners_that_are_not_placed_on_the_node_of_their_row(cell: CellFile) -> None:
    node, orphan = cell.host("gpu1"), cell.host("gpu2", deleted=True)
    for number, (uuid, on, deleted) in enumerate(
        [("here", node, 0), ("ELSEWHERE", node, 0), ("gone", node, 0), ("orphan", orphan, 0), ("soft", node, 9)]
    ):
        cell.device(on, f"0000:0{number}:00.0", "allocated", instance_uuid=uuid, deleted=deleted)
    for uuid, host in (("here", "gpu1"), ("ELSEWHERE", "gpu3"), ("orphan", "gpu2"), ("soft", "gpu1")):
        cell.instance(uuid, host)
    cell.device(node, "0000:09:00.0")
    with cell.engine.connect() as connection:
        assert set(nodes.displaced(connection, 9)) == {"elsewhere", "gone", "orphan", "soft"}
        assert len(list(nodes.displaced(connection, 2))) == 2


def test_the_numa_nodes_of_live_rows(cell: CellFile) -> None:
    node = cell.host("gpu1")
    known = cell.device(node, "0000:01:00.0", numa_node=1)
    cell.device(node, "0000:02:00.0")
    cell.device(node, "0000:03:00.0", numa_node=0, deleted=4)
    with cell.engine.connect() as connection:
        assert nodes.numa_nodes(connection) == {known: 1}
