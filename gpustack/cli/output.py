"""Print lists of rows: the one place that turns columns into the output of cliff."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from gpustack.base.columns import Column, Row, selected
from gpustack.base.text import printable
from gpustack.cli.common import is_for_machines

Table = tuple[Sequence[str], list[list[Any]]]
"""What ``take_action`` of a list returns: the names of the columns, and the rows."""


def table(parsed_args: argparse.Namespace, columns: Sequence[Column[Row]], rows: Iterable[Row]) -> Table:
    """The output of rows in the chosen format, with the columns of ``-c``, in the order of ``--sort-column``.

    :raises UsageError: if a column is unknown.
    """
    ordered = list(rows)
    for name in reversed(parsed_args.sort_columns):
        by = selected(columns, [name])[0].value
        ordered.sort(key=lambda row: _order(by(row)), reverse=parsed_args.sort_direction == "desc")
    machines, long = is_for_machines(parsed_args), getattr(parsed_args, "long", False)
    chosen = selected(columns, parsed_args.columns) if parsed_args.columns else None
    chosen = chosen or [c for c in columns if machines or (c.title and (long or not c.long))]
    parsed_args.columns, parsed_args.sort_columns = [], []  # cliff would look for them in the names
    if machines:
        return [column.key for column in chosen], [[column.value(row) for column in chosen] for row in ordered]
    return [c.heading for c in chosen], [[_cell(column, row) for column in chosen] for row in ordered]


def _cell(column: Column[Row], row: Row) -> object:
    cell = column.cell(row)
    return printable(cell, keep="\n" if column.lines else "") if isinstance(cell, str) else cell


def _order(value: object) -> tuple[bool, bool, Any]:
    """Numbers before texts, unknown values last."""
    is_number = isinstance(value, int | float)
    return value is None, not is_number, value if is_number else str(value)
