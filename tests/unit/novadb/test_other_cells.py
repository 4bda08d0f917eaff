"""What other cells have of an instance, and which database belongs to which cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.findings import Code
from gpustack.cli.app import main
from gpustack.fleet import databases
from gpustack.novadb import other_cells, tables
from gpustack.novadb.other_cells import OtherCells, Pointer, contradiction, surveyed
from gpustack.novadb.owners import read_instances
from gpustack.novadb.sources import Cell, Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from support.cellfile import CELL1, CellFile, nova_conf
from support.cleanup_runs import run, wanted


class MappedCloud:
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
def mapped_cloud(tmp_path: Path) -> MappedCloud:
    return MappedCloud(tmp_path)


@pytest.mark.parametrize("mapped", [1, 3])
def test_alive_where_the_mapping_does_not_point(mapped_cloud: MappedCloud, mapped: int) -> None:
    """The pointer alone would make a live instance one that does not exist."""
    mapped_cloud.cells[1].instance("vm", "gpu2")
    mapped_cloud.mapped(mapped)
    ((klass, status, because),) = mapped_cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert Code.INSTANCE_MAPPED_TO_OTHER_CELL in because
    assert f"names cell cell{mapped}" in because
    assert "its record is in cell2; run `nova-manage cell_v2 verify_instance --uuid vm`" in because


@pytest.mark.parametrize("mapped", [1, 2])
def test_mapped_to_a_cell_without_the_instance(mapped_cloud: MappedCloud, mapped: int) -> None:
    """The cell may be an older backup, in which an instance that runs is missing."""
    mapped_cloud.mapped(mapped)
    ((klass, status, because),) = mapped_cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert "its record is in no cell" in because


def test_deleted_in_the_cell_of_its_mapping(mapped_cloud: MappedCloud) -> None:
    mapped_cloud.cells[0].instance("vm", "gpu1", deleted=9)
    mapped_cloud.mapped(1)
    assert [verdict[:2] for verdict in mapped_cloud.verdicts()] == [("E", "stale")]


@pytest.mark.parametrize(("cell_id", "name"), [(None, "no cell"), (7, "an unknown cell (id 7)"), (4, "cell0")])
def test_mapped_to_no_cell_with_hosts(mapped_cloud: MappedCloud, cell_id: int | None, name: str) -> None:
    url = mapped_cloud.cells[2].url.replace("cell3", "cell0")
    CellFile(url)
    uuid = "00000000-0000-0000-0000-000000000000"
    mapped_cloud.api(f"INSERT INTO cell_mappings VALUES (4, '{uuid}', 'cell0', 'none:///', '{url}', 0)")
    mapped_cloud.cells[0].instance("vm", "gpu1")
    mapped_cloud.mapped(cell_id)
    ((klass, status, because),) = mapped_cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert f"{Code.INSTANCE_MAPPED_TO_NO_CELL}: the mapping of instance vm names {name}," in because


def test_alive_here_while_another_cell_is_unreadable(mapped_cloud: MappedCloud) -> None:
    """A second copy there would protect the row."""
    mapped_cloud.cells[0].instance("vm", "gpu1")
    mapped_cloud.mapped(1)
    assert [verdict[:2] for verdict in mapped_cloud.verdicts()] == [("A", "stale")]
    with mapped_cloud.cells[2].engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE instances")
    ((_class, status, because),) = [verdict for verdict in mapped_cloud.verdicts() if verdict[0] == "A"]
    assert status == "undecided"
    assert "it may be in cell cell3, which could not be asked" in because


def test_a_copy_in_a_disabled_cell(mapped_cloud: MappedCloud) -> None:
    for cell in (mapped_cloud.cells[0], mapped_cloud.cells[2]):
        cell.instance("vm", "gpu9")
    mapped_cloud.mapped(1)
    mapped_cloud.api("UPDATE cell_mappings SET disabled = 1 WHERE name = 'cell3'")
    ((klass, status, because),) = mapped_cloud.verdicts()
    assert (klass, status) == ("A", "protected")
    assert "more than one cell" in because


def test_hosts_of_a_cell_without_a_record(mapped_cloud: MappedCloud) -> None:
    """A second copy may be there."""
    mapped_cloud.cells[0].instance("vm", "gpu1")
    mapped_cloud.api("DELETE FROM cell_mappings WHERE name = 'cell3'")
    ((klass, status, because),) = mapped_cloud.verdicts()
    assert (klass, status) == ("A", "undecided")
    assert Code.CELL_WITHOUT_RECORD in because


def test_a_migration_in_another_cell(mapped_cloud: MappedCloud) -> None:
    mapped_cloud.cells[0].instance("vm", "gpu1")
    mapped_cloud.cells[1].move("vm", "gpu2", "gpu2b", "migrating")
    ((klass, status, because),) = mapped_cloud.verdicts()
    assert (klass, status) == ("A", "protected")
    assert "migrating" in because


def test_a_host_that_is_mapped_to_another_cell(mapped_cloud: MappedCloud) -> None:
    """Its rows are undecided; those of other hosts are not."""
    mapped_cloud.cells[0].device(
        mapped_cloud.cells[0].host("gpu1y"), "0000:82:00.0", "allocated", instance_uuid="vm2", request_id="x"
    )
    assert [verdict[:2] for verdict in mapped_cloud.verdicts()] == [("E", "stale"), ("E", "stale")]
    mapped_cloud.api("INSERT INTO host_mappings (host, cell_id) VALUES ('GPU1X', 2)")
    first, second = mapped_cloud.verdicts()
    assert first[:2] == ("E", "undecided")
    assert f"{Code.HOST_MAPPED_TO_OTHER_CELL}: the mapping of host gpu1x names cell cell2 (" in first[2]
    assert second[:2] == ("E", "stale")


def test_two_mappings_of_one_database(
    mapped_cloud: MappedCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = wanted(Sources.from_nova_conf([mapped_cloud.conf]))
    mapped_cloud.api(
        f"UPDATE cell_mappings SET database_connection = '{mapped_cloud.cells[0].url}?timeout=9' WHERE name = 'cell2'"
    )
    verdicts = mapped_cloud.verdicts()
    assert [verdict[:2] for verdict in verdicts] == [("E", "undecided")] * 2
    assert all(Code.CELLS_SHARE_A_DATABASE in because for _class, _status, because in verdicts)
    before = mapped_cloud.cells[0].dump()
    (outcome,) = run(Sources.from_nova_conf([mapped_cloud.conf]), tmp_path / "journal", planned)
    assert outcome.result == "skipped"
    assert mapped_cloud.cells[0].dump() == before
    assert main(["cleanup", "plan", "--config-file", str(mapped_cloud.conf)]) == 0
    assert "nova-manage cell_v2 update_cell" in capsys.readouterr().err


def test_exchanged_connections(mapped_cloud: MappedCloud, tmp_path: Path) -> None:
    """The hosts show which cell a database is; also if the host of the row is gone, and so has no mapping."""
    orphan = mapped_cloud.cells[0].host("gone", deleted=True)
    mapped_cloud.cells[0].device(orphan, "0000:81:00.0")
    planned = wanted(Sources.from_nova_conf([mapped_cloud.conf]))
    assert [verdict["class"] for verdict in planned] == ["E", "C"]
    for number, other in ((1, 2), (2, 1)):
        url = mapped_cloud.cells[other - 1].url
        mapped_cloud.api(f"UPDATE cell_mappings SET database_connection = '{url}' WHERE name = 'cell{number}'")
    verdicts = mapped_cloud.verdicts()
    assert [verdict[:2] for verdict in verdicts] == [("E", "undecided"), ("C", "undecided")]
    assert all(Code.CELL_OF_OTHER_HOSTS in because for _class, _status, because in verdicts)
    before = [cell.dump() for cell in mapped_cloud.cells]
    outcomes = run(
        Sources.from_nova_conf([mapped_cloud.conf]), tmp_path / "journal", [{**p, "cell": "cell2"} for p in planned]
    )
    assert {outcome.result for outcome in outcomes} == {"skipped"}
    assert [cell.dump() for cell in mapped_cloud.cells] == before


def test_statements_grow_with_cells_and_owners(mapped_cloud: MappedCloud) -> None:
    """Not with the number of rows: each statement asks for 500 owners, or 250 in both spellings."""
    statements: list[str] = []

    def count(owners: int) -> int:
        node = mapped_cloud.cells[0].host(f"many{owners}")
        with mapped_cloud.cells[0].engine.begin() as connection:
            rows = [
                {"id": 10_000 + owners + number, "compute_node_id": node, "address": f"a{number}", "vendor_id": "10de"}
                | {"product_id": "1", "dev_type": "type-PCI", "label": "l", "status": "allocated", "deleted": 0}
                | {"instance_uuid": f"00000000-{number:04d}-{owners:04d}-0000-00000000000a"}
                for number in range(owners)
            ]
            connection.execute(tables.pci_devices.insert(), rows)
        statements.clear()
        plan.make(Sources.from_nova_conf([mapped_cloud.conf]), Selection(hosts=frozenset({f"many{owners}"})))
        return len([text for text in statements if "instance_mappings" in text or "FROM instances" in text])

    def record(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        few, many = count(500), count(2000)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    assert many - few == (2000 - 500) / 250 * (len(mapped_cloud.cells) + 1)  # instances of each cell, and mappings


@pytest.mark.parametrize("command", [lambda sources: plan.make(sources, Selection()), databases.cells])
def test_each_cell_is_asked_once_for_the_owners_of_all(tmp_path: Path, command: Callable[[Sources], object]) -> None:
    """The owner of each cell's row is in the next cell."""

    def statements(number: int) -> int:
        place = tmp_path / str(number)
        place.mkdir()
        cells = [CellFile(f"sqlite:///{place}/cell{n}.sqlite") for n in range(number)]
        for n, cell in enumerate(cells):
            cell.device(cell.host(f"gpu{n}"), "0000:81:00.0", "allocated", instance_uuid=f"vm{n}", request_id="x")
            cells[n - 1].instance(f"vm{n}", f"gpu{n}")
        conf = nova_conf(place, {f"cell{n}": cell.url for n, cell in enumerate(cells)})
        seen: list[str] = []
        sa.event.listen(sa.Engine, "before_cursor_execute", record := lambda *event: seen.append(event[2]))
        try:
            command(Sources.from_nova_conf([conf]))
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", record)
        return len(seen)

    assert statements(16) <= 4 * statements(4)


def cells_of(directory: Path, number: int = 4) -> tuple[list[CellFile], Sources]:
    """Cells of which the first has a row of ``vm`` on a host that is down."""
    cells = [CellFile(f"sqlite:///{directory}/cell{n}.sqlite") for n in range(number)]
    cells[0].device(cells[0].host("gpu0"), "0000:81:00.0", "allocated", instance_uuid="vm", request_id="x")
    conf = nova_conf(directory, {f"cell{n}": cell.url for n, cell in enumerate(cells)})
    return cells, Sources.from_nova_conf([conf])


def test_one_survey_brings_the_records_of_all_cells(tmp_path: Path) -> None:
    cells, sources = cells_of(tmp_path)
    cells[2].instance("vm", "gpu2")
    cells[3].move("vm", "gpu2", "gpu9", "confirmed")
    known = surveyed(sources)
    assert not sources.records
    assert {uuid: (*of_cell.instances, *of_cell.moves) for uuid, of_cell in known.records.items()} == {
        cell.uuid: ("vm",) * (number in (2, 3)) for number, cell in enumerate(sources.all_cells)
    }
    (verdict,) = plan.make(sources, Selection()).verdicts
    assert (verdict.klass, verdict.status) == ("A", "stale")
    assert "instance vm is active, on gpu2 (gpu2), cell cell2; it asks for 1 device" in verdict.evidence


def test_a_survey_leaves_out_cells_that_can_not_be_read(tmp_path: Path) -> None:
    cells, sources = cells_of(tmp_path)
    with cells[1].engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE migrations")
    assert surveyed(sources).records.keys() == {cell.uuid for cell in sources.all_cells if cell.name != "cell1"}
    (verdict,) = plan.make(sources, Selection()).verdicts
    assert (verdict.klass, verdict.status) == ("A", "undecided")
    assert "it may be in cell cell1, which could not be asked" in verdict.because


def test_a_repair_does_not_rest_on_the_survey_of_its_plan(tmp_path: Path) -> None:
    cells, sources = cells_of(tmp_path)
    planned = wanted(sources)
    assert [verdict["class"] for verdict in planned] == ["E"]
    cells[3].instance("vm", "gpu3")
    (outcome,) = run(sources, tmp_path / "journal", planned)
    assert (outcome.result, "changed since the plan" in outcome.detail) == ("skipped", True)


def test_too_many_owners_are_asked_for_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _cells, sources = cells_of(tmp_path)
    assert surveyed(sources).records
    monkeypatch.setattr(other_cells, "_MANY_OWNERS", 1)
    assert not surveyed(sources).records
    (verdict,) = plan.make(sources, Selection()).verdicts
    assert (verdict.klass, verdict.status) == ("E", "stale")


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
        self.others = OtherCells(sources=sources)

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
    found = OtherCells(sources=Sources(cells=())).look_up({**records, "unknown": None}, "")
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
