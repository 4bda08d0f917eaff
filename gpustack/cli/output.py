"""Print lists of rows: the one place that turns columns into the output of cliff."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpustack.base.by_key import by_key
from gpustack.base.columns import Column, Row, selected
from gpustack.base.host_groups import fold, pattern
from gpustack.base.text import printable
from gpustack.cli.common import Lister, is_for_machines

if TYPE_CHECKING:
    from gpustack.hosts.facts.model import Host

Table = tuple[Sequence[str], list[list[Any]]]
"""What ``take_action`` of a list returns: the names of the columns, and the rows."""


def table(parsed_args: argparse.Namespace, columns: Sequence[Column[Row]], rows: Iterable[Row]) -> Table:
    """The output of rows in the chosen format, with the columns of ``-c``, in the order of ``--sort-column``.

    If the command has ``--each``, a table shows hosts with equal rows once, and data have the group of each host.

    :param columns: the first is the host if the rows are of hosts.
    :raises UsageError: if a column is unknown.
    """
    ordered = list(rows)
    for name in reversed(parsed_args.sort_columns):
        by = selected(columns, [name])[0].value
        ordered.sort(key=lambda row: _order(by(row)), reverse=parsed_args.sort_direction == "desc")
    machines, long = is_for_machines(parsed_args), getattr(parsed_args, "long", False)
    usual = [column for column in columns if column.title and (long or not column.long)]
    if hasattr(parsed_args, "each") and columns[0].key == "host":
        usual, columns, ordered = _grouped(parsed_args, usual, columns, ordered)
    chosen = selected(columns, parsed_args.columns) if parsed_args.columns else list(columns) if machines else usual
    parsed_args.columns, parsed_args.sort_columns = [], []  # cliff would look for them in the names
    if machines:
        return [column.key for column in chosen], [[column.value(row) for column in chosen] for row in ordered]
    return [c.heading for c in chosen], [[_cell(column, row) for column in chosen] for row in ordered]


def _grouped(
    parsed_args: argparse.Namespace, usual: list[Column[Row]], columns: Sequence[Column[Row]], rows: list[Row]
) -> tuple[list[Column[Row]], Sequence[Column[Row]], list[Row]]:
    """The usual columns, all columns and the rows, with the groups of hosts whose cells are equal."""
    first = columns[0]
    columns = (*columns, Column("group", lambda row: ",".join(groups[str(first.value(row))])))
    shown = {column.key: column for column in (*selected(columns, parsed_args.columns), *usual)}
    compared = [column for key, column in shown.items() if key not in (first.key, "group")]
    cells = by_key((str(first.value(row)), [column.cell(row) for column in compared]) for row in rows)
    equal = by_key((repr(of_host), host) for host, of_host in cells.items())
    groups = {host: patterns for hosts in equal.values() for patterns in (fold(hosts),) for host in hosts}
    if parsed_args.each or parsed_args.formatter != "table":
        return usual, columns, rows
    named = replace(first, text=lambda row: ", ".join(groups[str(first.value(row))]))
    kept = {hosts[0] for hosts in equal.values()}
    return [named, *usual[1:]], (named, *columns[1:]), [row for row in rows if str(first.value(row)) in kept]


def _cell(column: Column[Row], row: Row) -> object:
    cell = column.cell(row)
    return printable(cell, keep="\n" if column.lines else "") if isinstance(cell, str) else cell


def _order(value: object) -> tuple[bool, bool, Any]:
    """Numbers before texts, unknown values last."""
    is_number = isinstance(value, int | float)
    return value is None, not is_number, value if is_number else str(value)


def report_without_gpus(command: Lister, hosts: Iterable[Host]) -> None:
    """Name the hosts that have no GPU, which a table of GPUs does not show."""
    by_size = by_key((len(host.pci), host.hostname) for host in hosts)
    for size, names in by_size.items():
        own = "its" if len(names) == 1 else "their"
        command.report(f"{pattern(names)}: no GPU among {own} {size} PCI functions")
