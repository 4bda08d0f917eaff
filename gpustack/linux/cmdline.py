"""The kernel's command line, taken apart as the kernel does it and put together again byte for byte.

Rules, from the kernel's sources: ``lib/cmdline.c`` (``next_arg``: arguments are parted by white space, a double
quote toggles quoting, the first ``=`` parts name and value, quotes around a value are not part of it) and
``kernel/params.c`` (``parameq``: ``-`` and ``_`` are the same in a parameter's name; a lone ``--`` ends the
kernel's arguments: what follows is init's). A name is compared whole: ``iommu`` is neither ``amd_iommu`` nor
``vfio_iommu_type1.allow_unsafe_interrupts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

_SPACE = " \t\n\v\f\r"
# What can stand on a kernel command line inside a shell's double quotes and in GRUB's configuration as it is.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=+@/-]+", re.ASCII)


def same_name(name: str, other: str) -> bool:
    """Whether two parameter (or module) names are the same to the kernel: ``vfio-pci.ids`` is ``vfio_pci.ids``."""
    return canonical(name) == canonical(other)


def canonical(name: str) -> str:
    """A parameter's or module's name with ``-`` written as ``_``, to compare by."""
    return name.replace("-", "_")


def is_plain(argument: str) -> bool:
    """Whether an argument means the same to the kernel, to a shell's double quotes and to GRUB."""
    return _PLAIN.fullmatch(argument) is not None


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument.

    :ivar text: as it stands on the line, quotes included.
    :ivar name: the parameter's name, as it is spelt.
    :ivar value: what follows the first ``=``, without quotes; None when there is no ``=``.
    :ivar offset: where it starts on the line, in characters.
    """

    text: str
    name: str
    value: str | None
    offset: int = 0

    def is_for(self, name: str) -> bool:
        """Whether this is the parameter ``name``, whole and in either spelling."""
        return same_name(self.name, name)

    def same_as(self, other: Argument) -> bool:
        """Whether the kernel sees no difference between the two."""
        return same_name(self.name, other.name) and self.value == other.value


def argument(text: str) -> Argument:
    """Take one argument apart.

    :raises ValueError: when ``text`` is not exactly one argument.
    """
    line = CommandLine(text=text)
    if len(line.arguments) != 1 or line.arguments[0].text != text:
        raise ValueError(f"{text!r} is not one kernel argument")
    return line.arguments[0]


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A command line; ``text`` is kept as it is."""

    text: str

    @classmethod
    def of(cls, arguments: Iterable[str]) -> Self:
        """A command line of ``arguments``, each as it shall stand there."""
        return cls(text=" ".join(arguments))

    @cached_property
    def pieces(self) -> tuple[tuple[str, str], ...]:
        """The line as pairs of the white space before an argument and the argument; together they are ``text``.

        The last pair may have an empty argument: white space at the end.
        """
        return tuple(_pieces(self.text))

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

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The kernel's arguments: those before a lone ``--``."""
        return self._all[: self._end]

    @property
    def for_init(self) -> tuple[Argument, ...] | None:
        """The arguments after a lone ``--``, which only init sees; None without ``--``."""
        return None if self._end is None else self._all[self._end + 1 :]

    def all(self, name: str) -> tuple[Argument, ...]:
        """Every occurrence of the parameter ``name``, in order."""
        return tuple(a for a in self.arguments if a.is_for(name))

    def last(self, name: str) -> Argument | None:
        """The last occurrence of the parameter ``name``: for most parameters the one that counts."""
        return next((a for a in reversed(self.arguments) if a.is_for(name)), None)

    def has(self, wanted: str) -> bool:
        """Whether an argument that the kernel can't tell from ``wanted`` is there."""
        reference = argument(wanted)
        return any(a.same_as(reference) for a in self.arguments)


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        start = position
        while position < len(text) and text[position] in _SPACE:
            position += 1
        begin = position
        quoted = False
        while position < len(text) and (quoted or text[position] not in _SPACE):
            quoted ^= text[position] == '"'
            position += 1
        yield text[start:begin], text[begin:position]


def _argument(raw: str, offset: int) -> Argument:
    """``next_arg`` of ``lib/cmdline.c``: only the quote at the very start, or right after ``=``, is taken off."""
    text = raw
    quoted = text.startswith('"')
    if quoted:
        text = text[1:]
    equals = text.find("=", 1)  # a leading "=" is part of the name
    if equals < 0:
        name, value = text, None
        if quoted:
            name = name.removesuffix('"')
        return Argument(text=raw, name=name, value=value, offset=offset)
    name, value = text[:equals], text[equals + 1 :]
    if value.startswith('"'):
        # The closing quote is the last character, which may be the opening one itself.
        value = value[1:].removesuffix('"')
    elif quoted:
        value = value.removesuffix('"')
    return Argument(text=raw, name=name, value=value, offset=offset)
