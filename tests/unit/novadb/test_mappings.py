"""Mappings of instances and hosts that contradict the cells add a doubt; no mapping removes one."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.findings import Code
from gpustack.cli.app import main
from gpustack.novadb import tables
from gpustack.novadb.mappings import Pointer, contradiction
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from support.cellfile import CellFile, nova_conf
from support.cleanup_runs import run, wanted


class Cloud:
    """Three cells; the first has a taken row of ``vm`` on a host that is down, and each cell has a host of its own."""

    def __init__(self, directory: Path) -> None:
        self.cells = [CellFile(f"sqlite:///{directory}/cell{number}.sqlite") for number in (1, 2, 3)]
        for number, cell in enumerate(self.cells, start=1):
            cell.insert("services", host=f"gpu{number}", binary="nova-compute", uuid=f"s{number}", last_seen_up=None)
        node = self.cells[0].host("gpu1x")
        self.cells[0].device(node, "0000:81:00.0", "allocated", instance_uuid="vm", request_id="x")
        self.conf = nova_conf(directory, {f"cell{number}": cell.url for number, cell in enumerate(self.cells, start=1)})
        self.api(*(f"INSERT INTO host_mappings (host, cell_id) VALUES ('gpu{n}', {n})" for n in (1, 2, 3)))

    def api(self, *statements: str) -> None:
        url = f"sqlite:///{self.conf.parent}/api.sqlite"
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def mapped(self, cell: int | None) -> None:
        self.api(f"INSERT INTO instance_mappings (instance_uuid, cell_id) VALUES ('vm', {cell or 'NULL'})")

    def verdicts(self) -> list[tuple[str, str, str]]:
        made = plan.make(Sources.from_nova_conf([self.conf]), Selection())
        return [(verdict.klass, verdict.status.value, verdict.because) for verdict in made.verdicts]


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path)


@pytest.mark.parametrize("mapped", [1, 3])
def test_alive_where_the_mapping_does_not_point(cloud: Cloud, mapped: int) -> None:
    """The pointer alone would make a live instance one that does not exist."""
    cloud.cells[1].instance("vm", "gpu2")
    cloud.mapped(mapped)
    ((klass, status, because),) = cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert Code.INSTANCE_MAPPED_TO_OTHER_CELL in because
    assert f"names cell cell{mapped}" in because
    assert "its record is in cell2; run `nova-manage cell_v2 verify_instance --uuid vm`" in because


@pytest.mark.parametrize("mapped", [1, 2])
def test_mapped_to_a_cell_without_the_instance(cloud: Cloud, mapped: int) -> None:
    """The cell may be an older backup, in which an instance that runs is missing."""
    cloud.mapped(mapped)
    ((klass, status, because),) = cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert "its record is in no cell" in because


def test_deleted_in_the_cell_of_its_mapping(cloud: Cloud) -> None:
    cloud.cells[0].instance("vm", "gpu1", deleted=9)
    cloud.mapped(1)
    assert [verdict[:2] for verdict in cloud.verdicts()] == [("E", "stale")]


@pytest.mark.parametrize(("cell_id", "name"), [(None, "no cell"), (7, "an unknown cell (id 7)"), (4, "cell0")])
def test_mapped_to_no_cell_with_hosts(cloud: Cloud, cell_id: int | None, name: str) -> None:
    url = cloud.cells[2].url.replace("cell3", "cell0")
    CellFile(url)
    uuid = "00000000-0000-0000-0000-000000000000"
    cloud.api(f"INSERT INTO cell_mappings VALUES (4, '{uuid}', 'cell0', 'none:///', '{url}', 0)")
    cloud.cells[0].instance("vm", "gpu1")
    cloud.mapped(cell_id)
    ((klass, status, because),) = cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert f"{Code.INSTANCE_MAPPED_TO_NO_CELL}: the mapping of instance vm names {name}," in because


def test_alive_here_while_another_cell_is_unreadable(cloud: Cloud) -> None:
    """A second copy there would protect the row."""
    cloud.cells[0].instance("vm", "gpu1")
    cloud.mapped(1)
    assert [verdict[:2] for verdict in cloud.verdicts()] == [("A", "stale")]
    with cloud.cells[2].engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE instances")
    ((_class, status, because),) = [verdict for verdict in cloud.verdicts() if verdict[0] == "A"]
    assert status == "undecided"
    assert "it may be in cell cell3, which could not be asked" in because


def test_a_copy_in_a_disabled_cell(cloud: Cloud) -> None:
    for cell in (cloud.cells[0], cloud.cells[2]):
        cell.instance("vm", "gpu9")
    cloud.mapped(1)
    cloud.api("UPDATE cell_mappings SET disabled = 1 WHERE name = 'cell3'")
    ((klass, status, because),) = cloud.verdicts()
    assert (klass, status) == ("A", "protected")
    assert "more than one cell" in because


def test_hosts_of_a_cell_without_a_record(cloud: Cloud) -> None:
    """A second copy may be there."""
    cloud.cells[0].instance("vm", "gpu1")
    cloud.api("DELETE FROM cell_mappings WHERE name = 'cell3'")
    ((klass, status, because),) = cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert Code.CELL_WITHOUT_RECORD in because


def test_a_migration_in_another_cell(cloud: Cloud) -> None:
    cloud.cells[0].instance("vm", "gpu1")
    cloud.cells[1].move("vm", "gpu2", "gpu2b", "migrating")
    ((klass, status, because),) = cloud.verdicts()
    assert (klass, status) == ("A", "protected")
    assert "migrating" in because


def test_a_host_that_is_mapped_to_another_cell(cloud: Cloud) -> None:
    """Its rows are undecided; those of other hosts are not."""
    cloud.cells[0].device(
        cloud.cells[0].host("gpu1y"), "0000:82:00.0", "allocated", instance_uuid="vm2", request_id="x"
    )
    assert [verdict[:2] for verdict in cloud.verdicts()] == [("E", "stale"), ("E", "stale")]
    cloud.api("INSERT INTO host_mappings (host, cell_id) VALUES ('GPU1X', 2)")
    first, second = cloud.verdicts()
    assert first[:2] == ("E", "undecided")
    assert f"{Code.HOST_MAPPED_TO_OTHER_CELL}: the mapping of host gpu1x names cell cell2 (" in first[2]
    assert second[:2] == ("E", "stale")


def test_two_mappings_of_one_database(cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = wanted(Sources.from_nova_conf([cloud.conf]))
    cloud.api(f"UPDATE cell_mappings SET database_connection = '{cloud.cells[0].url}?timeout=9' WHERE name = 'cell2'")
    verdicts = cloud.verdicts()
    assert [verdict[:2] for verdict in verdicts] == [("E", "undecided")] * 2
    assert all(Code.CELLS_SHARE_A_DATABASE in because for _class, _status, because in verdicts)
    before = cloud.cells[0].dump()
    (outcome,) = run(Sources.from_nova_conf([cloud.conf]), tmp_path / "journal", planned)
    assert outcome.result == "skipped"
    assert cloud.cells[0].dump() == before
    assert main(["cleanup", "plan", "--config-file", str(cloud.conf)]) == 0
    assert "nova-manage cell_v2 update_cell" in capsys.readouterr().err


def test_exchanged_connections(cloud: Cloud, tmp_path: Path) -> None:
    """The hosts show which cell a database is; also if the host of the row is gone, and so has no mapping."""
    orphan = cloud.cells[0].host("gone", deleted=True)
    cloud.cells[0].device(orphan, "0000:81:00.0")
    planned = wanted(Sources.from_nova_conf([cloud.conf]))
    assert [verdict["class"] for verdict in planned] == ["E", "C"]
    for number, other in ((1, 2), (2, 1)):
        url = cloud.cells[other - 1].url
        cloud.api(f"UPDATE cell_mappings SET database_connection = '{url}' WHERE name = 'cell{number}'")
    verdicts = cloud.verdicts()
    assert [verdict[:2] for verdict in verdicts] == [("E", "undecided"), ("C", "undecided")]
    assert all(Code.CELL_OF_OTHER_HOSTS in because for _class, _status, because in verdicts)
    before = [cell.dump() for cell in cloud.cells]
    outcomes = run(
        Sources.from_nova_conf([cloud.conf]), tmp_path / "journal", [{**p, "cell": "cell2"} for p in planned]
    )
    assert {outcome.result for outcome in outcomes} == {"skipped"}
    assert [cell.dump() for cell in cloud.cells] == before


def test_statements_grow_with_cells_and_owners(cloud: Cloud) -> None:
    """Not with the number of rows: each statement asks for 500 owners, or 250 in both spellings."""
    statements: list[str] = []

    def count(owners: int) -> int:
        node = cloud.cells[0].host(f"many{owners}")
        with cloud.cells[0].engine.begin() as connection:
            rows = [
                {"id": 10_000 + owners + number, "compute_node_id": node, "address": f"a{number}", "vendor_id": "10de"}
                | {"product_id": "1", "dev_type": "type-PCI", "label": "l", "status": "allocated", "deleted": 0}
                | {"instance_uuid": f"00000000-{number:04d}-{owners:04d}-0000-00000000000a"}
                for number in range(owners)
            ]
            connection.execute(tables.pci_devices.insert(), rows)
        statements.clear()
        plan.make(Sources.from_nova_conf([cloud.conf]), Selection(hosts=frozenset({f"many{owners}"})))
        return len([text for text in statements if "instance_mappings" in text or "FROM instances" in text])

    def record(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        few, many = count(500), count(2000)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    assert many - few == (2000 - 500) / 250 * (len(cloud.cells) + 1)  # instances of each cell, and mappings


@pytest.mark.parametrize(
    ("records", "actual"),
    [
        ({"c1": True, "c2": False}, None),
        ({"c1": False}, None),
        ({"c1": False, "c2": True}, "two"),
        ({"c2": False}, "two"),
        ({}, "no cell"),
    ],
)
def test_a_live_record_counts_more_than_a_deleted_one(records: dict[str, bool], actual: str | None) -> None:
    found = contradiction("vm", Pointer(cell="c1", name="one"), records, {"c1": "one", "c2": "two"})
    assert (found and found.message.rpartition(" is in ")[2]) == actual
    assert contradiction("vm", Pointer(cell="c3", name="unread"), records, {"c1": "one", "c2": "two"}) is None
