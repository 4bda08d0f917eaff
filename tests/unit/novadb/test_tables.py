"""Damaged times of Nova's databases: none of them ends a plan."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite

from gpustack.novadb.model import UNREADABLE
from gpustack.novadb.tables import Moment

NOON = datetime.fromisoformat("2026-01-02T12:00:00")


@pytest.mark.parametrize(
    ("dialect", "stored", "read"),
    [
        (sqlite.dialect(), "2026-01-02 12:00:00.000000", NOON),
        (sqlite.dialect(), "0000-00-00 00:00:00", UNREADABLE),
        (sqlite.dialect(), 7, UNREADABLE),
        (sqlite.dialect(), None, None),
        (mysql.dialect(), NOON, NOON),
        (mysql.dialect(), "0000-00-00 00:00:00", UNREADABLE),
        (mysql.dialect(), NOON.replace(tzinfo=UTC), UNREADABLE),
        (mysql.dialect(), None, None),
    ],
)
def test_times(dialect: sa.Dialect, stored: object, read: datetime | None) -> None:
    assert Moment().result_processor(dialect, None)(stored) == read
