"""A database: its URL, and connections that read one consistent state of it.

Passwords stay inside SQLAlchemy's URL objects: what this module prints or raises has them hidden.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from gpustack.cleanup import connection_options
from gpustack.errors import DatabaseError

# Nova's own driver names, and those of the pure or binary drivers that gpustack depends on.
_DRIVERS = {
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg2",
    "sqlite": "sqlite",
}
_MAX_URL = 16384


@dataclass(frozen=True, kw_only=True)
class Database:
    """One database: how to call it, and its URL with the password hidden in ``repr``."""

    name: str
    url: sa.URL
    problem: DatabaseError | None = None
    """Why it can't even be tried to reach it."""

    @property
    def where(self) -> str:
        """What to call it in messages: the name and the URL without its password, and without a query that has one."""
        url = self.url if not self._in_query else self.url.set(query={})
        return f"{self.name} ({url.render_as_string(hide_password=True)})"

    def without_secrets(self, text: str) -> str:
        """A driver's message, without the password that it may have in it."""
        public = (self.url.username, self.url.host, self.url.database)
        return connection_options.without_secrets(text, self.secrets, filter(None, public))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password, wherever the URL has it."""
        return tuple(str(secret) for secret in (self.url.password, *self._in_query) if secret)

    @property
    def _in_query(self) -> tuple[str, ...]:
        options = self.url.query.items()
        return tuple(
            text
            for name, value in options
            if "pass" in name.lower()
            for text in ((value,) if isinstance(value, str) else value)
        )

    def __repr__(self) -> str:
        return f"Database({self.where})"


def database(name: str, url: str) -> Database:
    """A database from a connection URL as nova.conf has it.

    :raises DatabaseError: when the URL is none, or of a database that Nova does not use.
    """
    try:
        parsed = sa.make_url(url if len(url) <= _MAX_URL else "")
    except (ArgumentError, ValueError):  # the latter of a port that is no number
        # Their messages repeat the URL, or pieces of it, password and all.
        raise DatabaseError(
            "the connection is no database URL", where=name, remedy="expected mysql+pymysql://user:password@host/nova"
        ) from None
    kind = parsed.get_backend_name()
    if kind not in _DRIVERS:
        raise DatabaseError(
            f"{kind} is no database that Nova uses", where=name, remedy="expected mysql, postgresql or sqlite"
        )
    if parsed.host and "@" in parsed.host:  # what stands before it is the end of the password: not to be shown
        raise DatabaseError(
            "the user's name or the password has a character that means something else in a URL",
            where=name,
            remedy="write it percent-encoded: @ is %40, / is %2F, : is %3A, # is %23",
        )
    return Database(name=name, url=connection_options.accepted(parsed.set(drivername=_DRIVERS[kind]), name))


def engine(of: Database, **arguments: object) -> sa.Engine:
    """What makes connections to a database, each of which is closed after its use.

    :param arguments: for the driver.
    :raises DatabaseError: when its connection is none, or leads to no file: SQLite would make an empty database there.
    """
    if of.problem is not None:
        raise of.problem
    kind, path = of.url.get_backend_name(), of.url.database
    if kind == "sqlite" and not (path and _is_file(path)):
        raise DatabaseError("there is no such database file", where=of.where, remedy="check the path of the connection")
    arguments |= connection_options.arguments(of.url)
    try:
        opened = sa.create_engine(of.url, poolclass=sa.NullPool, hide_parameters=True, connect_args=arguments)
    except (SQLAlchemyError, *_MISUSED) as error:
        raise _misused(of, error) from None
    sa.event.listen(opened, "connect", lambda connection, _record: connection_options.unlimited(of.url, connection))
    sa.event.listen(opened, "handle_error", _broken_answer)
    return opened


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long a name, or one that none can have
        return False


# What drivers raise where an argument of theirs is wrong, or where a server answers what no server should.
_MISUSED = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    RuntimeError,
    AssertionError,
    ArithmeticError,
    struct.error,
)


def _misused(of: Database, error: Exception) -> DatabaseError:
    return DatabaseError(
        f"{of.url.drivername} can't use the connection: {of.without_secrets(str(error))}",
        where=of.where,
        remedy="check the options after the ?, and that the server is one of this kind",
    )


def _broken_answer(context: sa.engine.ExceptionContext) -> BaseException | None:
    """An answer that the driver stumbles over, or refuses, is an error of the database as any other."""
    if isinstance(context.original_exception, _MISUSED):
        return SQLAlchemyError(f"the server's answer is not acceptable: {context.original_exception}")
    return None


def connected(opened: sa.Engine, of: Database) -> sa.Connection:
    """A connection.

    :raises DatabaseError: when the connection's query says what the driver has no use for, as that of another driver.
    """
    try:
        return opened.connect()
    except _MISUSED as error:
        raise _misused(of, error) from None


@contextmanager
def snapshot(of: Database) -> Iterator[sa.Connection]:
    """A read-only connection that sees one consistent state of the database for as long as it is open.

    The transaction is ``REPEATABLE READ``, read only: it takes no lock that a running Nova would wait for, and works on
    a replica. SQLite gets a deferred transaction on a connection that refuses to write.

    :raises DatabaseError: when the database can't be reached or read; never with the password in it.
    """
    opened = engine(of)
    try:
        with connected(opened, of) as connection:
            _begin_reading(connection)
            yield connection
    except SQLAlchemyError as error:
        raise unreachable(of, error) from None
    finally:
        opened.dispose()


def _begin_reading(connection: sa.Connection) -> None:
    match connection.dialect.name:
        case "sqlite":
            connection.exec_driver_sql("PRAGMA query_only = ON")
            connection.exec_driver_sql("BEGIN")
        case "postgresql":
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # Cells are read a few hosts at a time. By its default, 4, the planner takes a scan of the whole table for
            # cheaper than some hundred look-ups in an index, and would repeat it for each portion.
            connection.exec_driver_sql("SET LOCAL random_page_cost = 1.1")
        case _:
            connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


class BusyError(DatabaseError):
    """Somebody else holds a lock, or won a deadlock: nothing was written, and trying again may help."""


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
    """What a failed connection or statement is told as; drivers' messages name users and hosts, not passwords."""
    cause = getattr(error, "orig", None) or error
    text = " ".join(str(argument) for argument in getattr(cause, "args", ()) or (cause,))
    text = of.without_secrets(text)
    if _busy(cause):
        return BusyError(f"a lock could not be had: {' '.join(text.split())}", where=of.where, remedy="try it again")
    return DatabaseError(
        f"the database refused or was lost: {' '.join(text.split())}",
        where=of.where,
        remedy="see that this machine reaches the database with this connection, as Nova's own services do",
    )
