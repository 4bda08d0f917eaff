"""The databases of a plan: all cells of a configuration, one by its URL, and the choice among them."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.errors import DatabaseError, NovaConfigError, UsageError
from gpustack.changes.change import ChangeResult
from gpustack.cli.app import main
from gpustack.novadb.sources import CELL0, Sources, fill_template, unknown_hosts
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from support.cellfile import CELL1, CellFile, nova_conf
from support.cleanup_runs import run, undone, wanted


@pytest.fixture
def two(tmp_path: Path) -> tuple[CellFile, CellFile, Path]:
    """Two cells; the first has a taken row of a host that is down."""
    first, second = (CellFile(f"sqlite:///{tmp_path}/{name}.sqlite") for name in ("cell1", "cell2"))
    first.device(first.host("gpu1"), "0000:81:00.0", "allocated", instance_uuid="vm", request_id="x")
    return first, second, nova_conf(tmp_path, {"cell1": first.url, "cell2": second.url})


def verdicts(conf: Path, **selection: object) -> list[str]:
    cleanup_plan = plan.make(Sources.from_nova_conf([conf]), Selection(**selection))  # type: ignore[arg-type]
    return [f"{v.klass} {v.status}" for v in cleanup_plan.verdicts if v.cell == "cell1"]


def mapping(conf: Path, uuid: str, cell: int | None) -> None:
    with sa.create_engine(f"sqlite:///{conf.parent}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        text = sa.text("INSERT INTO instance_mappings (instance_uuid, cell_id) VALUES (:uuid, :cell)")
        connection.execute(text, {"uuid": uuid, "cell": cell})


def test_absent_from_every_cell(two: tuple[CellFile, CellFile, Path]) -> None:
    assert verdicts(two[2]) == ["E stale"]


@pytest.mark.parametrize("mapped", [True, False])
def test_alive_in_another_cell(two: tuple[CellFile, CellFile, Path], mapped: bool) -> None:
    two[1].instance("vm", "elsewhere")
    if mapped:
        mapping(two[2], "vm", 2)
    assert verdicts(two[2]) == ["A stale"]


def test_in_both_cells(two: tuple[CellFile, CellFile, Path]) -> None:
    for cell in two[:2]:
        cell.instance("vm", "elsewhere")
    mapping(two[2], "vm", 2)
    assert verdicts(two[2]) == ["A protected"]


def test_being_scheduled(two: tuple[CellFile, CellFile, Path]) -> None:
    mapping(two[2], "vm", None)
    assert verdicts(two[2]) == ["A undecided"]


@pytest.mark.parametrize("mapped", [True, False])
def test_the_other_cell_can_not_be_read(two: tuple[CellFile, CellFile, Path], mapped: bool, tmp_path: Path) -> None:
    if mapped:
        mapping(two[2], "vm", 2)
    with two[1].engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'fedcba987654'")
    cleanup_plan = plan.make(Sources.from_nova_conf([two[2]]), Selection())
    assert [f"{v.klass} {v.status}" for v in cleanup_plan.verdicts] == ["A undecided"]
    assert [name for name, _why in cleanup_plan.unread] == ["cell2"]


def test_only_one_cell_is_judged_and_the_other_is_still_asked(two: tuple[CellFile, CellFile, Path]) -> None:
    two[1].instance("vm", "elsewhere")
    mapping(two[2], "vm", 2)
    cleanup_plan = plan.make(Sources.from_nova_conf([two[2]]).named(["cell1"]), Selection())
    assert [f"{v.klass} {v.status}" for v in cleanup_plan.verdicts] == ["A stale"]


def test_without_the_api_database_nothing_is_called_absent(two: tuple[CellFile, CellFile, Path]) -> None:
    cleanup_plan = plan.make(Sources.from_url(two[0].url), Selection())
    assert [f"{v.klass} {v.status}" for v in cleanup_plan.verdicts] == ["A undecided"]


def test_a_template_is_filled_in_as_nova_does(tmp_path: Path) -> None:
    CellFile(f"sqlite:///{tmp_path}/main.sqlite")
    conf = nova_conf(tmp_path, {"cell1": "{scheme}:////{path}"})
    problem = Sources.from_nova_conf([conf]).cells[0].database.problem
    assert "[database] connection is not set" in str(problem)
    with conf.open("a") as stream:
        stream.write(f"[database]\nconnection = sqlite:///{tmp_path}/main.sqlite\n")
    assert Sources.from_nova_conf([conf]).cells[0].database.url.database == f"{tmp_path}/main.sqlite"


def test_no_cell_can_be_read(tmp_path: Path) -> None:
    conf = nova_conf(tmp_path, {"cell1": f"sqlite:///{tmp_path}/nothing/cell.sqlite"})
    with pytest.raises(DatabaseError):
        plan.make(Sources.from_nova_conf([conf]), Selection())


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("", 60),
        ("service_down_time = 180", 180),
        ("service_down_time = 180\nreport_interval = 200", 500),
        ("service_down_time = 5", 25),  # not longer than the interval
        ("service_down_time = -1", 25),
        ("service_down_time = ²", 60),  # no number
        ("service_down_time = 99999999999999", 2**31),
    ],
)
def test_the_services_down_time_is_novas(two: tuple[CellFile, CellFile, Path], lines: str, seconds: int) -> None:
    with two[2].open("a") as stream:
        stream.write(f"[DEFAULT]\n{lines}\n")
    assert Sources.from_nova_conf([two[2]]).service_down_time == timedelta(seconds=seconds)


def test_a_host_that_there_is_not(two: tuple[CellFile, CellFile, Path], capsys: pytest.CaptureFixture[str]) -> None:
    two[0].host("idle")
    for host, code in (("gpu1", 3), ("idle", 0), ("gpu99", 2)):
        assert main(["cleanup", "plan", "--config-file", str(two[2]), "--host", host, "--exit-code"]) == code
    assert "gpu99" in capsys.readouterr().err


def test_a_clean_plan_counts_what_was_checked(
    two: tuple[CellFile, CellFile, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two[0].instance("vm", "gpu1")
    for number in (1, 2):
        two[1].device(two[1].host(f"gpu2{number}"), "0000:82:00.0")
    metrics = tmp_path / "prom"
    command = ["cleanup", "plan", "--config-file", str(two[2]), "--host", "gpu21", "--host", "gpu22"]
    assert main([*command, "--exit-code", "--metrics", str(metrics)]) == 0
    assert capsys.readouterr().out == "No stale rows: 2 cells, 2 hosts, 2 devices checked\n"
    counts = [line for line in metrics.read_text().splitlines() if line.startswith("gpustack_cleanup_verdicts{")]
    assert 'gpustack_cleanup_verdicts{cell="cell2",class="B",status="stale"} 0.0' in counts
    assert all(line.endswith(" 0.0") for line in counts)
    assert not [line for line in counts if 'class="Q"' in line], "Placement was not asked"


def test_two_cells_of_one_name(
    two: tuple[CellFile, CellFile, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each verdict is of the cell that it was made in, and repaired there."""
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("UPDATE cell_mappings SET name = 'one'")
    two[1].device(two[1].host("gpu2"), "0000:82:00.0", "allocated", instance_uuid="gone", request_id="x")
    command = ["cleanup", "apply", "--config-file", str(two[2]), "--journal", str(tmp_path / "a journal")]
    assert main([*command, "--yes", "--no-hypervisor"]) == 0
    undo = f"gpustack undo '{tmp_path}/a journal' --config-file {two[2]}"
    assert f"to undo: {undo}\n" in capsys.readouterr().err
    assert main([*shlex.split(undo)[1:], "--check"]) == 0
    assert not plan.make(Sources.from_nova_conf([two[2]]), Selection()).repairs


@pytest.mark.parametrize(
    "url",
    ["none:///", "mysql://nova@db:port/nova", "no url", "mysql+pymysql://nova:x@127.0.0.1:1/nova?ssl_ca=/none.pem"],
)
def test_a_cell_whose_connection_is_none(two: tuple[CellFile, CellFile, Path], tmp_path: Path, url: str) -> None:
    """Its guests may be anywhere; the other cells are judged."""
    two[0].device(two[0].host("gpu2", deleted=True), "0000:81:00.0")
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("UPDATE cell_mappings SET database_connection = :url WHERE id = 2"), {"url": url})
    cleanup_plan = plan.make(Sources.from_nova_conf([two[2]]), Selection())
    assert [f"{v.klass} {v.status}" for v in cleanup_plan.verdicts] == ["A undecided", "C stale"]
    assert [name for name, _why in cleanup_plan.unread] == ["cell2"]
    assert main(["cleanup", "plan", "--config-file", str(two[2])]) == 30


@pytest.mark.parametrize("broken", [0, 1])
def test_a_cell_that_is_no_database_is_named_and_the_other_one_judged(
    two: tuple[CellFile, CellFile, Path], broken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    two[1 - broken].device(two[1 - broken].host("gpu7", deleted=True), "0000:81:00.0")
    Path(two[broken].url.removeprefix("sqlite:///")).write_text("junk")
    assert main(["cleanup", "plan", "--config-file", str(two[2]), "-f", "json"]) == 30
    printed = capsys.readouterr()
    assert {"C"} <= {verdict["class"] for verdict in json.loads(printed.out)}
    assert f"not checked: cell cell{broken + 1}\n" in printed.err


@pytest.mark.parametrize("name", ["cell1", "CELL1'S UUID"])
def test_two_cells_of_one_name_are_repaired_apart(
    two: tuple[CellFile, CellFile, Path], tmp_path: Path, name: str
) -> None:
    """Both have the same row; the second cell gets the first one's name, or its uuid, after the plan was made."""
    first, second, conf = two
    second.device(second.host("gpu1"), "0000:81:00.0", "allocated", instance_uuid="vm", request_id="x")
    sources = Sources.from_nova_conf([conf])
    before = first.dump()
    (planned,) = [repair for repair in wanted(sources) if repair["cell"] == "cell1"]
    (outcome,) = run(sources, tmp_path / "journal", [planned])
    assert outcome.result is ChangeResult.DONE
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        called = name.replace("CELL1'S UUID", CELL1)
        connection.execute(sa.text("UPDATE cell_mappings SET name = :name WHERE id = 2"), {"name": called})

    renamed = Sources.from_nova_conf([conf])
    assert len({cell.name for cell in renamed.cells}) == 2
    cells = [verdict.cell for verdict in plan.make(renamed, Selection()).verdicts]
    assert cells == [cell.name for cell in renamed.cells if cell.uuid != CELL1]
    (outcome,) = undone(tmp_path / "journal", renamed)
    assert outcome.result is ChangeResult.DONE, outcome.detail
    assert first.dump() == before


def in_api(conf: Path, statement: str) -> None:
    with sa.create_engine(f"sqlite:///{conf.parent}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(statement)


def test_cell0_is_first_and_disabled_cells_are_marked(two: tuple[CellFile, CellFile, Path]) -> None:
    add = "INSERT INTO cell_mappings VALUES (9, '{}', {}, 'none:///', 'sqlite://', 1)"
    in_api(two[2], add.format(CELL0, "'zero'"))
    cells = Sources.from_nova_conf([two[2]]).cells
    assert [(cell.name, cell.disabled) for cell in cells] == [("zero", True), ("cell1", False), ("cell2", False)]


def test_cells_of_a_nova_without_disabled_ones(two: tuple[CellFile, CellFile, Path]) -> None:
    in_api(two[2], "ALTER TABLE cell_mappings DROP COLUMN disabled")
    assert [cell.disabled for cell in Sources.from_nova_conf([two[2]]).cells] == [False, False]


def test_cells_of_one_name_have_their_uuids(two: tuple[CellFile, CellFile, Path]) -> None:
    in_api(two[2], "UPDATE cell_mappings SET name = 'cell1'")
    cells = Sources.from_nova_conf([two[2]]).cells
    assert [cell.name for cell in cells] == sorted(cell.uuid for cell in cells)


def test_an_api_database_of_an_unknown_schema_is_refused(two: tuple[CellFile, CellFile, Path]) -> None:
    in_api(two[2], "UPDATE alembic_version SET version_num = 'fedcba987654'")
    with pytest.raises(DatabaseError, match="schema"):
        _ = Sources.from_nova_conf([two[2]]).cells


@pytest.mark.parametrize("name", ["{hostname:>999999999}", "{hostname!r}"])
def test_only_plain_names_of_a_template_are_filled_in(name: str) -> None:
    template, default = f"mysql://nova@{name}/{{path}}", "mysql://nova@db/nova"
    with pytest.raises(NovaConfigError, match="can't be filled in"):
        fill_template(template, default, "cell1")


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    cells = {name: CellFile(f"sqlite:///{tmp_path}/{name}.sqlite") for name in ("one", "two")}
    cells["one"].host("gpu1")
    cells["two"].host("gpu2", deleted=True)
    urls = {name: cell.url for name, cell in cells.items()}
    return Sources.from_nova_conf([nova_conf(tmp_path, urls, service_down_time=90)])


def test_a_configuration_names_all_cells(sources: Sources) -> None:
    assert [cell.name for cell in sources.cells] == ["one", "two"]
    assert sources.all_cells == sources.cells
    assert sources.api is not None
    assert sources.service_down_time == timedelta(seconds=90)


@pytest.mark.parametrize(("names", "left"), [((), ["one", "two"]), (("two",), ["two"]), ((CELL1,), ["one"])])
def test_cells_are_chosen_by_name_or_uuid(sources: Sources, names: tuple[str, ...], left: list[str]) -> None:
    chosen = sources.named(names)
    assert [cell.name for cell in chosen.cells] == left
    assert [cell.name for cell in chosen.all_cells] == ["one", "two"]


def test_an_unknown_cell_is_named_with_the_known_ones(sources: Sources) -> None:
    with pytest.raises(UsageError, match="there is no cell 'six'") as raised:
        sources.named(["two", "six"])
    assert raised.value.remedy == "known: one, two"


def test_cell0_alone_has_no_hosts_to_check(sources: Sources) -> None:
    cell0 = replace(sources.cells[0], uuid=CELL0, name="cell0")
    with pytest.raises(UsageError, match="cell0 has no compute hosts") as raised:
        replace(sources, cells=(cell0, *sources.cells)).named(["cell0"])
    assert raised.value.remedy == "known: one, two"


@pytest.mark.parametrize("cells", [{}, {"cell0": "sqlite:///cell0.sqlite"}])
def test_an_api_database_without_cells_is_refused(tmp_path: Path, cells: dict[str, str]) -> None:
    """It is that of another service, or empty: nothing of the cloud would be checked."""
    path = nova_conf(tmp_path, cells)
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(f"UPDATE cell_mappings SET uuid = '{CELL0}'")
    with pytest.raises(DatabaseError, match=r"API database .* has no cell with hosts"):
        Sources.from_nova_conf([path])


def test_one_database_is_one_cell(tmp_path: Path) -> None:
    sources = Sources.from_url(f"sqlite:///{tmp_path}/nova.sqlite")
    assert [(cell.name, cell.uuid) for cell in sources.cells] == [("cell", "")]
    assert (sources.api, sources.all_cells, sources.with_hosts) == (None, (), sources.cells)


def test_cell0_has_no_hosts(sources: Sources) -> None:
    first = sources.cells[0]
    with_cell0 = Sources(cells=(type(first)(uuid=CELL0, name="cell0", disabled=False, database=first.database), first))
    assert with_cell0.with_hosts == (first,)


def test_hosts_that_no_cell_has(sources: Sources) -> None:
    """A deleted compute node counts: its rows can be repaired."""
    assert unknown_hosts(sources, ["gpu1", "gpu2", "gpu3"]) == {"gpu3"}
    assert unknown_hosts(sources, []) == set()
