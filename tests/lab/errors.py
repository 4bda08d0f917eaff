"""What the lab raises."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_LINES = 40
TERMINAL_SEQUENCE = re.compile(r"\x1b(\[[0-9;?=]*[A-Za-z]|[=>])")


class LabError(Exception):
    """The lab itself failed (image, QEMU, SSH): not a verdict about gpustack."""


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last `lines` lines of a log, without terminal sequences; a note when there is no such file."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return f"({path} does not exist)"
    text = TERMINAL_SEQUENCE.sub("", text)
    printable = "".join(character for character in text if character.isprintable() or character == "\n")
    return "\n".join(printable.splitlines()[-lines:])
