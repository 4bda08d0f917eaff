"""Colour, links and a pager on a terminal. The text is complete, and made printable, without them.

``--color`` decides; with ``auto``, ``NO_COLOR`` (https://no-color.org) and the terminal.
"""

import contextlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from gpustack.base.text import LAYOUT, SafeStream, printable, raw
from gpustack.cli import pages

COLOR = ("auto", "always", "never")
_SEVERITIES = {"ERROR": "1;31", "WARNING": "1;33", "INFO": "1;34"}
_CHANGES = {"+": "32", "-": "31", "~": "33", "@": "36"}
_FINDING = re.compile(rf"^( *)({'|'.join(_SEVERITIES)}) (GPU\d{{3}})\b", re.MULTILINE)
_CHANGED = re.compile(r"^( +)([+~-].*|@@ .*)$", re.MULTILINE)
_WITHOUT_ESCAPES = ("", "dumb")
PAGERS = ("GPUSTACK_PAGER", "PAGER")
_WITHOUT_LINKS = ("linux", "vt100", "vt220")


@dataclass(frozen=True, kw_only=True)
class Decoration:
    """The decorations of a stream.

    :ivar color: whether severities and changes are coloured.
    :ivar link: the page of a finding's code; always None if links are off.
    """

    color: bool
    link: Callable[[str], str | None]

    def findings(self, text: str) -> str:
        """The text with coloured severities, and with each finding's code linked to its page."""
        return _FINDING.sub(lambda m: f"{m[1]}{self._colored(m[2], _SEVERITIES[m[2]])} {self.code(m[3])}", text)

    def code(self, code: str) -> str:
        """A finding's code, linked to its page (OSC 8)."""
        url = self.link(code)
        return f"\x1b]8;;{url}\x1b\\{code}\x1b]8;;\x1b\\" if url else code

    def changes(self, text: str) -> str:
        """The text with the indented lines of a diff coloured."""
        return _CHANGED.sub(lambda m: f"{m[1]}{self._colored(m[2], _CHANGES[m[2][0]])}", text)

    def _colored(self, text: str, parameters: str) -> str:
        return f"\x1b[{parameters}m{text}\x1b[0m" if self.color else text


def decoration(stream: TextIO, color: str = "auto") -> Decoration:
    """The decorations of a stream.

    :param color: one of :data:`COLOR`.
    """
    terminal = os.environ.get("TERM", "")
    shows = stream.isatty() and terminal not in _WITHOUT_ESCAPES
    colors = color == "always" or (color == "auto" and shows and not os.environ.get("NO_COLOR"))
    links = shows and colors and terminal not in _WITHOUT_LINKS
    return Decoration(color=colors, link=pages.finding if links else lambda code: None)


def write(stream: TextIO, text: str, color: str = "auto", *, changes: bool = False) -> None:
    """Print text on a stream, made printable, with findings decorated.

    :param changes: whether lines of a diff are coloured.
    """
    look = decoration(stream, color)
    shown = look.findings(printable(text, keep=LAYOUT))
    raw(stream).write(f"{look.changes(shown) if changes else shown}\n")


class _Held(io.StringIO):
    """Text for a terminal that is not shown yet."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def paged(stream: TextIO) -> Iterator[None]:
    """Show what is printed meanwhile with the pager of :data:`PAGERS`, if it is longer than the terminal.

    An empty variable turns the pager off, as does a program that is missing. Without a terminal, there is none.
    """
    pager = next((value for name in PAGERS if (value := os.environ.get(name)) is not None), "")
    has_pager = pager.strip() and shutil.which(pager.split()[0]) and os.environ.get("TERM", "") not in _WITHOUT_ESCAPES
    if not has_pager or not isinstance(stream, SafeStream) or not stream.isatty():
        yield
        return
    terminal, stream.raw = stream.raw, _Held()
    try:
        yield
    finally:
        text, stream.raw = stream.raw.getvalue(), terminal
        size = shutil.get_terminal_size()
        if sum(1 + len(line) // size.columns for line in text.splitlines()) < size.lines:
            terminal.write(text)
        else:
            import pydoc

            os.environ.setdefault("LESS", "FRX")  # colours, and no pager for a text that fits
            terminal.flush()
            pydoc.pipepager(text, pager)
