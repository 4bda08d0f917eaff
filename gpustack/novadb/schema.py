"""Identify the schema of a Nova database; gpustack reads no database with an unknown schema.

Alembic keeps its revision in ``alembic_version``; sqlalchemy-migrate (up to Wallaby) keeps a number in
``migrate_version``. A database that was upgraded from Wallaby to Xena, Yoga, Zed or 2023.1 has both; Alembic's then
counts (``nova/db/migration.py``, ``db_sync``).
"""

from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.base.files import data_table

Kind = Literal["cell", "api"]


@dataclass(frozen=True, kw_only=True)
class DatabaseSchema:
    """The schema of one database.

    :ivar version: Alembic's revision, or sqlalchemy-migrate's number as text.
    :ivar since: codename of the first release with this schema; later releases may share it.
    """

    kind: Kind
    version: str
    since: str

    @property
    def has_request_ids(self) -> bool:
        """Whether PCI requests of flavors have ids: since Zed (commit ccab6fed46)."""
        return not self.version.isdecimal() and self.since not in ("xena", "yoga")


def identify(kind: Kind, *, alembic: str | None, migrate: int | None, where: str) -> DatabaseSchema:
    """Return the schema with these version marks.

    :param alembic: the revision in ``alembic_version``; None if there is none.
    :param migrate: the number in ``migrate_version``; None if there is none.
    :param where: the name of the database for error messages.
    :raises DatabaseError: if the schema is unknown, or if there is no version mark.
    """
    known = data_table("schemas.toml")[kind]
    if alembic is not None:
        if alembic not in known["alembic"]:
            raise _unknown(kind, f"revision {alembic}", where)
        return DatabaseSchema(kind=kind, version=alembic, since=known["alembic"][alembic])
    if migrate is None:
        raise DatabaseError(
            "has neither alembic_version nor migrate_version: it is no Nova database, or an empty one",
            where=where,
            remedy="check the connection's database name; 'nova-manage db sync' makes the tables",
        )
    numbers: dict[str, int] = known["migrate"]
    if not min(numbers.values()) <= migrate <= max(numbers.values()):
        raise _unknown(kind, f"number {migrate}", where)
    since = max((name for name, number in numbers.items() if number <= migrate), key=numbers.__getitem__)
    return DatabaseSchema(kind=kind, version=str(migrate), since=since)


def read(connection: sa.Connection, kind: Kind, where: str) -> DatabaseSchema:
    """Read the version marks of a database and identify its schema; once for a connection.

    :param where: the name of the database for error messages.
    :raises DatabaseError: if the schema is unknown, or if there is no version mark.
    """
    if (known := connection.info.get(("gpustack schema", kind))) is not None:
        return known  # type: ignore[no-any-return]
    tables = set(sa.inspect(connection).get_table_names())
    alembic = migrate = None
    if "alembic_version" in tables:
        alembic = connection.scalar(sa.select(sa.column("version_num")).select_from(sa.table("alembic_version")))
    if "migrate_version" in tables:
        migrate = connection.scalar(sa.select(sa.column("version")).select_from(sa.table("migrate_version")))
    known = connection.info["gpustack schema", kind] = identify(kind, alembic=alembic, migrate=migrate, where=where)
    return known


def _unknown(kind: Kind, version: str, where: str) -> DatabaseError:
    return DatabaseError(
        f"the {kind} database has schema {version}, which gpustack does not know; nothing was read from it",
        where=where,
        remedy="use a gpustack that knows this release of Nova; an upgrade under way must be finished first",
    )
