"""Fold host names into ranges: the reverse of expanding a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

# The number of a host in its row is the last one before the domain: rack1-gpu07.dc2.example.org.
_NUMBERED = re.compile(r"(?P<head>[^.]*?)(?P<digits>[0-9]{1,9})(?P<tail>[^.0-9]*(?:\..*)?)", re.DOTALL)
_RUNS = re.compile(r"([0-9]+)", re.ASCII)


def fold(names: Iterable[str]) -> list[str]:
    """Host patterns for exactly these names, consecutive ones as ranges, in natural order.

    >>> fold(["gpu02", "gpu01", "gpu03", "gpu7.example.org", "storage"])
    ['gpu[01:03]', 'gpu7.example.org', 'storage']
    """
    rows: dict[tuple[str, str, int], set[int]] = {}
    single: set[str] = set()
    unique = set(names)
    padded = {_row(match) for name in unique if (match := _NUMBERED.fullmatch(name)) and _is_padded(match)}
    for name in unique:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            single.add(name)
            continue
        head, tail, width = _row(match)
        row = (head, tail, width if (head, tail, width) in padded else 0)
        rows.setdefault(row, set()).add(int(match["digits"]))
    patterns = [pattern for row, numbers in rows.items() for pattern in _ranges(row, numbers)]
    return sorted([*single, *patterns], key=natural)


def natural(name: str) -> tuple[tuple[int, str, int], ...]:
    """A sort key: ``gpu9`` before ``gpu10``, ranges at the position of their first host."""
    parts = (part for part in _RUNS.split(name.replace("[", "")) if part)
    numbered = ((0, "", int(part[:18])) if part[0].isdigit() else (1, part, 0) for part in parts)
    return (*numbered, (2, name, 0))


def _row(match: re.Match[str]) -> tuple[str, str, int]:
    return match["head"], match["tail"], len(match["digits"])


def _is_padded(match: re.Match[str]) -> bool:
    return match["digits"].startswith("0") and len(match["digits"]) > 1


def _ranges(row: tuple[str, str, int], numbers: set[int]) -> Iterator[str]:
    head, tail, width = row
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        digits = [str(number).zfill(width) for _, number in run]
        yield f"{head}{digits[0]}{tail}" if len(digits) == 1 else f"{head}[{digits[0]}:{digits[-1]}]{tail}"
