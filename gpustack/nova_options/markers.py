"""The markers of gpustack's own lines in configuration files."""

from __future__ import annotations

from collections.abc import Sequence

DROP_IN = "300-gpustack.conf"
CONTROL = "control"
"""The directory of rendered drop-in files for the hosts of nova-api, nova-scheduler and nova-conductor."""
MARK = "# Written by gpustack"
BEGIN = "# BEGIN gpustack: change the spec and render again"
END = "# END gpustack"


def own_lines(text: str) -> Sequence[bool]:
    """For each line, whether gpustack wrote it."""
    inside = owned = text.startswith(MARK)
    lines = []
    for line in text.split("\n"):
        inside = owned or line.startswith(BEGIN) or (inside and not line.startswith(END))
        lines.append(inside)
    return lines


def without_block(text: str) -> str:
    """The text without gpustack's block."""
    outside, inside = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith(BEGIN):
            inside = True
        if not inside:
            outside.append(line)
        if line.startswith(END):
            inside = False
    return "".join(outside)


def without_ours(text: str) -> str:
    """The text without gpustack's lines; empty for a file that gpustack wrote as a whole."""
    return "" if text.startswith(MARK) else without_block(text)
