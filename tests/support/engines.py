"""Let tests that open the same databases thousands of times keep an engine and the schema of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpustack.novadb import databases
from gpustack.novadb.databases import Database
from gpustack.repair import apply


@contextlib.contextmanager
def engines_kept() -> Iterator[None]:
    """Keep the engine of each SQLite file: it compiles statements once. Its tables, which are the same each time, are
    reflected once. Connections are new each time, also in a plan.
    """
    kept: dict[tuple[object, ...], sa.Engine] = {}
    reflected: dict[sa.Engine, dict[Any, Any]] = {}
    original, inspect = databases.engine, sa.inspect

    def engine(of: Database, pool: Any = None, **arguments: Any) -> sa.Engine:
        key = (of.url, *arguments.items())
        exists = of.url.get_backend_name() == "sqlite" and Path(of.url.database or "").is_file()
        if of.problem is not None or not exists:
            return original(of, **arguments)
        return kept.get(key) or kept.setdefault(key, original(of, **arguments))

    def inspected(connection: sa.Connection) -> sa.Inspector:
        inspector = inspect(connection)
        if connection.engine in kept.values():
            inspector.info_cache = reflected.setdefault(connection.engine, {})
        return inspector

    databases.engine = apply.engine = engine  # type: ignore[attr-defined]
    sa.inspect = inspected  # type: ignore[assignment]
    try:
        yield
    finally:
        databases.engine = apply.engine = original  # type: ignore[attr-defined]
        sa.inspect = inspect


def maintenance(server: sa.URL) -> sa.Engine:
    """An engine that creates and drops databases of a server."""
    database = "postgres" if server.get_backend_name() == "postgresql" else None
    return sa.create_engine(server.set(database=database), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
