"""A real Nova for all tests of a module; helpers are modules beside the tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack_demo.embedded.database import DatabaseServer
from support.cellfile import CellFile, fill
from support.clouds import running
from support.cloudworld import World
from support.engines import maintenance


@pytest.fixture(scope="session", autouse=True)
def no_trust_store() -> Iterator[None]:
    """Without certificates of the system, PyMySQL connects faster: it reads all of them for each connection."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            patch.setenv(name, os.devnull)
        yield


@pytest.fixture(scope="session")
def database_url() -> Iterator[Callable[[str | None], str | None]]:
    """The URL of a database server by its kind. Each is started once: Nova's schema takes it longer than a file."""
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(DatabaseServer(kind)).url if kind else None)


@pytest.fixture(scope="module")
def cloud(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    database_url: Callable[[str | None], str | None],
) -> Iterator[World]:
    """The Nova that the module's tests share; each makes hosts of its own."""
    release, placement, database, *more = request.param
    directory = tmp_path_factory.mktemp("ssh")
    ways = {way: way in more for way in ("live", "defers")}
    with running(release, placement, database_url(database), directory, **ways) as world:
        yield world


@pytest.fixture
def world(cloud: World, tmp_path: Path) -> Iterator[World]:
    """The shared Nova; what the test made is gone afterwards."""
    cloud.journal = tmp_path / "journal.jsonl"
    yield cloud
    cloud.tidy()


@pytest.fixture(scope="module", params=["mariadb", "postgresql"])
def server(request: pytest.FixtureRequest, database_url: Callable[[str | None], str | None]) -> sa.URL:
    """A database server, once for each kind."""
    return sa.make_url(database_url(request.param) or "")


@pytest.fixture
def url(server: sa.URL) -> Iterator[sa.URL]:
    """A new database on the server."""
    engine = maintenance(server)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE cell1")
    yield server.set(database="cell1")
    with engine.connect() as connection:
        if server.get_backend_name() == "postgresql":
            connection.exec_driver_sql("DROP DATABASE cell1 WITH (FORCE)")
        else:
            connection.exec_driver_sql("DROP DATABASE cell1")


@pytest.fixture
def cell(url: sa.URL) -> CellFile:
    cell_file = CellFile(url.render_as_string(hide_password=False))
    fill(cell_file)
    return cell_file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """openstacksdk and keystoneauth warn of their own ways."""
    for item in items:
        for warning in ("ignore::PendingDeprecationWarning", "ignore::ResourceWarning"):
            item.add_marker(pytest.mark.filterwarnings(warning))
