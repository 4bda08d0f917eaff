"""Schemas: those of every release are known, and no other is read."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.novadb import schema


@pytest.mark.parametrize(
    ("alembic", "migrate", "since", "ids"),
    [
        (None, 347, "ocata", False),
        (None, 402, "train", False),
        (None, 410, "ussuri", False),
        (None, 417, "wallaby", False),
        ("16f1fbcab42b", 417, "yoga", False),
        ("ccb0fa1a2252", None, "zed", True),
        ("2903cd72dc14", None, "epoxy", True),
        ("ab450ba04102", None, "hibiscus", True),
    ],
)
def test_known(alembic: str | None, migrate: int | None, since: str, ids: bool) -> None:
    version = schema.identify("cell", alembic=alembic, migrate=migrate, where="cell1")
    assert (version.since, version.has_request_ids) == (since, ids)


@pytest.mark.parametrize(("alembic", "migrate"), [("0123456789ab", None), (None, 346), (None, 418), (None, None)])
def test_unknown(alembic: str | None, migrate: int | None) -> None:
    with pytest.raises(DatabaseError) as caught:
        schema.identify("cell", alembic=alembic, migrate=migrate, where="cell1")
    assert caught.value.where == "cell1"
    assert str(alembic or migrate or "alembic_version") in caught.value.what


def test_an_empty_database() -> None:
    with (
        sa.create_engine("sqlite://", poolclass=sa.NullPool).connect() as connection,
        pytest.raises(DatabaseError, match="no Nova database"),
    ):
        schema.read(connection, "cell", "cell1")
