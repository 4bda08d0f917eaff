"""Every schema from Ocata's to 2026.2's, as Nova's own migrations make it on MariaDB and on PostgreSQL.

Releases with the same tables are tried once here; the versions that they record are read with SQLite.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from support.schema_heads import check, distinct

SCHEMAS = [(dialect, release) for dialect in ("mariadb", "postgresql") for release in distinct(dialect)]


@pytest.mark.parametrize(("dialect", "release"), SCHEMAS)
def test_leaks_in_the_schema_of_a_release(
    database_url: Callable[[str | None], str | None], dialect: str, release: str, tmp_path: Path
) -> None:
    url = sa.make_url(database_url(dialect) or "")
    name = release.replace(".", "_")
    postgres = dialect == "postgresql"
    maintenance = sa.create_engine(
        url.set(database="postgres" if postgres else None), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    with maintenance.connect() as connection:
        for kind in ("api", "cell"):
            connection.exec_driver_sql(f"CREATE DATABASE {kind}_{name}{'' if postgres else ' CHARACTER SET utf8'}")
    check(dialect, release, *(url.set(database=f"{kind}_{name}") for kind in ("api", "cell")), tmp_path)
