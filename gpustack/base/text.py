"""Make untrusted text safe for a terminal.

Names in gpustack's output come from hosts, databases, tenants and files. All output goes through :func:`printable`: the
command line's streams are :class:`SafeStream`, an error makes its own text printable, and results of the action
plugins pass through :func:`printable_data`.
"""

import codecs
import io
import re
import shlex
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

# Control, format (bidirectional overrides, zero width), surrogate, private use, unassigned; line and paragraph
# separators.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
LAYOUT = "\n\t"
"""The control characters that multi-line texts may keep."""


def printable(text: str, *, keep: str = "\n") -> str:
    r"""``text`` with characters escaped that could move a cursor, change colours or reorder text on a terminal.

    JSON stays the same document, since it already escapes the characters below U+0020.

    >>> printable("\x1b[2J harmless")
    '\\x1b[2J harmless'
    """
    if text.isprintable() or text.translate(dict.fromkeys(map(ord, keep))).isprintable():
        return text
    return "".join(c if c in keep or unicodedata.category(c) not in _HARMFUL else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if character < " ":
        return character.encode("unicode_escape").decode()
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


def in_lines(entries: Iterable[object]) -> str:
    """A text with one line for each entry, whatever the entry contains: tenants choose names."""
    return "\n".join(printable(str(entry), keep="") for entry in entries)


def printable_data(value: Any, *, keep: str = LAYOUT) -> Any:  # noqa: ANN401 - plain data
    """Plain data with all texts printable: results that Ansible prints, and answers of hosts."""
    if isinstance(value, str):
        return printable(value, keep=keep)
    if isinstance(value, dict):
        return {printable_data(key, keep=keep): printable_data(inner, keep=keep) for key, inner in value.items()}
    return [printable_data(inner, keep=keep) for inner in value] if isinstance(value, list | tuple) else value


def quoted(value: object) -> str:
    """One word of a shell command that a user pastes: hosts, databases, clouds and tenants choose names.

    >>> quoted("gpu01; reboot")
    "'gpu01; reboot'"
    """
    return shlex.quote(str(value))


def without_login(url: str) -> str:
    """A URL without a user and a password, as texts and records have it."""
    return re.sub("(?<=//)[^/]*@", "", url)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where needed."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def listed(names: Sequence[str], shown: int) -> str:
    """Names in one line, whatever they contain; of a long list, the first ones and the number of the others.

    >>> listed(["gpu01", "gpu02", "gpu03"], 2)
    'gpu01, gpu02 and 1 more'
    """
    more = len(names) - shown
    return ", ".join(printable(name, keep="") for name in names[:shown]) + (f" and {more} more" if more > 0 else "")


def clipped(text: str, longest: int = 80) -> str:
    """The text; the end of a long one is replaced. Names of tenants may have 255 characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def paragraph(text: str, first: str = "", others: str = "") -> str:
    """Text wrapped to the terminal, at most 100 columns wide; in a pipe, one line. Words stay in one piece.

    :param first: the indentation of the first line.
    :param others: the indentation of the other lines.
    """
    return textwrap.fill(
        " ".join(text.split()),
        min(shutil.get_terminal_size().columns, 100) if sys.stdout.isatty() else sys.maxsize,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


_IN_ASCII = str.maketrans(
    {"→": "->", "…": "...", "─": "-", "│": "|", "├": "|", "└": "`", "█": "#", "∴": "=>", "“": '"', "”": '"'}
)


def _without_unicode(error: UnicodeError) -> tuple[str, int]:
    """Write what the encoding of a stream lacks as ASCII. Python's own handler of standard output raises."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_IN_ASCII)
    return text.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error("gpustack", _without_unicode)


class SafeStream(io.TextIOBase):
    """A text stream to a terminal or file that makes everything printable, in its encoding.

    :ivar raw: the underlying stream, for output with escape sequences of its own.
    """

    def __init__(self, raw: TextIO) -> None:
        super().__init__()
        self.raw = raw
        if isinstance(raw, io.TextIOWrapper):
            raw.reconfigure(errors="gpustack")

    def write(self, text: str, /) -> int:
        self.raw.write(printable(text, keep=LAYOUT))
        return len(text)

    def flush(self) -> None:
        if not self.raw.closed:  # flushed once more when it is deleted
            self.raw.flush()

    def isatty(self) -> bool:
        return self.raw.isatty()

    def fileno(self) -> int:
        return self.raw.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.raw.encoding


def raw(stream: TextIO) -> TextIO:
    """The stream below a :class:`SafeStream`; another stream is returned unchanged."""
    return stream.raw if isinstance(stream, SafeStream) else stream
