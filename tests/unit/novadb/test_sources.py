"""The databases of a plan: all cells of a configuration, one by its URL, and the choice among them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.errors import DatabaseError, UsageError
from gpustack.novadb.cells import CELL0
from gpustack.novadb.sources import Sources, unknown_hosts
from support.cellfile import CELL1, CellFile, nova_conf


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
