"""Entries and numbers by a key."""

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Entry = TypeVar("Entry")


def by_key(pairs: Iterable[tuple[Key, Entry]]) -> dict[Key, list[Entry]]:
    """The entries of each key in their order, with the keys in the order of their first entries.

    >>> by_key([("gpu01", 1), ("gpu02", 2), ("gpu01", 3)])
    {'gpu01': [1, 3], 'gpu02': [2]}
    """
    entries: dict[Key, list[Entry]] = {}
    for key, entry in pairs:
        entries.setdefault(key, []).append(entry)
    return entries


def sums(pairs: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    """The sum of the numbers of each key."""
    return {key: sum(numbers) for key, numbers in by_key(pairs).items()}
