"""The rows of cells, read through clean-up's reader. The cells are small SQLite files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.codes import Code
from gpustack.base.errors import CloudError, DatabaseError
from gpustack.fleet import databases
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, Source
from gpustack.fleet.placement import Device
from gpustack.fleet.read import OTHER_CLOUD, Detail, Given, read
from gpustack.novadb.sources import Sources
from support import growing_fleets
from support.cellfile import CellFile, nova_conf
from support.fleet_answers import device, facts
from support.fleet_cloud import StandIn, with_devices

FLAVOR = {"cur": {"nova_object.data": {"name": "g1", "extra_specs": {"pci_passthrough:alias": "k4200:1"}}}}
POOL = {"vendor_id": "10de", "product_id": "11b4", "count": 1, "tags": {"dev_type": "type-PCI"}}
POOLS = {"nova_object.data": {"objects": [{"nova_object.data": POOL}]}}


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell = CellFile(f"sqlite:///{tmp_path}/cell1.sqlite")
    node = cell.host("gpu1", seen=1)
    cell.instance("vm1", "gpu1", display_name="one")
    cell.device(node, "0000:81:00.0", "allocated", instance_uuid="vm1", request_id="r1", numa_node=1)
    cell.device(node, "0000:82:00.0")
    with cell.engine.begin() as connection:
        connection.execute(sa.text("UPDATE instance_extra SET flavor = :flavor"), {"flavor": json.dumps(FLAVOR)})
        connection.execute(sa.text("UPDATE compute_nodes SET pci_stats = :pools"), {"pools": json.dumps(POOLS)})
        values = "project_id = 'p1', user_id = 'u1', launched_at = '2026-01-02 03:04:05.000000'"
        connection.exec_driver_sql(f"UPDATE instances SET {values}")
    return cell


def sources(tmp_path: Path, **cells: str) -> Sources:
    return Sources.from_nova_conf([nova_conf(tmp_path, cells)])


def test_rows_with_owners(cell: CellFile, tmp_path: Path) -> None:
    read, _cells = databases.cells(sources(tmp_path, cell1=cell.url))
    assert [(row.address, row.status, row.owner, row.numa_node) for row in read.rows or ()] == [
        ("0000:81:00.0", "allocated", "vm1", 1),
        ("0000:82:00.0", "available", "", None),
    ]
    (server,) = read.servers or ()
    assert (server.id, server.project, server.user, server.flavor) == ("vm1", "p1", "u1", "g1")
    assert (server.devices, str(server.since)) == ({"k4200": 1}, "2026-01-02 03:04:05")
    assert (read.verdicts, read.gaps) == ((), ())


def test_equal_texts_of_rows_are_in_memory_once(cell: CellFile, tmp_path: Path) -> None:
    """A cloud may have hundreds of thousands of rows."""
    cell.device(cell.host("gpu2", seen=1), "0000:82:00.0")
    read, _cells = databases.cells(sources(tmp_path, cell1=cell.url))
    _first, one, other = read.rows or ()
    assert all(getattr(one, name) is getattr(other, name) for name in ("address", "vendor_id", "dev_type", "status"))
    _first, listed, same = join(read).gpus
    assert (listed.model, listed.traits) == (same.model, same.traits)
    assert listed.model is same.model
    assert listed.traits is same.traits


def test_what_clean_up_finds(cell: CellFile, tmp_path: Path) -> None:
    orphan, reinstalled = cell.host("gpu2"), cell.host("gpu1", deleted=True)
    cell.device(orphan, "0000:81:00.0", "allocated", instance_uuid="gone", request_id="x")
    cell.device(reinstalled, "0000:82:00.0", "allocated", instance_uuid="vm1", request_id="x")
    read, _cells = databases.cells(sources(tmp_path, cell1=cell.url))
    found = {(verdict.klass, verdict.host, verdict.address): verdict.doubt for verdict in read.verdicts}
    assert found["E (ghost-owner)", "gpu2", "0000:81:00.0"] is False
    assert found["C (orphan-node)", "gpu1", "0000:82:00.0"] is True  # says nothing about the GPU of the new node
    assert len(read.rows or ()) == 3


def test_damaged_flavors_and_times(cell: CellFile, tmp_path: Path) -> None:
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instance_extra SET flavor = '{'")
        connection.exec_driver_sql("UPDATE instances SET launched_at = '0000-00-00 00:00:00'")
    read, _cells = databases.cells(sources(tmp_path, cell1=cell.url))
    (server,) = read.servers or ()
    assert (server.devices, server.since, server.project) == ({}, None, "p1")


def test_a_cell_that_cannot_be_read_is_a_gap(cell: CellFile, tmp_path: Path) -> None:
    read, _cells = databases.cells(sources(tmp_path, cell1=cell.url, cell2=f"sqlite:///{tmp_path}/missing.sqlite"))
    assert ([gap.source for gap in read.gaps], len(read.rows or ())) == ([Source.DATABASE], 2)
    (tmp_path / "api.sqlite").unlink()
    with pytest.raises(DatabaseError):
        databases.cells(sources(tmp_path, cell2=f"sqlite:///{tmp_path}/missing.sqlite"))


def test_a_host_name_in_two_cells(cell: CellFile, tmp_path: Path) -> None:
    """The machine was moved between cells, and its compute node in the other cell was left, with free devices."""
    other = CellFile(f"sqlite:///{tmp_path}/cell2.sqlite")
    node = other.host("gpu1")
    other.device(node, "0000:81:00.0")
    other.device(node, "0000:82:00.0")
    for cells in ({"cell1": cell.url, "cell2": other.url}, {"cell1": other.url, "cell2": cell.url}):
        (tmp_path / "api.sqlite").unlink(missing_ok=True)
        fleet = join(databases.cells(sources(tmp_path, **cells))[0])
        assert [(gpu.address[5:7], gpu.state.value, gpu.used) for gpu in fleet.gpus] == [
            ("81", "inconsistent", 1),
            ("82", "free", 0),
        ]
        assert [str(holder.instance) for gpu in fleet.gpus for holder in gpu.holders] == ["vm1"]
        assert [(entry.code, "allocated to one (vm1) in cell" in entry.message) for entry in fleet.findings] == [
            (Code.GPU_IN_SEVERAL_CELLS, True),
            (Code.GPU_IN_SEVERAL_CELLS, False),
        ]


@pytest.mark.parametrize("disabled", [True, False])
def test_free_gpus_of_a_disabled_cell_are_noted(cell: CellFile, tmp_path: Path, disabled: bool) -> None:
    databases_of = sources(tmp_path, cell1=cell.url)
    (known,) = databases_of.cells
    chosen = replace(databases_of, cells=(replace(known, disabled=disabled),))
    notes = join(databases.cells(chosen)[0]).notes
    assert ("free GPUs in disabled cells, which no new instance gets: 1 in cell1" in notes) is disabled


def states(cell: CellFile, tmp_path: Path, cloud: StandIn, **given: object) -> tuple[list[str], list[str], int]:
    databases_of = sources(tmp_path, cell1=cell.url)
    answers = read(lambda: cloud.connection, Detail.HOLDERS, Given(**given), lambda: databases_of)  # type: ignore[arg-type]
    fleet = join(answers)
    return [gpu.state.value for gpu in fleet.gpus], [f.code.value for f in fleet.findings], len(fleet.partial)


def of_cell(*devices: Device) -> list[Device]:
    """The devices with the compute node's uuid of the cell."""
    return [Device(**{**vars(device), "root": "node-gpu1"}) for device in devices]


def test_rows_of_another_region_do_not_count(tmp_path: Path) -> None:
    """Its hosts and their GPUs have the same names: its instances would hold GPUs of this cloud."""
    sizes = growing_fleets.Sizes(hosts=2)
    chosen = Sources.from_nova_conf([growing_fleets.databases(tmp_path, sizes)])
    connection = growing_fleets.cloud(sizes).connection

    def fleet() -> Fleet:
        return join(read(lambda: connection, Detail.HOLDERS, Given(), lambda: chosen))

    assert all(Source.DATABASE in gpu.sources for gpu in fleet().gpus)
    assert not fleet().partial
    with sa.create_engine(f"sqlite:///{tmp_path}/cell.sqlite", poolclass=sa.NullPool).begin() as changed:
        changed.exec_driver_sql("UPDATE compute_nodes SET uuid = 'node-' || host")
    found = fleet()
    assert found.gpus
    assert not any(Source.DATABASE in gpu.sources for gpu in found.gpus)
    assert [(gap.source, gap.reason) for gap in found.partial] == [(Source.DATABASE, OTHER_CLOUD)]


def test_rows_and_placement_together(cell: CellFile, tmp_path: Path) -> None:
    devices = of_cell(device("gpu1", 0x81, used=1), device("gpu1", 0x82, capacity=0))
    cloud = with_devices(devices, {"vm1": {"gpu1-81": 1}})
    assert states(cell, tmp_path, cloud) == (["allocated", "reserved"], [], 0)
    assert "compute /servers/detail" not in " ".join(cloud.requests)


def test_class_q_is_judged_by_clean_up(cell: CellFile, tmp_path: Path) -> None:
    devices = of_cell(device("gpu1", 0x81, used=1), device("gpu1", 0x82, used=1))
    cloud = with_devices(devices, {"vm1": {"gpu1-81": 1, "gpu1-82": 1}})
    assert states(cell, tmp_path, cloud) == (["allocated", "inconsistent"], ["GPU700"], 0)


def test_without_the_cloud_rows_remain(cell: CellFile, tmp_path: Path) -> None:
    def refuse() -> object:
        raise CloudError("no cloud")

    databases_of = sources(tmp_path, cell1=cell.url)
    fleet = join(read(refuse, Detail.HOLDERS, Given(), lambda: databases_of))  # type: ignore[arg-type]
    assert [gpu.state.value for gpu in fleet.gpus] == ["allocated", "free"]
    assert [gap.source for gap in fleet.partial] == [Source.PLACEMENT]


def test_facts_become_class_o(cell: CellFile, tmp_path: Path) -> None:
    found = states(cell, tmp_path, with_devices([]), hosts=(facts("gpu1", 0x81),))
    assert found[0] == ["allocated", "inconsistent"]
    assert "GPU700" in found[1]
