"""Check Nova's databases for ``gpustack cleanup``: whether each is readable and has a known schema."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from gpustack.base.errors import NovaConfigError
from gpustack.novadb import databases, schema
from gpustack.novadb.databases import Database
from gpustack.novadb.sources import Sources
from gpustack.operate.doctor.check import Check, made, not_configured, ok

_HOW = "run gpustack where nova.conf of nova-api is, or name it with --config-file"
USUAL = Path("/etc/nova")


def checks(paths: Sequence[Path], url: str | None) -> Iterator[Check]:
    """Read the databases of a configuration, or of one cell.

    :param paths: nova.conf of nova-api; :data:`USUAL` if empty.
    :param url: the connection URL of a cell's database, used instead.
    """
    return made("Databases", lambda: _checks(paths, url))


def _checks(paths: Sequence[Path], url: str | None) -> Iterator[Check]:
    if url:
        sources = Sources.from_url(url)
    elif paths:
        sources = Sources.from_nova_conf(list(paths))
    elif not USUAL.exists():
        yield not_configured("Databases", f"no {USUAL} on this machine", _HOW)
        return
    else:
        try:
            sources = Sources.from_nova_conf([USUAL])
        except NovaConfigError as error:  # nova.conf of a compute host has no database connection
            yield not_configured("Databases", str(error).partition("\n")[0], _HOW)
            return
    if sources.api is not None:
        yield from _reachable("API database", sources.api, "api")
    for cell in sources.with_hosts:
        yield from _reachable(f"Cell {cell.name}", cell.database, "cell")


def _reachable(name: str, database: Database, kind: schema.Kind) -> Iterator[Check]:
    def reached() -> Iterator[Check]:
        with databases.snapshot(database) as connection:
            found = schema.read(connection, kind, database.where)
            kind_of_server = connection.dialect.name
        yield ok(name, f"readable, {kind_of_server}, schema of {found.since.capitalize()} or later")

    return made(name, reached)
