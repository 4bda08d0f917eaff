"""Values of hostile databases and of Placement, driven through clean-up from the reading to what is printed."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from gpustack.cloud import placement
from gpustack.novadb import databases, sources, tables
from gpustack.novadb.sources import Sources
from gpustack.repair import metrics, plan, show
from gpustack.repair.plan import Selection
from support.attack import JSON, SCALARS, TEXTS, attack, damaged, examples
from support.cellfile import API_HEAD, CELL_TABLES, CellFile, fill

VALUES = st.one_of(
    SCALARS.filter(lambda value: not isinstance(value, int) or abs(value) < 2**63),
    st.binary(max_size=20),
    st.sampled_from(
        ["2026-01-01 00:00:00", "0000-00-00 00:00:00", "9999-12-31 23:59:59", "claimed", "allocated", "vm-a"]
    ),
    JSON.map(json.dumps),
)
COLUMNS = [
    (name, column.name)
    for name in CELL_TABLES
    for column in tables.metadata.tables[name].columns
    if column.name != "id"
]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> CellFile:
    cell_file = CellFile(f"sqlite:///{tmp_path_factory.mktemp('cell')}/cell.sqlite")
    fill(cell_file)
    return cell_file


@examples(40)
@given(st.lists(st.tuples(st.sampled_from(COLUMNS), VALUES, st.integers(0, 8)), min_size=1, max_size=8))
def test_values_of_any_kind_in_any_column(cell: CellFile, changes: list[tuple[tuple[str, str], Any, int]]) -> None:
    sources = Sources.from_url(cell.url)
    with cell.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = MEMORY")
        before = {name: connection.exec_driver_sql(f"SELECT * FROM {name}").all() for name in CELL_TABLES}
        for (table, column), value, row in changes:
            if isinstance(value, str):
                value = value.encode("utf-8", "replace").decode()
            place = f"rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {row})"
            connection.exec_driver_sql(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {place}", (value,))
        connection.commit()
    directory = Path(cell.url.removeprefix("sqlite:///")).parent
    try:
        with attack(directory):
            cleanup_plan = plan.make(sources, Selection())
            for verdict in cleanup_plan.verdicts:
                show.explanation(verdict)
            json.dumps(cleanup_plan.to_dict(), default=str)
            metrics.write(directory / "metrics.prom", cleanup_plan)
            show.script(sources, cleanup_plan.repairs)
    finally:
        with cell.engine.connect() as connection:
            for name, rows in before.items():
                connection.exec_driver_sql(f"DELETE FROM {name}")
                marks = ", ".join("?" * len(rows[0])) if rows else ""
                for row in rows:
                    connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({marks})", tuple(row))
            connection.commit()


URLS = st.lists(
    st.one_of(
        TEXTS,
        st.sampled_from(
            [
                "mysql+pymysql://",
                "postgresql://",
                "sqlite:///",
                "nova:s3cr3t@",
                "127.0.0.1:1",
                "[::1]",
                "/nova",
                "?",
                "&",
                "local_infile=1",
                "host=/x",
                "ssl_ca=/x",
                "{username}",
                "{password}",
                "{port!r:>9}",
                "{0}",
                "{",
                "}}",
                "%41",
                "#",
            ]
        ),
    ),
    max_size=8,
).map("".join)


@examples(300)
@given(URLS, st.one_of(st.none(), URLS))
def test_connections(url: str, default: str | None) -> None:
    with attack():
        database = databases.database("cell c", sources.fill_template(url, default, "cell c"))
        assert "local_infile" not in database.url.query
        assert (
            database.url.password is None
            or len(database.url.password) < 4
            or database.url.password not in database.where
        )
        databases.engine(database).dispose()


@examples(40)
@given(st.lists(st.tuples(VALUES, VALUES, st.one_of(URLS, VALUES), VALUES), max_size=3))
def test_cell_mappings(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]) -> None:
    directory = tmp_path_factory.mktemp("api")
    engine = sa.create_engine(f"sqlite:///{directory}/api.sqlite", poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num)")
        connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{API_HEAD}')")
        connection.exec_driver_sql("CREATE TABLE cell_mappings (uuid, name, database_connection, disabled)")
        for row in rows:
            plain = tuple(v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in row)
            connection.exec_driver_sql("INSERT INTO cell_mappings VALUES (?, ?, ?, ?)", plain)
    with attack(directory):
        api = databases.database("API", f"sqlite:///{directory}/api.sqlite")
        for cell in sources.cells(api, "mysql://nova:s3cr3t@db/nova"):
            assert isinstance(cell.name, str)
            assert "s3cr3t" not in cell.database.where


CONSUMER = {
    "allocations": {"gpu": {"generation": 1, "resources": {"CUSTOM_PCI": 1}}},
    "consumer_generation": 1,
    "project_id": "p",
    "user_id": "u",
}
PROVIDERS = {
    "resource_providers": [
        {"uuid": "gpu", "name": "node_0000:81:00.0", "root_provider_uuid": "node"},
        {"uuid": "node", "name": "node", "root_provider_uuid": "node"},
    ]
}


@examples(150)
@given(st.one_of(JSON, damaged(CONSUMER)), st.one_of(st.just(PROVIDERS), JSON, damaged(PROVIDERS)), TEXTS)
def test_placement(consumer: Any, providers: Any, modified: str) -> None:
    def request(path: str, _method: str, **_more: Any) -> Any:
        document = providers if path.startswith("/resource_providers") and "allocations" not in path else consumer
        return SimpleNamespace(status_code=200, json=lambda: document, headers={"Last-Modified": modified})

    cloud: Any = SimpleNamespace(placement=SimpleNamespace(request=request))
    device = placement.Provider(uuid="gpu", name="n", root="node", address="0000:81:00.0", held={})
    with attack():
        placement.allocations_of(cloud, "vm")
    with attack():
        list(placement.providers(cloud))
    with attack():
        _told, updated = placement.stranger(cloud, "vm", device)
        assert updated is None or isinstance(updated, datetime)
