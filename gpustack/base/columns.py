"""Columns of lists. Each is defined once, for people and for programs, and every format has the same. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpustack.base.errors import UsageError
from gpustack.base.findings import Finding

Row = TypeVar("Row")
Row_contra = TypeVar("Row_contra", contravariant=True)


@dataclass(frozen=True)
class Column(Generic[Row_contra]):
    """One column.

    :ivar key: its name for programs.
    :ivar value: the plain data of a row; None if it is unknown.
    :ivar title: its name for people; a column without a title is shown only if it is selected.
    :ivar text: the text of a row for people; None for the value itself.
    :ivar long: whether it is shown only with ``--long``.
    :ivar lines: whether its text has several lines.
    """

    key: str
    value: Callable[[Row_contra], object]
    title: str = ""
    text: Callable[[Row_contra], object] | None = None
    long: bool = False
    lines: bool = False

    @property
    def heading(self) -> str:
        """The title, or the key without one."""
        return self.title or self.key

    def cell(self, row: Row_contra) -> object:
        """The value or the text for people: numbers stay numbers, so that tables align them."""
        shown = self.value(row) if self.text is None else self.text(row)
        return shown if type(shown) in (int, float) else in_words(shown)


def described(columns: Iterable[Column[Row]], row: Row) -> dict[str, object]:
    """All values of a row, by key."""
    return {column.key: column.value(row) for column in columns}


def selected(columns: Sequence[Column[Row]], names: Iterable[str]) -> list[Column[Row]]:
    """The columns with these keys or titles, in any case, in the order of ``columns``.

    :raises UsageError: if there is no such column.
    """
    wanted = {_normal(name): name for name in names}
    known = {_normal(name) for column in columns for name in (column.key, column.heading)}
    if unknown := [name for key, name in wanted.items() if key not in known]:
        remedy = f"columns: {', '.join(column.key for column in columns)}"
        raise UsageError(f"there is no column {' or '.join(map(repr, unknown))}", remedy=remedy)
    return [column for column in columns if {_normal(column.key), _normal(column.heading)} & wanted.keys()]


def _normal(name: str) -> str:
    return name.strip().casefold().replace(" ", "_")


def in_words(value: object) -> str:
    """A value for people; ``-`` if it is unknown or empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)


def codes(findings: Iterable[Finding], without: str = "ok") -> str:
    """The codes of findings for a cell."""
    return ", ".join(dict.fromkeys(entry.code.value for entry in findings)) or without
