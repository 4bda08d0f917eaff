"""Damaged values of Nova's databases: none of them ends a plan."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite

from gpustack.novadb.values import UNREADABLE, Moment, count, parsed

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


@pytest.mark.parametrize(("value", "number"), [(0, 0), (3, 3), ("3", 3), (3.0, 3)])
def test_numbers_of_devices(value: object, number: int) -> None:
    assert count(value) == number


@pytest.mark.parametrize("value", [-1, True, False, 1.5, "x", None, [], float("inf"), float("nan")])
def test_what_is_no_number_of_devices(value: object) -> None:
    with pytest.raises(ValueError, match="no number of devices"):
        count(value)


def test_documents() -> None:
    assert parsed('[{"count": 1}]') == [{"count": 1}]
    for text in ("{", "[" * 100_000):
        with pytest.raises(ValueError, match=r"nested too deeply|Expecting"):
            parsed(text)
