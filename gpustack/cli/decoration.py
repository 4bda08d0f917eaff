"""Colour, links and a pager on a terminal. The text is complete, and made printable, without them.

``--color`` decides; with ``auto``, ``NO_COLOR`` (https://no-color.org) and the terminal.
"""

import contextlib
import io
import os
import re
import shutil
from collections.abc import Iterator
from typing import TextIO

from gpustack.base.text import LAYOUT, SafeStream, printable, raw
from gpustack.cli import pages

COLOR = ("auto", "always", "never")
_SEVERITIES = {"ERROR": "1;31", "WARNING": "1;33", "INFO": "1;34"}
_CHANGES = {"+": "32", "-": "31", "~": "33", "@": "36"}
_FINDING = re.compile(rf"^( {{0,2}})({'|'.join(_SEVERITIES)}) (GPU\d{{3}})\b", re.MULTILINE)
_CHANGED = re.compile(r"^( +)([+~-].*|@@ .*)$", re.MULTILINE)
_WITHOUT_ESCAPES = ("", "dumb")
PAGERS = ("GPUSTACK_PAGER", "PAGER")
_WITHOUT_LINKS = ("linux", "vt100", "vt220")


def write(stream: TextIO, text: str, color: str = "auto", *, changes: bool = False) -> None:
    """Print text on a stream, made printable, with coloured severities, and each finding's code linked to its page.

    :param color: one of :data:`COLOR`.
    :param changes: whether the indented lines of a diff are coloured.
    """
    terminal = os.environ.get("TERM", "")
    shows = stream.isatty() and terminal not in _WITHOUT_ESCAPES
    colors = color == "always" or (color == "auto" and shows and not os.environ.get("NO_COLOR"))
    link = _linked if shows and terminal not in _WITHOUT_LINKS else str
    shown = printable(text, keep=LAYOUT)
    if colors:
        shown = _FINDING.sub(lambda m: f"{m[1]}{_colored(m[2], _SEVERITIES[m[2]])} {link(m[3])}", shown)
    if colors and changes:
        shown = _CHANGED.sub(lambda m: f"{m[1]}{_colored(m[2], _CHANGES[m[2][0]])}", shown)
    raw(stream).write(f"{shown}\n")


def _colored(text: str, parameters: str) -> str:
    return f"\x1b[{parameters}m{text}\x1b[0m"


def _linked(code: str) -> str:
    """A finding's code, linked to its page (OSC 8)."""
    url = pages.finding(code)
    return f"\x1b]8;;{url}\x1b\\{code}\x1b]8;;\x1b\\" if url else code


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
