"""The records of one GPU or one instance, as they are stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.novadb import tables
from gpustack.novadb.as_stored import StoredRecords
from support.cellfile import CellFile


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell = CellFile(f"sqlite:///{tmp_path}/cell1.sqlite")
    node, gone = cell.host("gpu1", seen=1), cell.host("gpu1", deleted=True)
    cell.device(node, "0000:81:00.0")
    cell.device(node, "0000:81:00.4", "allocated", instance_uuid="VM1", request_id="r", parent_addr="0000:81:00.0")
    cell.device(node, "0000:82:00.0")
    cell.device(gone, "0000:82:00.0")
    cell.device(cell.host("gpu2"), "0000:81:00.0")
    return cell


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("0000:81:00.0", ["0000:81:00.0", "0000:81:00.4"]),
        ("0000:81:00.4", ["0000:81:00.4", "0000:81:00.0"]),
        ("0000:82:00.0", ["0000:82:00.0", "0000:82:00.0"]),
        ("0000:83:00.0", []),
    ],
)
def test_a_gpu_comes_with_its_relatives_on_its_host(cell: CellFile, address: str, found: list[str]) -> None:
    with cell.engine.connect() as connection:
        rows = StoredRecords(connection=connection).devices_at("gpu1", address)
    assert [row["address"] for row in rows] == found
    assert {row["host"] for row in rows} <= {"gpu1"}


def test_deleted_compute_nodes_are_marked(cell: CellFile) -> None:
    with cell.engine.connect() as connection:
        rows = StoredRecords(connection=connection).devices_at("gpu1", "0000:82:00.0")
    assert sorted(bool(row["node_deleted"]) for row in rows) == [False, True]


def test_instances_are_found_in_either_case(cell: CellFile) -> None:
    with cell.engine.connect() as connection:
        stored = StoredRecords(connection=connection)
        assert [row["address"] for row in stored.devices_of({"vm1"})] == ["0000:81:00.4"]
        assert list(stored.of(tables.instances, "uuid", {"vm1"})) == []
        assert [row["address"] for row in stored.of(tables.pci_devices, "instance_uuid", {"vm1"})] == ["0000:81:00.4"]
        assert [node["host"] for node in stored.of(tables.compute_nodes, "host", ["gpu2"])] == ["gpu2"]
        assert list(stored.of(tables.compute_nodes, "host", ["GPU2"])) == []


def test_a_row_whose_compute_node_is_gone_is_kept(cell: CellFile) -> None:
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM compute_nodes WHERE host = 'gpu1'")
        (row,) = StoredRecords(connection=connection).devices_of({"VM1"})
    assert (row["address"], row["host"]) == ("0000:81:00.4", None)
