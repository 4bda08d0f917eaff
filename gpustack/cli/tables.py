"""Tables that fit a terminal. Text wraps between words only, so that addresses and UUIDs stay in one piece.

cliff's own table breaks words. If single words are too wide, each row becomes a block of lines.
"""

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from cliff import show
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.table import TableFormatter

from gpustack.base.text import in_lines


class FittingTable(TableFormatter):
    """cliff's table, at most as wide as the terminal or ``--max-width``."""

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Print the rows."""
        rows = list(data)
        width = _width(stdout, parsed_args)
        fitting = _fitted(column_names, rows, width) if width else rows
        if fitting is None:
            stdout.write(_blocks(column_names, rows))
            return
        # A table that fits stays unchanged; cliff would query the terminal's width again.
        unlimited = argparse.Namespace(**{**vars(parsed_args), "max_width": 0, "fit_width": False})
        super().emit_list(column_names, fitting, stdout, unlimited)


class Fields(show.ShowOne):
    """cliff's command for one thing, whose texts carry out nothing: tenants choose names such as ``$(reboot)``."""

    def text(self, value: object) -> object:
        """A field for people, and for formats without structure: a line for each entry, a number unchanged."""
        parts = [f"{key}={entry}" for key, entry in value.items()] if isinstance(value, dict) else value
        return in_lines([parts] if isinstance(parts, str) else parts) if isinstance(parts, list | str) else value

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print the fields."""
        if parsed_args.formatter in ("table", "value", "shell"):
            unknown = "-" if parsed_args.formatter == "table" else ""
            data = [unknown if value is None else self.text(value) for value in data]
        if parsed_args.formatter == "shell":
            data = [re.sub(r"([\\$`])", r"\\\1", str(value)) for value in data]
        return int(super().produce_output(parsed_args, column_names, data))


class PlainCsv(CSVLister):
    """cliff's CSV, without formulas: a spreadsheet runs text that begins like one, and tenants choose names."""

    def emit_list(self, column_names: Sequence[str], data: Iterable[Sequence[Any]], *others: Any) -> None:  # noqa: ANN401
        """Print the rows."""
        super().emit_list(column_names, [[_no_formula(cell) for cell in row] for row in data], *others)


def _no_formula(cell: Any) -> Any:  # noqa: ANN401 - numbers stay numbers
    is_formula = isinstance(cell, str) and re.match(r"[=@\uff1d\uff20\t\r\n]|[+\uff0b\uff0d-](?!$|[\d.]+$)", cell)
    return f"'{cell}" if is_formula else cell


def _width(stdout: TextIO, parsed_args: argparse.Namespace) -> int:
    """The width in columns; 0 without a limit."""
    if int(parsed_args.max_width) > 0:
        return int(parsed_args.max_width)
    return shutil.get_terminal_size().columns if stdout.isatty() or parsed_args.fit_width else 0


def _fitted(names: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]] | None:
    """The rows with text wrapped so that the table fits; None if single words are too wide."""
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)] or [[] for _ in names]
    named = list(zip(names, columns, strict=True))
    natural = [_widest(name, (line for cell in column for line in cell.splitlines())) for name, column in named]
    least = [_widest(name, (word for cell in column for word in cell.split())) for name, column in named]
    room = width - 1 - 3 * len(names)  # borders, and a space on each side
    if sum(least) > room:
        return None
    widest = max(natural, default=0)
    while sum(widths := [min(most, max(fewest, widest)) for most, fewest in zip(natural, least, strict=True)]) > room:
        widest -= 1
    return [[_wrapped(cell, limit) for cell, limit in zip(row, widths, strict=True)] for row in rows]


def _widest(name: str, texts: Iterable[str]) -> int:
    return max(map(len, (name, *texts)))


def _wrapped(cell: Any, width: int) -> Any:  # noqa: ANN401
    if not isinstance(cell, str):
        return cell
    lines = (
        textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""] for line in cell.split("\n")
    )
    return "\n".join(part for wrapped in lines for part in wrapped)


def _blocks(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    indent = max(map(len, names)) + 2
    blocks = (
        "".join(
            f"{name:<{indent}}{str(cell).replace(chr(10), chr(10) + ' ' * indent)}\n"
            for name, cell in zip(names, row, strict=True)
        )
        for row in rows
    )
    return "\n".join(blocks)
