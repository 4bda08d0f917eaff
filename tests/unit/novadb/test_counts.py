"""Compute nodes in counts: rows that do not differ, and the requests of their instances."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite

from gpustack.novadb import counts
from gpustack.novadb.counts import UNCLEAR, NodeCounts, count_nodes
from support.cellfile import CellFile


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    return CellFile(f"sqlite:///{tmp_path}/cell1.sqlite")


def counted(cell: CellFile, *nodes: int) -> list[NodeCounts]:
    with cell.engine.connect() as connection:
        return list(count_nodes(connection, nodes))


def test_rows_that_do_not_differ_are_one_count(cell: CellFile) -> None:
    node, gone = cell.host("gpu1"), cell.host("gpu2", deleted=True)
    for number in range(3):
        cell.device(node, f"0000:0{number}:00.0")
    cell.device(node, "0000:09:00.0", "allocated", instance_uuid="vm1", request_id="r1")
    cell.device(node, "0000:0a:00.0", deleted=7)
    cell.device(node, "0000:0b:00.0", "allocated", instance_uuid="vm2", deleted=8)
    (found,) = counted(cell, node, gone)
    assert sorted((row.status, row.instance_uuid, row.live, row.number) for row in found.rows) == [
        ("allocated", "vm1", True, 1),
        ("allocated", "vm2", False, 1),
        ("available", None, True, 3),
    ]
    assert found.devices == 4


def test_the_requests_of_the_instances_that_are_placed_there(cell: CellFile) -> None:
    node, other = cell.host("gpu1"), cell.host("gpu2")
    cell.instance("here", "gpu1")
    cell.instance("there", "gpu2")
    cell.instance("deleted", "gpu1", deleted=5)
    cell.instance("elsewhere", "gpu1", node="gpu2")
    cell.insert("instances", uuid="without", host="gpu1", node="gpu1", vm_state="active")
    cell.instance("twice", "gpu1")
    cell.insert("instance_extra", instance_uuid="twice", pci_requests="[]")
    first, second = counted(cell, node, other)
    assert first.residents.keys() == {"here", "without", "twice"}
    assert [request["request_id"] for request in json.loads(first.residents["here"] or "")] == ["r1"]
    assert (first.residents["without"], first.residents["twice"]) == (UNCLEAR, UNCLEAR)
    assert second.residents.keys() == {"there"}


def test_names_of_other_case_are_unclear(cell: CellFile) -> None:
    """MySQL joins them; SQLite with the collation NOCASE, as here."""
    node = cell.host("gpu1")
    cell.instance("vm1", "GPU1")
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE instances RENAME TO former")
        (sql,) = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'former'").one()
        without_case = sql.replace('"former"', "instances").replace("VARCHAR(255)", "VARCHAR(255) COLLATE NOCASE")
        connection.exec_driver_sql(without_case)
        connection.exec_driver_sql("INSERT INTO instances SELECT * FROM former")
    (found,) = counted(cell, node)
    assert found.residents == {"vm1": UNCLEAR}


@pytest.mark.parametrize(("dialect", "casts"), [(mysql.dialect(), True), (sqlite.dialect(), False)])
def test_mysql_groups_texts_byte_by_byte(dialect: sa.Dialect, casts: bool) -> None:
    class Connection:
        def __init__(self) -> None:
            self.dialect = dialect

    statement = str(counts._rows(Connection(), [1]).compile(dialect=dialect))  # type: ignore[arg-type]
    assert ("CAST(pci_devices.status AS BINARY)" in statement) is casts
    assert ("min(pci_devices.status)" in statement) is casts
    assert "CAST(pci_devices.compute_node_id" not in statement
