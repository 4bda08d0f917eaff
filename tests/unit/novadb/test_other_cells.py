"""What other cells have of an instance, and which database belongs to which cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.novadb.cells import Cell
from gpustack.novadb.other_cells import OtherCells
from gpustack.novadb.owners import read_instances
from gpustack.novadb.sources import Sources
from support.cellfile import CELL1, CellFile, nova_conf


class Cloud:
    """Three cells with a host each."""

    def __init__(self, directory: Path) -> None:
        self.files = [CellFile(f"sqlite:///{directory}/cell{number}.sqlite") for number in (1, 2, 3)]
        for number, file in enumerate(self.files, start=1):
            file.insert("services", host=f"gpu{number}", binary="nova-compute", uuid=f"s{number}", last_seen_up=None)
        conf = nova_conf(directory, {f"cell{n}": file.url for n, file in enumerate(self.files, start=1)})
        self.url = f"sqlite:///{directory}/api.sqlite"
        sources = Sources.from_nova_conf([conf])
        self.cells: tuple[Cell, ...] = sources.cells
        self.others = OtherCells(api=sources.api, cells=sources.all_cells)

    def mapped(self, name: str, cell: int | None, *, table: str = "host_mappings") -> None:
        """Map a host, or an instance, to a cell."""
        column = "host" if table == "host_mappings" else "instance_uuid"
        statement = sa.text(f"INSERT INTO {table} ({column}, cell_id) VALUES (:name, :cell)")
        with sa.create_engine(self.url, poolclass=sa.NullPool).begin() as connection:
            connection.execute(statement, {"name": name, "cell": cell})


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.others.close()


def test_the_live_record_of_another_cell_brings_its_requests_and_migrations(cloud: Cloud) -> None:
    cloud.files[1].instance("vm", "gpu2", wants=("r1", "r2"))
    cloud.files[2].instance("vm", "gpu3", wants=("r3",), deleted=4)
    cloud.files[2].move("vm", "gpu3", "gpu9", "confirmed")
    cloud.files[0].move("vm", "gpu1", "gpu9", "confirmed")
    found = cloud.others.look_up({"vm": None, "gone": None}, CELL1)
    assert [(record.cell, record.host) for record in found["vm"].alive] == [("cell2", "gpu2")]
    assert found["vm"].asked is not None
    assert [request.request_id for request in found["vm"].asked.requests or ()] == ["r1", "r2"]
    assert [move.source_compute for move in found["vm"].migrations] == ["gpu3"]
    assert (found["vm"].doubts, found["gone"].doubts, found["gone"].alive, found["gone"].asked) == ([], [], [], None)


def test_the_requests_are_those_of_the_first_live_record(cloud: Cloud) -> None:
    cloud.files[1].instance("vm", "gpu2", wants=("r1",))
    cloud.files[2].instance("vm", "gpu3", wants=("r2",))
    found = cloud.others.look_up({"vm": None}, CELL1)["vm"]
    assert [record.cell for record in found.alive] == ["cell2", "cell3"]
    assert found.asked is not None
    assert [request.request_id for request in found.asked.requests or ()] == ["r1"]


def test_without_the_api_database_only_a_live_record_here_is_sure(cloud: Cloud) -> None:
    cloud.files[0].instance("here", "gpu1")
    cloud.files[0].instance("deleted", "gpu1", deleted=3)
    with cloud.files[0].engine.connect() as connection:
        records = read_instances(connection, {"here", "deleted"}, "cell1")
    found = OtherCells().look_up({**records, "unknown": None}, "")
    assert {uuid for uuid, elsewhere in found.items() if elsewhere.doubts} == {"deleted", "unknown"}


@pytest.mark.parametrize(
    ("here", "there", "mapped", "doubt"),
    [
        (0, None, 1, ""),
        (0, None, 2, "its record is in cell1"),
        (3, 0, 2, ""),
        (3, 0, 1, "its record is in cell2"),
        (3, 4, 1, ""),
        (None, 4, 1, "its record is in cell2"),
        (None, None, 3, "its record is in no cell"),
        (None, None, None, "no cell"),
        (None, None, 9, "an unknown cell (id 9)"),
    ],
)
def test_a_mapping_that_contradicts_the_cells_is_a_doubt(
    cloud: Cloud, here: int | None, there: int | None, mapped: int | None, doubt: str
) -> None:
    """By the ``deleted`` of the records in the first and the second cell; None without a record."""
    for file, deleted in ((cloud.files[0], here), (cloud.files[1], there)):
        if deleted is not None:
            file.instance("vm", "gpu1", deleted=deleted)
    cloud.mapped("vm", mapped, table="instance_mappings")
    with cloud.files[0].engine.connect() as connection:
        record = read_instances(connection, {"vm"}, "cell1").get("vm")
    doubts = cloud.others.look_up({"vm": record}, CELL1)["vm"].doubts
    assert (doubt in " ".join(doubts)) if doubt else not doubts


def test_a_cell_whose_mapping_was_deleted_is_a_doubt(cloud: Cloud) -> None:
    cloud.mapped("gpu7", 7)
    (doubt,) = cloud.others.look_up({"vm": None}, CELL1)["vm"].doubts
    assert "7" in doubt


@pytest.mark.parametrize("broken", ["missing", "damaged", "no Nova", "no database"])
def test_a_cell_that_can_not_be_asked_leaves_a_doubt_about_each(cloud: Cloud, broken: str) -> None:
    if broken == "missing":
        Path(cloud.files[1].url.removeprefix("sqlite:///")).unlink()
    elif broken == "no database":
        Path(cloud.files[1].url.removeprefix("sqlite:///")).write_text("junk")
    else:
        with cloud.files[1].engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TABLE {'instances' if broken == 'damaged' else 'alembic_version'}")
    found = cloud.others.look_up({"vm1": None, "vm2": None}, CELL1)
    for uuid in ("vm1", "vm2"):
        (doubt,) = found[uuid].doubts
        assert doubt.startswith(f"instance {uuid}: it may be in cell cell2, which could not be asked: ")


@pytest.mark.parametrize("table", ["instance_mappings", "host_mappings"])
def test_an_api_database_that_refuses_a_table_is_named(cloud: Cloud, table: str) -> None:
    """Its error is not one of the cell that is being read."""
    with sa.create_engine(cloud.url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME COLUMN cell_id TO other")
    with cloud.files[0].engine.connect() as own:
        identity = cloud.others.identity(own, cloud.cells[0], None)
    (doubt,) = cloud.others.look_up({"vm": None}, CELL1)["vm"].doubts
    assert doubt.startswith("the API database could not be asked: ")
    assert identity.doubt.startswith("the API database could not be asked: ") is (table == "host_mappings")


def test_without_instances_nothing_is_asked(cloud: Cloud) -> None:
    with sa.create_engine(cloud.url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("UPDATE cell_mappings SET database_connection = 'sqlite:////nowhere'")
    assert cloud.others.look_up({}, CELL1) == {}


@pytest.mark.parametrize(
    ("mapped", "stray"),
    [({"gpu1": 1}, False), ({}, False), ({"gpu1": 2, "gpu1b": 1}, True), ({"gpu1": None, "gpu1b": 1}, True)],
)
def test_a_host_that_is_mapped_elsewhere_is_in_doubt(cloud: Cloud, mapped: dict[str, int | None], stray: bool) -> None:
    cloud.files[0].insert("services", host="gpu1b", binary="nova-compute", uuid="s1b", last_seen_up=None)
    for host, cell in mapped.items():
        cloud.mapped(host, cell)
    with cloud.files[0].engine.connect() as connection:
        identity = cloud.others.identity(connection, cloud.cells[0], None)
    assert identity.doubt == ""
    assert bool(identity.of("GPU1")) is stray
    assert not identity.of("gpu1b")
    if stray:
        names = ("cell2 (00000002-", "--cell_uuid 00000002-") if mapped["gpu1"] else ("no cell", "UUID")
        assert all(name in identity.of("gpu1") for name in names)


def test_a_database_whose_hosts_are_all_mapped_elsewhere_is_another_cells(cloud: Cloud) -> None:
    cloud.mapped("gpu1", 2)
    with cloud.files[0].engine.connect() as connection:
        identity = cloud.others.identity(connection, cloud.cells[0], frozenset({"gpu1"}))
    with cloud.files[0].engine.connect() as connection:
        assert cloud.others.identity(connection, cloud.cells[0], None).doubt == identity.doubt
    assert "cell1" in identity.doubt
    assert "cell2" in identity.doubt
    assert identity.of("anything") == identity.doubt


def test_two_cells_with_one_database_or_a_copy_of_it(cloud: Cloud) -> None:
    cloud.files[2].insert("services", host="gpu1", binary="nova-compute", uuid="s1", last_seen_up=None)
    with cloud.files[0].engine.connect() as connection:
        doubt = cloud.others.identity(connection, cloud.cells[0], None).doubt
    assert "cell3" in doubt
    assert "cell2" not in doubt
    with cloud.files[1].engine.connect() as connection:
        assert cloud.others.identity(connection, cloud.cells[1], None).doubt == ""
