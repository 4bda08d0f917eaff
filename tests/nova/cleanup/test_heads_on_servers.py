"""Every schema from Ocata's to 2026.2's, as Nova's own migrations make it on MariaDB and on PostgreSQL.

Releases with the same tables are tried once here; the versions that they record are read with SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack_demo.embedded.database import DatabaseServer
from support.schema_heads import check, distinct

Running = tuple[str, sa.URL]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    with DatabaseServer(request.param) as running:
        yield request.param, sa.make_url(running.url)


SCHEMAS = [(dialect, release) for dialect in ("mariadb", "postgresql") for release in distinct(dialect)]


@pytest.mark.parametrize(("server", "release"), SCHEMAS, indirect=["server"])
def test_leaks_in_the_schema_of_a_release(server: Running, release: str, tmp_path: Path) -> None:
    dialect, url = server
    name = release.replace(".", "_")
    postgres = dialect == "postgresql"
    maintenance = sa.create_engine(
        url.set(database="postgres" if postgres else None), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    with maintenance.connect() as connection:
        for kind in ("api", "cell"):
            connection.exec_driver_sql(f"CREATE DATABASE {kind}_{name}{'' if postgres else ' CHARACTER SET utf8'}")
    check(dialect, release, *(url.set(database=f"{kind}_{name}") for kind in ("api", "cell")), tmp_path)
