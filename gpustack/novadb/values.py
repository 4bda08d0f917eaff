"""Read damaged values: rows are edited by hand, restored or corrupted, and no such value may end a plan.

An unreadable time becomes :data:`UNREADABLE`. It can be compared like any time, and
:mod:`gpustack.repair.rules._times` prevents a verdict that depends on it.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

UNREADABLE = datetime.min  # noqa: DTZ901 - naive, as all times of Nova's databases
"""Replaces a time that is present but unreadable, such as MariaDB's ``0000-00-00 00:00:00``."""

DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that a value of an unexpected type raises where it is used."""


class Moment(sa.types.TypeDecorator[datetime]):
    """A time column whose unreadable values do not fail the statement."""

    impl = sa.DateTime
    cache_ok = True

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        """Convert a value to a naive ``datetime``, or to :data:`UNREADABLE`.

        PyMySQL returns an impossible time as text. SQLite stores times as text, and its conversion can raise.
        """
        convert = self.impl_instance.dialect_impl(dialect).result_processor(dialect, coltype)

        def process(value: Any) -> datetime | None:  # noqa: ANN401 - whatever the driver returns
            if convert is not None:
                try:
                    value = convert(value)
                except DAMAGE:
                    return UNREADABLE
            if value is None or (value.__class__ is datetime and value.tzinfo is None):
                moment: datetime | None = value
                return moment
            return UNREADABLE

        return process


def parsed(text: str) -> Any:  # noqa: ANN401 - JSON
    """Parse a JSON document.

    :raises ValueError: if the text is not JSON, or is nested too deeply to parse.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def count(value: Any) -> int:  # noqa: ANN401 - JSON
    """Convert a JSON value to a number of devices.

    :raises ValueError: if the value is not an integer of at least 0.
    """
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{value!r} is no number of devices") from error
    if number < 0 or isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value!r} is no number of devices")
    return number
