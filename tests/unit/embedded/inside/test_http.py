"""Requests that write wait for each other, as a SQLite file behind a service needs it; those that read do not."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpustack_demo.embedded.inside.http import App, one_writer

REQUESTS = 16


def counting(path: Path, between: Callable[[], object]) -> App:
    """A service that does as oslo.db does: a transaction reads first, and then writes.

    :param between: called between reading and writing.
    """
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE counter (n INTEGER)")
        database.execute("INSERT INTO counter VALUES (0)")

    def app(environ, start_response):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("BEGIN")
            (count,) = database.execute("SELECT n FROM counter").fetchone()
            between()
            if environ["REQUEST_METHOD"] != "GET":
                database.execute("UPDATE counter SET n = ?", (count + 1,))
            database.execute("COMMIT")
        return [str(count).encode()]

    return app


def requested(app: App, count: int = REQUESTS) -> None:
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda _: app({"REQUEST_METHOD": "POST"}, None), range(count)))


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        requested(counting(tmp_path / "alone.sqlite", threading.Barrier(2, timeout=120).wait), count=2)
    app = counting(tmp_path / "together.sqlite", lambda: time.sleep(0.01))
    requested(one_writer(app))
    assert app({"REQUEST_METHOD": "GET"}, None) == [str(REQUESTS).encode()]


def test_readers_do_not() -> None:
    together = threading.Barrier(2, timeout=120)

    def app(environ, start_response):
        together.wait()
        return []

    wrapped = one_writer(app)
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(lambda _: wrapped({"REQUEST_METHOD": "GET"}, None), range(2)))
    assert not together.broken
