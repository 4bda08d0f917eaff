"""The owners of devices: uuids in any case, deleted ones, damaged flavors and times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustack.novadb import tables
from gpustack.novadb.owners import records
from support.cellfile import CellFile

FLAVOR = {"cur": {"nova_object.data": {"name": "g1", "extra_specs": {"pci_passthrough:alias": "k4200:1"}}}}


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell = CellFile(f"sqlite:///{tmp_path}/cell1.sqlite")
    cell.host("gpu1", seen=1)
    cell.instance("vm1", "gpu1", display_name="one", project_id="p1")
    with cell.engine.begin() as connection:
        connection.execute(tables.instance_extra.update().values(flavor=json.dumps(FLAVOR)))
        connection.exec_driver_sql(
            "UPDATE instances SET task_state = 'rebuilding', user_id = NULL, launched_at = '2026-01-02 03:04:05.000000'"
        )
    return cell


def test_live_instances_are_read_with_their_flavor(cell: CellFile) -> None:
    with cell.engine.connect() as connection:
        (record,) = records(connection, ["vm1", "unknown"])
    assert (record.uuid, record.name, record.project, record.host, record.user) == ("vm1", "one", "p1", "gpu1", "")
    assert (record.node, record.vm_state, record.task_state) == ("gpu1", "active", "rebuilding")
    assert (record.flavor, record.extra_specs) == ("g1", {"pci_passthrough:alias": "k4200:1"})
    assert str(record.launched_at) == "2026-01-02 03:04:05"


def test_uuids_may_be_stored_in_capital_letters(cell: CellFile) -> None:
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET uuid = 'VM1'")
        assert [record.uuid for record in records(connection, ["vm1"])] == ["vm1"]


def test_deleted_instances_are_left_out(cell: CellFile) -> None:
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET deleted = id")
        assert list(records(connection, ["vm1"])) == []


@pytest.mark.parametrize("flavor", ["{", "", "[" * 100_000, "{}", '{"cur": 1}', None])
def test_damaged_values_end_no_reading(cell: CellFile, flavor: str | None) -> None:
    with cell.engine.begin() as connection:
        connection.execute(tables.instance_extra.update().values(flavor=flavor))
        connection.exec_driver_sql(
            "UPDATE instances SET task_state = 'rebuilding', user_id = NULL, launched_at = '0000-00-00 00:00:00'"
        )
        (record,) = records(connection, ["vm1"])
    assert (record.flavor, record.extra_specs, record.launched_at) == ("", {}, None)
