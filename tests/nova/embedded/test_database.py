"""Real MariaDB and PostgreSQL servers under the conditions of a bare machine."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import time
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


_STARTS_A_SERVER = """
import sys
from gpustack_demo.embedded.database import DatabaseServer
server = DatabaseServer(sys.argv[1]).__enter__()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_server_ends_with_a_killed_process(kind: str, long: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTS_A_SERVER, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(long)},
    )
    with process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert _runs(pid)
        process.kill()
    deadline = time.monotonic() + 60
    while _runs(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    """Whether the process exists and is not a zombie, which an init process may not collect."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
