"""From nova.conf to the databases: the API database, and through its cell mappings every cell.

A mapping's connection may be a template that Nova fills in from ``[database] connection``
(``nova/objects/cell_mapping.py``, ``_format_url``). Passwords stay inside SQLAlchemy's URL objects: what this module
prints or raises has them hidden.
"""

from __future__ import annotations

import re
import string
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from gpustack.cleanup import connection_options, schema
from gpustack.errors import DatabaseError, NovaConfigError
from gpustack.nova_options.config import files_of, read_files
from gpustack.nova_options.releases import Option

CELL0 = "00000000-0000-0000-0000-000000000000"

# Nova's own driver names, and those of the pure or binary drivers that gpustack depends on.
_DRIVERS = {
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg2",
    "sqlite": "sqlite",
}
_API_CONNECTION = Option(
    group="api_database",
    name="connection",
    kind="list",
    services=("api",),
    since=15,
    source="nova/conf/database.py",
)
_MAIN_CONNECTION = Option(
    group="database",
    name="connection",
    kind="list",
    services=("api",),
    old_names=("DEFAULT/sql_connection", "database/sql_connection", "sql/connection"),
    since=15,
    source="oslo_db/options.py; nova/conf/database.py",
)
_SERVICE_DOWN_TIME = Option(
    group="DEFAULT",
    name="service_down_time",
    kind="list",
    services=("api",),
    since=15,
    source="nova/conf/service.py",
)
_TEMPLATE = re.compile(r"\{(\w+)")
_MAX_URL = 16384
_PARTS = ("username", "password", "hostname", "port", "scheme", "query", "fragment", "path")


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
        shown = self.url if not self._in_query else self.url.set(query={})
        return f"{self.name} ({shown.render_as_string(hide_password=True)})"

    def without_secrets(self, text: str) -> str:
        """A driver's message, without the password that it may have in it."""
        shown = (self.url.username, self.url.host, self.url.database)
        return connection_options.without_secrets(text, self.secrets, filter(None, shown))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password, wherever the URL has it."""
        return tuple(str(one) for one in (self.url.password, *self._in_query) if one)

    @property
    def _in_query(self) -> tuple[str, ...]:
        said = self.url.query.items()
        return tuple(
            word
            for name, value in said
            if "pass" in name.lower()
            for word in ((value,) if isinstance(value, str) else value)
        )

    def __repr__(self) -> str:
        return f"Database({self.where})"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell mapping whose connection is complete."""

    uuid: str
    name: str
    disabled: bool
    database: Database


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


def fill_template(template: str, default: str | None, where: str) -> str:
    """A cell mapping's connection, its template filled in from ``[database] connection``.

    :raises NovaConfigError: when a template can't be filled in; Nova itself would not reach the cell.
    """
    if not set(_TEMPLATE.findall(template)) & set(_PARTS):
        return template  # other braces are a password's: Nova, which can't fill them in, leaves them as well
    if default is None:
        raise NovaConfigError(
            "the cell mapping's database_connection is a template, but [database] connection is not set",
            where=where,
            remedy="name the nova.conf of a host that has it, as nova-api's does",
        )
    try:
        parts = urlparse(default)
        values = {name: getattr(parts, name) for name in _PARTS} | {"path": parts.path.lstrip("/")}
        return "".join(_piece(values, *parsed) for parsed in string.Formatter().parse(template))
    except (ValueError, LookupError, AttributeError):
        # Their messages repeat pieces of the URLs, password and all.
        raise NovaConfigError(
            "the cell mapping's database_connection is a template that can't be filled in from [database] connection",
            where=where,
            remedy=f"it may name {', '.join(_PARTS)}; nova-manage cell_v2 list_cells -v shows it. In the connection's "
            "user and password, what means something else in a URL is written percent-encoded",
        ) from None


def _piece(values: Mapping[str, object], text: str, name: str | None, form: str | None, conversion: str | None) -> str:
    """A piece of a template: what precedes a name, and the name's value; nothing like ``{port:>999999999}``."""
    if form or conversion:
        raise ValueError("only names are filled in")
    return text if name is None else f"{text}{values[name]}"


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
    arguments |= connection_options.ARGUMENTS.get(kind, {})
    try:
        opened = sa.create_engine(of.url, poolclass=sa.NullPool, hide_parameters=True, connect_args=arguments)
    except (SQLAlchemyError, *_MISUSED) as error:
        raise _misused(of, error) from None
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


def cells(api: Database, default: str | None) -> tuple[Cell, ...]:
    """The cells of an API database, those without a compute host (cell0) too.

    :param default: ``[database] connection``, which templates are filled in from.
    """
    table = sa.table(
        "cell_mappings", *(sa.column(name) for name in ("uuid", "name", "database_connection", "disabled"))
    )
    with snapshot(api) as connection:
        schema.read(connection, "api", api.where)
        has_disabled = "disabled" in {c["name"] for c in sa.inspect(connection).get_columns("cell_mappings")}
        columns = [column for column in table.columns if column.name != "disabled" or has_disabled]
        rows: Sequence[sa.RowMapping] = connection.execute(sa.select(*columns)).mappings().all()
    # Nothing keeps two cells from having one name, nor a database such as SQLite's from having no text there.
    names = Counter(row["name"] for row in rows)
    found = []
    for row in rows:
        uuid = str(row["uuid"])
        name = str(row["name"]) if row["name"] and names[row["name"]] == 1 else uuid
        made = _of_cell(f"cell {name}", row["database_connection"], default)
        found.append(Cell(uuid=uuid, name=name, disabled=bool(row.get("disabled")), database=made))
    return tuple(sorted(found, key=lambda cell: (cell.uuid != CELL0, cell.name)))


def _of_cell(name: str, template: object, default: str | None) -> Database:
    """A cell's database; one whose connection is none can't be read, and keeps no other from being judged."""
    try:
        return database(name, fill_template(template if isinstance(template, str) else "", default, name))
    except (DatabaseError, NovaConfigError) as error:
        problem = DatabaseError(error.what, where=error.where, remedy=error.remedy)
        return Database(name=name, url=sa.URL.create("sqlite"), problem=problem)


def from_nova_conf(paths: Sequence[Path]) -> tuple[Database, str | None]:
    """The API database of a nova configuration, and ``[database] connection``.

    :raises NovaConfigError: when a file can't be read, or the files name no API database.
    """
    configuration = read_files([file for path in paths for file in files_of(path)])
    api, main = (configuration.value(option) for option in (_API_CONNECTION, _MAIN_CONNECTION))
    if not api:
        raise NovaConfigError(
            "[api_database] connection is not set",
            where=", ".join(configuration.files),
            remedy="name the configuration of nova-api (a compute host's has no database), or one cell with --db-url",
        )
    return database("API database", api), main or None


def service_down_time(paths: Sequence[Path]) -> int | None:
    """How long Nova waits for a service's report before it calls it down, in seconds; None when the files don't say.

    :raises NovaConfigError: when a file can't be read.
    """
    said = read_files([file for path in paths for file in files_of(path)]).effective(_SERVICE_DOWN_TIME)
    return int(said[-1].value) if said and said[-1].value.isdigit() else None
