"""Parse the kernel's command line as the kernel does, without losing any byte of it.

Rules of ``lib/cmdline.c`` (``next_arg``): white space separates arguments, a double quote toggles quoting, the first
``=`` separates name and value, and quotes around a value are removed. Rules of ``kernel/params.c`` (``parameq``):
``-`` and ``_`` are equal in names, and a lone ``--`` ends the kernel's arguments; the rest is for init. Names are
compared completely: ``iommu`` matches neither ``amd_iommu`` nor ``vfio_iommu_type1.allow_unsafe_interrupts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

_PIECE = re.compile(r'([ \t\n\v\f\r]*)((?:[^ \t\n\v\f\r"]|"[^"]*"?)*)')
"""White space, and the argument after it."""
# Characters with no special meaning to the kernel, in a shell's double quotes, and in GRUB's configuration.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=+@/-]+", re.ASCII)


def same_name(name: str, other: str) -> bool:
    """Whether the kernel treats two parameter or module names as equal: ``vfio-pci.ids``, ``vfio_pci.ids``."""
    return canonical(name) == canonical(other)


def canonical(name: str) -> str:
    """The name of a parameter or module with ``_`` instead of ``-``, for comparisons."""
    return name.replace("-", "_")


def is_plain(argument: str) -> bool:
    """Whether an argument needs no escaping for the kernel, in a shell's double quotes and in GRUB."""
    return _PLAIN.fullmatch(argument) is not None


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One kernel argument.

    :ivar text: the text on the command line, with quotes.
    :ivar name: the parameter's name, not canonicalized.
    :ivar value: the text after the first ``=``, without quotes; None without ``=``.
    :ivar offset: position on the command line, in characters.
    """

    text: str
    name: str
    value: str | None
    offset: int = 0

    def is_for(self, name: str) -> bool:
        """Whether this is the parameter ``name``, with ``-`` or ``_``."""
        return same_name(self.name, name)

    def same_as(self, other: Argument) -> bool:
        """Whether the kernel treats both arguments as equal."""
        return same_name(self.name, other.name) and self.value == other.value


def argument(text: str) -> Argument:
    """Parse one argument.

    :raises ValueError: if ``text`` is not exactly one argument.
    """
    line = CommandLine(text=text)
    if len(line.arguments) != 1 or line.arguments[0].text != text:
        raise ValueError(f"{text!r} is not one kernel argument")
    return line.arguments[0]


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A kernel command line; ``text`` is unchanged."""

    text: str

    @classmethod
    def of(cls, arguments: Iterable[str]) -> Self:
        """Join ``arguments``, which are already quoted, to a command line."""
        return cls(text=" ".join(arguments))

    @cached_property
    def pieces(self) -> tuple[tuple[str, str], ...]:
        """Pairs of white space and the argument after it; joined, they are ``text``.

        The argument of the last pair is empty if the line ends with white space.
        """
        return tuple((match[1], match[2]) for match in _PIECE.finditer(self.text) if match[0])

    @cached_property
    def _all(self) -> tuple[Argument, ...]:
        arguments: list[Argument] = []
        offset = 0
        for space, raw in self.pieces:
            offset += len(space)
            if raw:
                arguments.append(_argument(raw, offset))
            offset += len(raw)
        return tuple(arguments)

    @cached_property
    def _end(self) -> int | None:
        """The index of the lone ``--``."""
        return next((i for i, a in enumerate(self._all) if a.name == "--" and a.value is None), None)

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The kernel's arguments: those before a lone ``--``."""
        return self._all[: self._end]

    @property
    def for_init(self) -> tuple[Argument, ...] | None:
        """The arguments after a lone ``--``, which are passed to init; None without ``--``."""
        return None if self._end is None else self._all[self._end + 1 :]

    def all(self, name: str) -> tuple[Argument, ...]:
        """All occurrences of the parameter ``name``, in order."""
        return tuple(a for a in self.arguments if a.is_for(name))

    def last(self, name: str) -> Argument | None:
        """The last occurrence of the parameter ``name``; for most parameters, it is the effective one."""
        return next((a for a in reversed(self.arguments) if a.is_for(name)), None)

    def has(self, wanted: str) -> bool:
        """Whether an argument is present that the kernel treats as equal to ``wanted``."""
        reference = argument(wanted)
        return any(a.same_as(reference) for a in self.arguments)


def _argument(raw: str, offset: int) -> Argument:
    """Parse as ``next_arg`` of ``lib/cmdline.c``: it removes only quotes at the start, or directly after ``=``."""
    quoted = raw.startswith('"')
    text = raw.removeprefix('"')
    equals = text.find("=", 1)  # a leading "=" is part of the name
    if equals < 0:
        return Argument(text=raw, name=text.removesuffix('"') if quoted else text, value=None, offset=offset)
    name, value = text[:equals], text[equals + 1 :]
    if value.startswith('"'):
        # The closing quote is the last character, which may be the opening one itself.
        value = value[1:].removesuffix('"')
    elif quoted:
        value = value.removesuffix('"')
    return Argument(text=raw, name=name, value=value, offset=offset)
