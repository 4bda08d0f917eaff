"""Where a state is judged: Nova's databases as files of SQLite, its cell also on a server."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpustack.novadb.sources import Sources
from support.cellfile import CELL_TABLES

COPIED = (*CELL_TABLES, "alembic_version")
Dump = dict[str, list[tuple[object, ...]]]


@dataclass(frozen=True)
class Place:
    """The databases in a directory; the cell is a database on a server if ``server`` names one.

    There, clean-up's tables are copies of those that Nova makes in SQLite, without foreign keys.
    """

    directory: Path
    server: sa.URL | None = None

    @property
    def cell(self) -> Path:
        """The file of the cell; what is loaded to a server, if there is one."""
        return self.directory / "cell1.sqlite"

    @cached_property
    def engine(self) -> sa.Engine:
        """The engine of the cell, for SQL in the notation of the standard."""
        engine = sa.create_engine(self.server or f"sqlite:///{self.cell}", poolclass=sa.NullPool)
        if engine.dialect.name in ("mysql", "mariadb"):
            sa.event.listen(
                engine,
                "connect",
                lambda connection, _: connection.query("SET SESSION sql_mode = 'ANSI,STRICT_TRANS_TABLES'"),
            )
        return engine

    @cached_property
    def _tables(self) -> Sequence[sa.Table]:
        """The tables on the server, which are made if they are missing."""
        read, made = sa.MetaData(), sa.MetaData()
        file = sa.create_engine(f"sqlite:///{self.cell}", poolclass=sa.NullPool)
        read.reflect(file, only=COPIED)
        for name in COPIED:
            columns = read.tables[name].columns
            copies = (
                sa.Column(c.name, c.type.as_generic(), primary_key=c.primary_key, nullable=c.nullable) for c in columns
            )
            unique = (
                sa.UniqueConstraint(*key["column_names"]) for key in sa.inspect(file).get_unique_constraints(name)
            )
            sa.Table(name, made, *copies, *unique)
        made.create_all(self.engine)
        return [made.tables[name] for name in COPIED]

    def found(self, state: Path, now: datetime, *, up: bool) -> Sources:
        """Copy a state, as it is found at a time: services of the controllers report."""
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(state, self.directory)
        urls = {"cell0": f"sqlite:///{self.directory}/cell0.sqlite"}
        urls["cell1"] = self.server.render_as_string(False) if self.server else f"sqlite:///{self.cell}"
        with closing(sqlite3.connect(self.directory / "api.sqlite")) as api, api:
            for name, url in urls.items():
                api.execute("UPDATE cell_mappings SET database_connection = ? WHERE name = ?", (url, name))
        with closing(sqlite3.connect(self.cell)) as cell, cell:
            text = now.strftime("%F %T.%f")
            cell.execute("UPDATE services SET last_seen_up = ? WHERE \"binary\" <> 'nova-compute'", (text,))
            if up:
                cell.execute("UPDATE services SET last_seen_up = ?, updated_at = ?, forced_down = 0", (text, text))
                cell.execute("UPDATE compute_nodes SET updated_at = ? WHERE deleted = 0", (text,))
        self._load()
        conf = self.directory / "nova.conf"
        conf.write_text(f"[api_database]\nconnection = sqlite:///{self.directory}/api.sqlite\n")
        return Sources.from_nova_conf([conf])

    def _load(self) -> None:
        if self.server is None:
            return
        tables = self._tables
        with sa.create_engine(f"sqlite:///{self.cell}", poolclass=sa.NullPool).connect() as file:
            rows = [file.execute(sa.select(table)).mappings().all() for table in tables]
        self._replace(self.engine, tables, rows)

    def _replace(
        self, engine: sa.Engine, tables: Sequence[sa.Table], rows: Sequence[Sequence[Mapping[Any, Any]]]
    ) -> None:
        with engine.begin() as connection:
            for table, of_table in zip(tables, rows, strict=True):
                connection.execute(table.delete())
                if of_table:
                    connection.execute(table.insert(), [dict(row) for row in of_table])

    def save(self, path: Path) -> None:
        """Write the cell as it is now to a file."""
        shutil.copy(self.cell, path)
        if self.server is not None:
            with self.engine.connect() as connection:
                rows = [connection.execute(sa.select(table)).mappings().all() for table in self._tables]
            self._replace(sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool), self._tables, rows)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let the cell be as before afterwards."""
        before = self.directory / "kept"
        self.save(before)
        try:
            yield
        finally:
            shutil.copy(before, self.cell)
            self._load()

    def rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query), values)]

    def write(self, statement: str, values: Mapping[str, object]) -> bool:
        """Whether a statement changed a row. Nova can't either if a unique key forbids it."""
        try:
            with self.engine.begin() as connection:
                return connection.execute(sa.text(statement), values).rowcount > 0
        except sa.exc.IntegrityError:
            return False

    def dump(self) -> Dump:
        """All rows of clean-up's tables, each with its id first."""
        queries = {name: f"SELECT id, {name}.* FROM {name} ORDER BY id" for name in CELL_TABLES}
        return {name: self.rows(query) for name, query in queries.items()}
