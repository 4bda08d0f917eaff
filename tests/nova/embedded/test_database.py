"""Real MariaDB and PostgreSQL servers under the conditions of a bare machine."""

from __future__ import annotations

import pwd
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack_demo.embedded import database
from gpustack_demo.embedded.database import KINDS, DatabaseServer

_getpwnam = pwd.getpwnam


def _only_nobody(name: str) -> pwd.struct_passwd:
    """The accounts of a machine without the full server packages."""
    if name == "mysql":
        raise KeyError(name)
    return _getpwnam(name)


@pytest.fixture
def long() -> Iterator[Path]:
    """A directory of a long name with spaces. The account of root's servers may pass it, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        directory = Path(parent, ("a directory " * 9).strip())
        directory.mkdir(mode=0o755)
        yield directory


@pytest.mark.parametrize("kind", KINDS)
def test_servers_start_at_once_below_a_long_path_with_spaces(
    kind: str, long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database.tempfile, "tempdir", str(long))
    monkeypatch.setattr(database.pwd, "getpwnam", _only_nobody)
    servers = [DatabaseServer(kind), DatabaseServer(kind)]
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.__exit__, None, None, None)
        with ThreadPoolExecutor() as pool:
            list(pool.map(DatabaseServer.__enter__, servers))
        for server in servers:
            url = sa.make_url(server.url).set(database="postgres" if kind == "postgresql" else None)
            with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
                assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    assert not list(long.iterdir())
