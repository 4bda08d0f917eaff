"""Values as databases hold them: some are edited by hand, restored or damaged, and none of them may end a plan.

A time that can't be read becomes :data:`UNREADABLE`: every comparison works with it, and
:mod:`gpustack.cleanup.rules._times` lets no verdict rest on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

UNREADABLE = datetime.min  # noqa: DTZ901 - naive, as all times of Nova's databases
"""Stands for a time that is there and can't be read, such as MariaDB's ``0000-00-00 00:00:00``."""

DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that a value of an unexpected kind raises, wherever the value is used."""


class Moment(sa.types.TypeDecorator[datetime]):
    """A time column whose unreadable values do not end the statement."""

    impl = sa.DateTime
    cache_ok = True

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        """PyMySQL returns an impossible time as text; SQLite's times are all text, and reading one may raise."""
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
    """A JSON document.

    :raises ValueError: when the text is none, or is nested too deeply to read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def count(value: Any) -> int:  # noqa: ANN401 - JSON
    """A number of devices.

    :raises ValueError: when it is no whole number of at least 0.
    """
    try:
        number = int(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{value!r} is no number of devices") from error
    if number < 0 or isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value!r} is no number of devices")
    return number
