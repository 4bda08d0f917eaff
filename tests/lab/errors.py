"""What the lab raises."""

from __future__ import annotations

from pathlib import Path

TAIL_LINES = 40


class LabError(Exception):
    """The lab itself failed (image, QEMU, SSH): not a verdict about gpustack."""


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last `lines` lines of a log, without control characters; a note when there is no such file."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return f"({path} does not exist)"
    printable = "".join(character for character in text if character.isprintable() or character == "\n")
    return "\n".join(printable.splitlines()[-lines:])
