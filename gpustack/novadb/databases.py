"""Databases: URLs, and connections that read one consistent state.

Passwords stay inside SQLAlchemy's URL objects; messages and exceptions of this module never contain them.
"""

import configparser
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from gpustack.base import silence
from gpustack.base.errors import DatabaseError
from gpustack.base.known_secrets import learn
from gpustack.novadb import connection_options
from gpustack.novadb.model import DAMAGE

# From the database kind in Nova's connection to the driver that gpustack depends on.
_DRIVERS = {
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg2",
    "sqlite": "sqlite",
}
_MAX_URL = 16384
LOCK_TIMEOUT = 5
"""Seconds that a statement waits for a lock. By default, MariaDB waits a day for a table, and PostgreSQL forever."""
_SECOND_AT = "[^:/]*://[^:/]*:[^@]*@(?!/).*@"


@dataclass(frozen=True, kw_only=True)
class Database:
    """One database: its name, and its URL with the password hidden in ``repr``."""

    name: str
    url: sa.URL
    problem: DatabaseError | None = None
    """Why the database cannot be opened at all, such as an invalid connection; None if it can."""

    @property
    def where(self) -> str:
        """The name and the URL for messages, without password; without the query too if it contains one."""
        has_secret = any("pass" in name.lower() for name in self.url.query)
        url = self.url.set(query={}) if has_secret else self.url
        return f"{self.name} ({url.render_as_string(hide_password=True)})"

    def __repr__(self) -> str:
        return f"Database({self.where})"


def database(name: str, url: str) -> Database:
    """Return a database from a connection URL as in nova.conf.

    :param name: the name of the database for messages.
    :raises DatabaseError: if the URL is invalid, or its database is not one that Nova supports.
    """
    if re.match(_SECOND_AT, url[:_MAX_URL]):  # the text before it is part of the password
        raise DatabaseError(
            "the user's name or the password has a character that means something else in a URL",
            where=name,
            remedy="write it percent-encoded: @ is %40, / is %2F, : is %3A, # is %23",
        )
    try:
        parsed = sa.make_url(url if len(url) <= _MAX_URL else "")
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        # Their messages repeat the URL or parts of it, including the password.
        remedy = "expected mysql+pymysql://user:password@host/nova"
        raise DatabaseError("the connection is no database URL", where=name, remedy=remedy) from None
    kind = parsed.get_backend_name()
    if kind not in _DRIVERS:
        what = f"{kind} is no database that Nova uses"
        raise DatabaseError(what, where=name, remedy="expected mysql, postgresql or sqlite")
    learn([url, parsed.username, parsed.host, parsed.database, dict(parsed.normalized_query)])
    return Database(name=name, url=connection_options.accepted(parsed.set(drivername=_DRIVERS[kind]), name))


_REUSED: Mapping[str, Any] = {"poolclass": sa.QueuePool, "pool_size": 1, "max_overflow": -1, "pool_pre_ping": True}


def engine(of: Database, pool: Mapping[str, Any] | None = None, **arguments: object) -> sa.Engine:
    """Return an engine whose connections are closed after use.

    :param pool: otherwise, what becomes of them.
    :param arguments: arguments for the driver.
    :raises DatabaseError: if the connection is invalid, or its SQLite file does not exist (SQLite would create an empty
        one).
    """
    if of.problem is not None:
        raise of.problem
    kind, path = of.url.get_backend_name(), of.url.database
    if kind == "sqlite" and not os.path.isfile(path or ""):  # noqa: PTH113 - a Path raises if its name is too long
        raise DatabaseError("there is no such database file", where=of.where, remedy="check the path of the connection")
    arguments |= connection_options.arguments(of.url)
    try:
        pooled = pool or {"poolclass": sa.NullPool}
        opened = sa.create_engine(of.url, **pooled, hide_parameters=True, connect_args=arguments)
    except (SQLAlchemyError, *_MISUSED) as error:
        raise _misused(of, error) from None
    sa.event.listen(opened, "connect", lambda connection, _record: connection_options.unlimited(of.url, connection))
    sa.event.listen(opened, "handle_error", _broken_answer)
    return opened


# Exceptions that drivers raise for invalid arguments and for malformed answers of a server.
_MISUSED = (*DAMAGE, RuntimeError, AssertionError, struct.error, configparser.Error)


def _misused(of: Database, error: Exception) -> DatabaseError:
    remedy = "check the options after the ?, and that the server is one of this kind"
    return DatabaseError(f"{of.url.drivername} can't use the connection: {error}", where=of.where, remedy=remedy)


def _broken_answer(context: sa.engine.ExceptionContext) -> BaseException | None:
    """Convert a driver's exception for a malformed or refused answer to a database error."""
    if isinstance(context.original_exception, _MISUSED):
        return SQLAlchemyError(f"the server's answer is not acceptable: {context.original_exception}")
    return None


def connected(opened: sa.Engine, of: Database) -> sa.Connection:
    """Open a connection.

    :raises DatabaseError: if the driver does not support an option of the connection.
    """
    begun = time.monotonic()
    try:
        return opened.connect()
    except (OSError, *_MISUSED) as error:  # OSError: a certificate that this user can't read
        raise _misused(of, error) from None
    except SQLAlchemyError:
        silence.waited(time.monotonic() - begun)
        raise


@contextmanager
def errors_of(database: Database) -> Iterator[None]:
    """Raise the errors of a driver as a :class:`DatabaseError` of this database, without its password."""
    try:
        yield
    except SQLAlchemyError as error:
        raise unreachable(database, error) from None


_engines: ContextVar[dict[Database, sa.Engine] | None] = ContextVar("engines", default=None)


@contextmanager
def reusing_connections() -> Iterator[None]:
    """Let the snapshots of a database follow each other on one connection, each in a transaction of its own.

    Each cell looks for owners in all others: the number of new connections would grow with the square of the cells.
    """
    engines: dict[Database, sa.Engine] = {}
    token = _engines.set(engines)
    try:
        yield
    finally:
        _engines.reset(token)
        for opened in engines.values():
            opened.dispose()


@contextmanager
def snapshot(of: Database) -> Iterator[sa.Connection]:
    """Open a read-only connection that sees one consistent state of the database while it is open.

    The transaction is ``REPEATABLE READ``, read only: it takes no lock for which Nova would wait, and it works on a
    replica. SQLite gets a deferred transaction on a connection that refuses to write.

    :raises DatabaseError: if the database cannot be reached or read; the message never contains the password.
    """
    engines = _engines.get()
    opened = engine(of) if engines is None else engines.get(of) or engines.setdefault(of, engine(of, _REUSED))
    with errors_of(of), connected(opened, of) as connection:
        _begin_reading(connection)
        yield connection


def limit_waits(connection: sa.Connection) -> None:
    """Let the statements of a transaction wait at most :data:`LOCK_TIMEOUT` seconds for a lock, as SQLite's driver."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
    elif connection.dialect.name != "sqlite":
        connection.exec_driver_sql(
            f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT}, lock_wait_timeout = {LOCK_TIMEOUT}"
        )


def _begin_reading(connection: sa.Connection) -> None:
    match connection.dialect.name:
        case "sqlite":
            connection.exec_driver_sql("PRAGMA query_only = ON")
            connection.exec_driver_sql("BEGIN")
        case "postgresql":
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            limit_waits(connection)
            # Cells are read a few hosts at a time. With the default of 4, the planner scans the complete table for each
            # batch instead of doing some hundred index look-ups.
            connection.exec_driver_sql("SET LOCAL random_page_cost = 1.1")
        case _:
            limit_waits(connection)
            connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


class BusyError(DatabaseError):
    """A lock timeout or a deadlock: nothing was written, and a new attempt may succeed."""


# MariaDB and MySQL: lock wait timeout, deadlock. PostgreSQL: serialization failure, deadlock, lock not available.
_BUSY_NUMBERS = (1205, 1213)
_BUSY_STATES = ("40001", "40P01", "55P03")


def _busy(cause: BaseException) -> bool:
    number = cause.args[0] if cause.args else None
    return (
        number in _BUSY_NUMBERS
        or getattr(cause, "pgcode", None) in _BUSY_STATES
        or getattr(cause, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    )


def unreachable(of: Database, error: SQLAlchemyError) -> DatabaseError:
    """Convert an exception to a DatabaseError. Drivers' messages contain users and hosts; passwords are removed."""
    cause = getattr(error, "orig", None) or error
    text = " ".join(map(str, cause.args))
    if _busy(cause):
        remedy = "try it again when the backup, upgrade or other session that holds the lock has ended"
        return BusyError(f"a lock could not be had: {' '.join(text.split())}", where=of.where, remedy=remedy)
    return DatabaseError(
        f"the database refused or was lost: {' '.join(text.split())}",
        where=of.where,
        remedy="check that this machine reaches the database, and that the connection's user and server permit the "
        "statement, as those of Nova's own services do",
    )
