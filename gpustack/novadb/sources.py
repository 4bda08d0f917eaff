"""The sources of a plan: the API database of nova.conf, from its cell mappings every cell, and the hardware of hosts.

A mapping's connection may be a template that Nova fills in from ``[database] connection``
(``nova/objects/cell_mapping.py``, ``_format_url``).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlparse

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError, NovaConfigError, UsageError
from gpustack.nova_options import releases
from gpustack.nova_options.config import NovaConfiguration, files_of, read_files
from gpustack.nova_options.options import Option
from gpustack.novadb import databases, hardware, schema, tables
from gpustack.novadb.databases import Database, database, snapshot
from gpustack.novadb.model import Instance, Migration
from gpustack.novadb.requests import Asked

CELL0 = "00000000-0000-0000-0000-000000000000"
_API_CONNECTION = releases.option("api_database/connection")
_MAIN_CONNECTION = releases.option("database/connection")
_SERVICE_DOWN_TIME = releases.option("DEFAULT/service_down_time")
_REPORT_INTERVAL = releases.option("DEFAULT/report_interval")
_TEMPLATE = re.compile(r"\{(\w+)")
_PARTS = ("username", "password", "hostname", "port", "scheme", "query", "fragment", "path")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell mapping with its database."""

    uuid: str
    name: str
    disabled: bool
    database: Database


class Records(NamedTuple):
    """What a cell has of some instances, by uuid: records, PCI requests of the live ones, and all migrations."""

    names: frozenset[str]
    instances: Mapping[str, Instance]
    requests: Mapping[str, Asked]
    moves: Mapping[str, tuple[Migration, ...]]


def fill_template(template: str, default: str | None, where: str) -> str:
    """Fill in the template of a cell mapping's connection from ``[database] connection``.

    :param default: ``[database] connection``; None if not set.
    :param where: the name of the cell for error messages.
    :raises NovaConfigError: if the template cannot be filled in; Nova could not reach the cell either.
    """
    if not set(_TEMPLATE.findall(template)) & set(_PARTS):
        return template  # other braces belong to a password: Nova cannot fill them in either, and leaves them
    if default is None:
        what = "the cell mapping's database_connection is a template, but [database] connection is not set"
        raise NovaConfigError(what, where=where, remedy="name the nova.conf of a host that has it, as nova-api's does")
    try:
        parts = urlparse(default)
        values = {name: getattr(parts, name) for name in _PARTS} | {"path": parts.path.lstrip("/")}
        return "".join(_piece(values, *parsed) for parsed in string.Formatter().parse(template))
    except (ValueError, LookupError, AttributeError):
        # Their messages repeat parts of the URLs, including the password.
        raise NovaConfigError(
            "the cell mapping's database_connection is a template that can't be filled in from [database] connection",
            where=where,
            remedy=f"it may name {', '.join(_PARTS)}; nova-manage cell_v2 list_cells -v shows it. In the connection's "
            "user and password, what means something else in a URL is written percent-encoded",
        ) from None


def _piece(values: Mapping[str, object], text: str, name: str | None, form: str | None, conversion: str | None) -> str:
    """Return a literal and the value of the name after it; refuse format specifications (``{port:>999999999}``)."""
    if form or conversion:
        raise ValueError("only names are filled in")
    return text if name is None else f"{text}{values[name]}"


def cells(api: Database, default: str | None) -> tuple[Cell, ...]:
    """Return the cells of an API database, including cell0.

    :param default: ``[database] connection``, from which templates are filled in.
    :raises DatabaseError: if the API database cannot be read.
    """
    table = sa.table("cell_mappings", *map(sa.column, ("uuid", "name", "database_connection", "disabled")))
    with snapshot(api) as connection:
        schema.read(connection, "api", api.where)
        has_disabled = "disabled" in {c["name"] for c in sa.inspect(connection).get_columns("cell_mappings")}
        columns = [column for column in table.columns if column.name != "disabled" or has_disabled]
        rows: Sequence[sa.RowMapping] = connection.execute(sa.select(*columns)).mappings().all()
    # Two cells may have the same name, and a name may equal another cell's uuid. SQLite may even store a value that is
    # not text.
    names = Counter(str(value) for row in rows for value in {row["name"], row["uuid"]} if value)
    mapped = []
    for row in rows:
        uuid = str(row["uuid"])
        name = str(row["name"]) if row["name"] and names[str(row["name"])] == 1 else uuid
        cell_database = _of_cell(f"cell {name}", row["database_connection"], default)
        mapped.append(Cell(uuid=uuid, name=name, disabled=bool(row.get("disabled")), database=cell_database))
    return tuple(sorted(mapped, key=lambda cell: (cell.uuid != CELL0, cell.name)))


def _of_cell(name: str, template: object, default: str | None) -> Database:
    """Return a cell's database; an invalid connection becomes its ``problem``, so that other cells are still judged."""
    try:
        return database(name, fill_template(template if isinstance(template, str) else "", default, name))
    except (DatabaseError, NovaConfigError) as error:
        problem = DatabaseError(error.what, where=error.where, remedy=error.remedy)
        return Database(name=name, url=sa.URL.create("sqlite"), problem=problem)


def from_nova_conf(paths: Sequence[Path]) -> tuple[Database, str | None, timedelta]:
    """Return the API database of a nova configuration, ``[database] connection`` (None if not set), service_down_time.

    :raises NovaConfigError: if a file cannot be read, or the files name no API database.
    :raises DatabaseError: if the connection is not a database URL that gpustack accepts.
    """
    configuration = read_files([file for path in paths for file in files_of(path)])
    api, main = (configuration.value(option) for option in (_API_CONNECTION, _MAIN_CONNECTION))
    if not api:
        raise NovaConfigError(
            "[api_database] connection is not set",
            where=", ".join(configuration.files),
            remedy="name the configuration of nova-api (a compute host's has no database), or one cell with --db-url",
        )
    down, interval = (_seconds(configuration, option) for option in (_SERVICE_DOWN_TIME, _REPORT_INTERVAL))
    down = down if down > interval else int(interval * 2.5)  # as nova/servicegroup/api.py does
    return database("API database", api), main or None, timedelta(seconds=down)


def _seconds(configuration: NovaConfiguration, option: Option) -> int:
    """A time in nova.conf, at most some 68 years; the default if Nova refuses the value."""
    text = configuration.value(option)
    return int(option.default) if text is None or option.type.fault(text) else min(int(text), 2**31)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The databases and facts from which a plan is made.

    :ivar cells: the cells to judge.
    :ivar api: the API database; None if unknown.
    :ivar all_cells: all known cells. Owners may be in cells that are not judged.
    """

    cells: tuple[Cell, ...]
    api: Database | None = None
    all_cells: tuple[Cell, ...] = ()
    service_down_time: timedelta = timedelta(seconds=60)
    hardware: Mapping[str, hardware.Hardware] = field(default_factory=dict)
    """The hardware of hosts by name, from their facts."""
    services: dict[Database, frozenset[str]] = field(default_factory=dict, compare=False)
    """The uuids of the services of each cell, once they were read: each cell is compared with all others."""
    records: Mapping[str, Records] = field(default_factory=dict, compare=False)
    """What each cell has of the displaced owners of all cells, by the cell's uuid; empty if each is asked again."""

    @classmethod
    def from_nova_conf(cls, paths: list[Path]) -> Sources:
        """Return the API database of a nova configuration and all its cells.

        :raises NovaConfigError: if a file cannot be read, or the files name no API database.
        :raises DatabaseError: if the API database cannot be read, or has no cell with hosts.
        """
        api, main, service_down_time = from_nova_conf(paths)
        known = cells(api, main)
        sources = cls(api=api, cells=known, all_cells=known, service_down_time=service_down_time)
        if not sources.with_hosts:
            remedy = "check [api_database] connection; nova-manage cell_v2 list_cells shows the cells"
            raise DatabaseError("the API database has no cell with hosts", where=api.where, remedy=remedy)
        return sources

    @classmethod
    def from_url(cls, url: str) -> Sources:
        """Return a single cell without API database.

        :raises DatabaseError: if the URL is invalid.
        """
        cell = Cell(uuid="", name="cell", disabled=False, database=databases.database("cell database", url))
        return cls(cells=(cell,))

    @property
    def with_hosts(self) -> tuple[Cell, ...]:
        """The cells to judge without cell0, which has no compute host."""
        return tuple(cell for cell in self.cells if cell.uuid != CELL0)

    def named(self, names: Iterable[str]) -> Sources:
        """Return the sources with only the cells of these names or uuids; all cells if ``names`` is empty.

        :raises UsageError: if no cell has one of the names.
        """
        wanted = set(names)
        chosen = tuple(cell for cell in self.cells if not wanted or cell.name in wanted or cell.uuid in wanted)
        missing = wanted - {name for cell in chosen for name in (cell.name, cell.uuid)}
        if missing or (wanted and all(cell.uuid == CELL0 for cell in chosen)):
            what = f"there is no cell {sorted(missing)[0]!r}" if missing else "cell0 has no compute hosts"
            raise UsageError(what, remedy=f"known: {', '.join(cell.name for cell in self.with_hosts)}")
        return replace(self, cells=chosen)


def unknown_hosts(sources: Sources, hosts: Iterable[str]) -> set[str]:
    """Return those of these hosts of which no cell has a compute node, not even a deleted one.

    :raises DatabaseError: if a cell cannot be read.
    """
    missing = set(hosts)
    for cell in sources.with_hosts:
        if missing:
            with databases.snapshot(cell.database) as connection:
                host = tables.compute_nodes.c.host
                missing -= set(connection.scalars(sa.select(host).where(host.in_(sorted(missing)))))
    return missing
