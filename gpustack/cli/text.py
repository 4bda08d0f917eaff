"""Text from elsewhere, made fit for a terminal."""

from __future__ import annotations

import unicodedata

# Control, format (bidirectional overrides, zero width), surrogate, private use, unassigned; line and paragraph
# separators.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str, *, keep: str = "\n") -> str:
    r"""``text`` with everything escaped that could move a cursor, recolour a terminal or reorder what is read.

    >>> printable("\x1b[2J harmless")
    '\\x1b[2J harmless'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or unicodedata.category(c) not in _HARMFUL else c.encode("unicode_escape").decode() for c in text
    )
