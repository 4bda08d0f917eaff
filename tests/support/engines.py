"""Let tests that open the same databases thousands of times keep an engine for each: it compiles statements once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from gpustack.novadb import databases
from gpustack.novadb.databases import Database
from gpustack.repair import apply


@contextlib.contextmanager
def engines_kept() -> Iterator[None]:
    """Keep the engine of each SQLite file. Connections are new each time, as without it."""
    kept: dict[tuple[object, ...], sa.Engine] = {}
    original = databases.engine

    def engine(of: Database, **arguments: object) -> sa.Engine:
        key = (of.url, *arguments.items())
        exists = of.url.get_backend_name() == "sqlite" and Path(of.url.database or "").is_file()
        if of.problem is not None or not exists:
            return original(of, **arguments)
        return kept.get(key) or kept.setdefault(key, original(of, **arguments))

    databases.engine = apply.engine = engine  # type: ignore[attr-defined]
    try:
        yield
    finally:
        databases.engine = apply.engine = original  # type: ignore[attr-defined]
