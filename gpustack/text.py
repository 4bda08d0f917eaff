"""Text from elsewhere, made fit for a terminal.

Hosts, databases, tenants and files choose the names in what gpustack prints. Every path of output goes through
:func:`printable`: the command line's streams are :class:`SafeStream`, an error's text is printable by itself, and what
the action plugins hand to Ansible is passed through :func:`printable_data`.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

# Control, format (bidirectional overrides, zero width), surrogate, private use, unassigned; line and paragraph
# separators.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
LAYOUT = "\n\t"
"""What texts of several lines may keep."""


def printable(text: str, *, keep: str = "\n") -> str:
    r"""``text`` with everything escaped that could move a cursor, recolour a terminal or reorder what is read.

    In a document of JSON, which has the characters below U+0020 escaped already, the result is the same document.

    >>> printable("\x1b[2J harmless")
    '\\x1b[2J harmless'
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep or unicodedata.category(c) not in _HARMFUL else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if character < " ":
        return character.encode("unicode_escape").decode()
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


def printable_data(value: Any) -> Any:  # noqa: ANN401 - plain data
    """Plain data with every text in it printable: what Ansible prints of a result."""
    if isinstance(value, str):
        return printable(value, keep=LAYOUT)
    if isinstance(value, dict):
        return {printable_data(key): printable_data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [printable_data(inner) for inner in value]
    return value


def listed(names: Sequence[str], shown: int) -> str:
    """Names in one line; of many, the first ones and how many more there are.

    >>> listed(["gpu01", "gpu02", "gpu03"], 2)
    'gpu01, gpu02 and 1 more'
    """
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


class SafeStream(io.TextIOBase):
    """A stream to a terminal or a file that people look at: whatever is written to it is printable.

    :ivar raw: the stream itself, for what draws with escape sequences of its own.
    """

    def __init__(self, raw: TextIO) -> None:
        super().__init__()
        self.raw = raw

    def write(self, text: str, /) -> int:
        """Write the text, made printable."""
        self.raw.write(printable(text, keep=LAYOUT))
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:  # type: ignore[override]
        """Write the lines, made printable."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream."""
        self.raw.flush()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self.raw.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self.raw.fileno()

    def writable(self) -> bool:
        """It is written to."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's encoding."""
        return self.raw.encoding


def raw(stream: TextIO) -> TextIO:
    """The stream below a :class:`SafeStream`."""
    return stream.raw if isinstance(stream, SafeStream) else stream
