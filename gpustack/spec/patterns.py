"""Host patterns: names with ranges in the syntax of Ansible inventories, and with ``*`` and ``?``.

========================  =================================================================================
``gpu-[01:16]``           ``gpu-01`` to ``gpu-16``: a leading zero keeps the width, both ends have the same
``gpu-[1:16]``            ``gpu-1`` to ``gpu-16``
``gpu-[01:16:2]``         every second one: ``gpu-01``, ``gpu-03``, … ``gpu-15``
``rack-[a:f]``            one letter, ``a`` to ``f``
``gpu-*.example.org``     ``*`` matches any number of characters, including dots and none
``gpu-0?``                ``?`` matches exactly one character
``group:gpu_nodes``       the hosts of a group in Ansible's inventory
========================  =================================================================================

Ranges follow ``ansible/plugins/inventory/__init__.py`` (``expand_hostname_range``), but some that Ansible accepts are
errors here: a range that ends before it starts, a step of zero, a word of several letters. A name is matched without
expanding the pattern: the time depends on the lengths of both, not on the size of a range.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

MAX_LENGTH = 254
MAX_HOSTS = 100_000
"""The largest number of hosts that the ranges of one pattern may expand to; a larger one is probably a mistake."""
GROUP = "group:"
"""The start of an entry that names a group of Ansible's inventory."""
_GROUP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MOST_NAMES = 65536
_LETTERS = string.ascii_letters
_TOKEN = re.compile(r"\[(?P<range>[^\[\]]*)\]|(?P<any>\*+)|(?P<one>\?)|(?P<text>[A-Za-z0-9_.-]+)")
_OPEN_OR_RANGE = re.compile(r"[\[*?]")
_BOUNDS = re.compile(r"[0-9A-Za-z:-]*")
_NUMBER = re.compile(r"[0-9]{1,18}")


class _Words(tuple[str, ...]):
    """A text, or the letters of a range."""

    __slots__ = ()

    def ends(self, name: str, start: int) -> list[int]:
        return [start + len(word) for word in self if name.startswith(word, start)]


@dataclass(frozen=True)
class _One:
    def ends(self, name: str, start: int) -> tuple[int, ...]:
        return (start + 1,) if start < len(name) else ()


@dataclass(frozen=True)
class _Any:
    def ends(self, name: str, start: int) -> range:
        return range(start, len(name) + 1)


@dataclass(frozen=True)
class _Numbers:
    numbers: range
    width: int  # 0: no padding

    def ends(self, name: str, start: int) -> tuple[int, ...]:
        widest = max(self.width, len(str(self.numbers[-1])))
        found = []
        for end in range(start + 1, min(start + widest, len(name)) + 1):
            digits = name[start:end]
            if not (digits.isascii() and digits.isdecimal()):
                break
            if int(digits) in self.numbers and digits == self._spell(int(digits)):
                found.append(end)
        return tuple(found)

    def _spell(self, number: int) -> str:
        return str(number).zfill(self.width)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return map(self._spell, self.numbers)


_Part = _Words | _Numbers | _One | _Any


@dataclass(frozen=True)
class HostPattern:
    """A parsed host pattern."""

    text: str
    _parts: tuple[_Part, ...]

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """Parse a pattern.

        :raises ValueError: when ``text`` is not a host pattern; the message names problem and expectation.
        """
        return _parse(text)

    @property
    def is_group(self) -> bool:
        """Whether it is a group of Ansible's inventory: ``group:gpu_nodes``. It matches no name."""
        return self.text.startswith(GROUP)

    @property
    def is_name(self) -> bool:
        """Whether the pattern is one plain name."""
        return not self.is_group and self.start == self.text

    @property
    def start(self) -> str:
        """The text with which all its names begin; empty if there is none."""
        end = _OPEN_OR_RANGE.search(self.text)
        return self.text[: end.start()] if end else self.text

    @property
    def is_open(self) -> bool:
        """Whether it contains ``*`` or ``?``, so that its hosts can't be listed."""
        return self.is_group or len(self._listed) < len(self._parts)

    @property
    def count(self) -> int:
        """The number of names that its ranges expand to; 1 for a plain name."""
        return math.prod(map(len, self._listed))

    @property
    def _listed(self) -> tuple[_Words | _Numbers, ...]:
        """The parts whose words can be listed."""
        return tuple(part for part in self._parts if isinstance(part, _Words | _Numbers))

    def matches(self, name: str) -> bool:
        """Whether the pattern matches ``name`` (case-sensitive)."""
        positions = {0}
        for part in self._parts:
            # From the leftmost position, * reaches everything that it reaches from others.
            starts = {min(positions)} if isinstance(part, _Any) else positions
            if not (positions := {end for start in starts for end in part.ends(name, start)}):
                return False
        return len(name) in positions

    def names(self) -> Iterator[str]:
        """The names that it expands to, in Ansible's order.

        :raises ValueError: when it contains ``*`` or ``?``.
        """
        if self.is_group:
            raise ValueError("the hosts of a group are in an inventory")
        if self.is_open:
            raise ValueError(f"{self.text!r} contains * or ?, so its hosts can't be listed")
        yield from map("".join, itertools.product(*self._listed))


class Patterns:
    """Several host patterns. A name is compared with those that begin with the same text."""

    def __init__(self, patterns: Iterable[HostPattern]) -> None:
        self._by_start: dict[str, list[tuple[int, HostPattern]]] = {}
        self._known: dict[str, tuple[HostPattern, ...]] = {}
        self.has_groups = False
        for place, pattern in enumerate(patterns):
            self.has_groups = self.has_groups or pattern.is_group
            self._by_start.setdefault(pattern.start, []).append((place, pattern))
        self._lengths = sorted({len(start) for start in self._by_start})

    def matching(self, name: str) -> tuple[HostPattern, ...]:
        """The patterns that match a name, in their order."""
        if (known := self._known.get(name)) is not None:
            return known
        starts = {name[:length] for length in self._lengths}  # a short name is the start of several lengths
        alike = [pair for start in starts for pair in self._by_start.get(start, ())]
        found = tuple(pattern for _place, pattern in sorted(alike, key=itemgetter(0)) if pattern.matches(name))
        if len(self._known) >= _MOST_NAMES:
            self._known.clear()
        self._known[name] = found
        return found


@functools.lru_cache(maxsize=_MOST_NAMES)
def _parse(text: str) -> HostPattern:
    if not text or len(text) > MAX_LENGTH:
        raise ValueError(f"a host pattern has 1 to {MAX_LENGTH} characters")
    if text.startswith(GROUP):
        if not _GROUP_NAME.fullmatch(text.removeprefix(GROUP)):
            raise ValueError(f"a group is written {GROUP}NAME, with letters, digits, '_', '-' and '.' in its name")
        return HostPattern(text, (_Words((text,)),))
    if text[0] in "-.":
        raise ValueError("a host name begins with a letter, a digit or an underscore")
    parts: list[_Part] = []
    position = 0
    while position < len(text):
        if (token := _TOKEN.match(text, position)) is None:
            raise ValueError(_unexpected(text, position))
        position = token.end()
        parts.append(_part(token))
    pattern = HostPattern(text, tuple(parts))
    if pattern.count > MAX_HOSTS:
        raise ValueError(f"expands to {pattern.count} hosts; at most {MAX_HOSTS} are allowed")
    return pattern


def _part(token: re.Match[str]) -> _Part:
    if token["range"] is not None:
        return _range(token["range"])
    if token["any"]:
        return _Any()
    return _One() if token["one"] else _Words((token["text"],))


def _unexpected(text: str, position: int) -> str:
    if (character := text[position]) in "[]":
        return "the brackets don't pair up; a range is written [01:16]"
    shown = repr(character) if character.isascii() else f"U+{ord(character):04X}"
    return f"{shown} is not used in host patterns (letters, digits, '_', '-', '.', ranges like [01:16], '*' and '?')"


def _range(inner: str) -> _Part:
    if not _BOUNDS.fullmatch(inner):
        raise ValueError("a range has two numbers or two letters, as in [01:16] and [a:f]")
    written = f"[{inner}]"
    bounds = inner.split(":")
    if len(bounds) not in (2, 3):
        raise ValueError(f"{written} is not a range; expected [first:last] or [first:last:step]")
    first, last = bounds[0] or "0", bounds[1]
    if len(bounds) == 3 and not _NUMBER.fullmatch(bounds[2]):
        raise ValueError(f"{written}: the step must be an integer")
    step = int(bounds[2]) if len(bounds) == 3 else 1
    if not step:
        raise ValueError(f"{written}: the step must be 1 or more")
    if not last:
        raise ValueError(f"{written} has no end; expected [first:last]")
    if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last):
        return _numbers(written, first, last, step)
    if len(first) == len(last) == 1 and first in _LETTERS and last in _LETTERS:
        low, high = _LETTERS.index(first), _LETTERS.index(last)
        if low > high:
            raise ValueError(f"{written} ends before it begins")
        return _Words(_LETTERS[low : high + 1 : step])
    raise ValueError(f"{written}: expected two numbers or two single letters, as in [01:16] and [a:f]")


def _numbers(written: str, first: str, last: str, step: int) -> _Numbers:
    padded = first.startswith("0") and len(first) > 1
    if padded and len(first) != len(last):
        width = max(len(first), len(last))
        raise ValueError(
            f"{written}: with a leading zero both ends need the same width; "
            f"did you mean [{first.zfill(width)}:{last.zfill(width)}]?"
        )
    if int(first) > int(last):
        raise ValueError(f"{written} ends before it begins")
    return _Numbers(range(int(first), int(last) + 1, step), len(first) if padded else 0)
