"""Every schema from Ocata's to 2026.2's, as Nova's own migrations make it on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.files import data_table
from gpustack.novadb import schema
from support.schema_heads import check, create, schemas

RELEASES = tuple(schemas("sqlite")["cell"]["heads"])


@pytest.mark.parametrize("release", RELEASES)
def test_leaks_in_the_schema_of_a_release(release: str, tmp_path: Path) -> None:
    api, cell = (sa.make_url(f"sqlite:///{tmp_path}/{name}.sqlite") for name in ("api", "cell"))
    check("sqlite", release, api, cell, tmp_path)


@pytest.mark.parametrize("kind", ["cell", "api"])
def test_every_known_version_was_made(kind: schema.Kind) -> None:
    heads = schemas("sqlite")[kind]["heads"].values()
    versions = data_table("schemas.toml")[kind]
    assert {head.get("alembic_version") for head in heads} - {None} == set(versions["alembic"])
    assert {int(head["migrate_version"]) for head in heads if "migrate_version" in head} == set(
        versions["migrate"].values()
    )


def test_a_schema_of_the_day_after_tomorrow(tmp_path: Path) -> None:
    engine = create(sa.make_url(f"sqlite:///{tmp_path}/cell.sqlite"), "sqlite", "cell", "2026.2")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'feedc0ffee00'")
    with engine.connect() as connection, pytest.raises(schema.DatabaseError, match="feedc0ffee00"):
        schema.read(connection, "cell", "cell1")
