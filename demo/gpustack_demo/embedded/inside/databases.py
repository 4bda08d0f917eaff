# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc"
"""Real databases for Nova: SQLite files, or schemas on a MariaDB or PostgreSQL server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import fixtures
import nova.conf
import nova.rpc
import sqlalchemy
from nova.db import migration
from nova.db.main import api as main_api
from nova.tests import fixtures as nova_fixtures
from oslo_db.sqlalchemy import engines
from oslo_messaging import get_rpc_server

from . import marks

_KEEP = {"alembic_version", "migrate_version"}


class Kept(sqlalchemy.pool.NullPool):
    """Keeps any number of connections.

    oslo.db opens an SQLite file again for each transaction. The new connection then reads the complete schema, which
    costs a sixth of Nova's processor time. SQLAlchemy's own pools have locks, which eventlet replaces; but the garbage
    collector also returns connections in native threads.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._idle: list[Any] = []

    def _do_get(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return super()._do_get()

    def _do_return_conn(self, record: Any) -> None:
        self._idle.append(record)

    def dispose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class Lasting(sqlalchemy.pool.StaticPool):
    """Keeps its connection, and so a database in memory (that of Placement).

    oslo.db opens each connection again after an hour (``connection_recycle_time``); such a database then has no tables.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "recycle": -1})


def keep_connections() -> None:
    """Make oslo.db keep connections to SQLite. Yoga and 2023.1 (SQLAlchemy 1.4) ask here only for those in memory."""
    engines.pool = SimpleNamespace(**{**vars(sqlalchemy.pool), "NullPool": Kept, "StaticPool": Lasting})


def create(url: str) -> None:
    """Create the database of ``url`` on its server if it is missing; SQLite creates files itself."""
    target = sqlalchemy.engine.make_url(url)
    if target.drivername.startswith("sqlite"):
        return
    maintenance = target.set(database="postgres" if target.drivername.startswith("postgresql") else "mysql")
    engine = sqlalchemy.create_engine(maintenance, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            if target.database not in sqlalchemy.inspect(connection).get_schema_names() + _databases(connection):
                charset = " CHARACTER SET utf8" if target.drivername.startswith("mysql") else ""
                connection.execute(sqlalchemy.text(f"CREATE DATABASE {target.database}{charset}"))
    finally:
        engine.dispose()


def _databases(connection: Any) -> list[str]:
    if connection.dialect.name != "postgresql":
        return []
    return [row[0] for row in connection.execute(sqlalchemy.text("SELECT datname FROM pg_database"))]


def prepare(engine: Any, database: str) -> None:
    """Create the schema in an empty database (``api`` or ``main``); if it exists, empty all tables."""
    names = set(sqlalchemy.inspect(engine).get_table_names())
    if not names & _KEEP:
        migration.db_sync(database=database)
        return
    if engine.dialect.name == "sqlite":
        return  # a new copy of a template
    with engine.begin() as connection:
        tables = sorted(names - _KEEP)
        if engine.dialect.name == "postgresql":
            quoted = ", ".join(f'"{name}"' for name in tables)
            connection.execute(sqlalchemy.text(f"TRUNCATE {quoted} RESTART IDENTITY CASCADE"))
            return
        connection.execute(sqlalchemy.text("SET FOREIGN_KEY_CHECKS = 0"))
        for name in tables:
            connection.execute(sqlalchemy.text(f"TRUNCATE TABLE `{name}`"))
        connection.execute(sqlalchemy.text("SET FOREIGN_KEY_CHECKS = 1"))


class ApiDatabase(nova_fixtures.Database):
    """The API database at ``[api_database] connection``."""

    def setUp(self) -> None:
        """Create the database before the first connection."""
        create(nova.conf.CONF.api_database.connection)
        super().setUp()

    def _apply_schema(self) -> None:
        prepare(self.get_engine(), "api")


class Serializer(nova_fixtures.CheatingSerializer):
    """Marks incoming requests as work of the service that receives them."""

    def __init__(self, base: Any, mark: marks.Mark | None) -> None:
        super().__init__(base)
        self._mark = mark

    def deserialize_context(self, values: Any) -> Any:
        """The marked context of a call."""
        context = super().deserialize_context(values)
        if self._mark is not None:
            self._mark.put_on(context)
        return context


class CellDatabases(nova_fixtures.CellDatabases):
    """Cell databases at the URLs of the cell mappings.

    Nova's own fixture keeps them in memory and switches one global "current cell". Here, a context without a cell gets
    the cell of the running service.
    """

    def __init__(self) -> None:
        super().__init__()
        self._default_ctxt_mgr: Any = None
        self._cells: dict[str, Any] = {}

    def add(self, name: str, url: str) -> None:
        """Use the database at ``url`` for the cell ``name``, and create its schema."""
        create(url)
        manager = main_api.create_context_manager(connection=url)
        self._ctxt_mgrs[url] = self._cells[name] = manager
        if self._default_ctxt_mgr is None or name == "cell1":
            self._default_ctxt_mgr = manager
        with fixtures.MonkeyPatch("nova.db.main.api.get_context_manager", lambda context: manager):
            prepare(manager.writer.get_engine(), "main")

    def engine(self, cell: str) -> Any:
        """The engine of a cell's database."""
        return self._cells[cell].writer.get_engine()

    def _wrap_target_cell(self, context: Any, cell_mapping: Any) -> Any:
        return self._real_target_cell(context, cell_mapping)

    def _wrap_get_context_manager(self, context: Any) -> Any:
        connection = getattr(context, "db_connection", None)
        if connection:
            return connection
        mark = marks.current()
        return self._cells[mark.cell] if mark and mark.cell in self._cells else self._default_ctxt_mgr

    def _wrap_get_server(self, target: Any, endpoints: Any, serializer: Any = None) -> Any:
        marking = Serializer(serializer, marks.current())
        return get_rpc_server(nova.rpc.TRANSPORT, target, endpoints, executor="eventlet", serializer=marking)
