"""The marks around gpustack's own lines, by which a later run tells them from the lines of others."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpustack.novaconf.config import Setting

MARK = "# Written by gpustack"
BEGIN = "# BEGIN gpustack: change the spec and render again"
END = "# END gpustack"


def foreign(settings: Iterable[Setting]) -> Iterator[Setting]:
    """The settings that gpustack did not write."""
    return (setting for setting in settings if not _is_ours(setting))


def without_block(text: str) -> str:
    """A file without the part that gpustack wrote into it."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith(BEGIN):
            inside = True
        if not inside:
            kept.append(line)
        if line.startswith(END):
            inside = False
    return "".join(kept)


def without_ours(text: str) -> str:
    """The rest of a file without gpustack's lines: nothing of a file that is gpustack's as a whole."""
    return "" if text.startswith(MARK) else without_block(text)


def _is_ours(setting: Setting) -> bool:
    status = Path(setting.file).stat()
    lines = _lines(setting.file, status.st_mtime_ns, status.st_size)
    if lines and lines[0].startswith(MARK):
        return True
    before = lines[: setting.line]
    begin = max((n for n, line in enumerate(before) if line.startswith(BEGIN)), default=-1)
    return begin >= 0 and not any(line.startswith(END) for line in before[begin:])


@functools.lru_cache(maxsize=64)
def _lines(file: str, mtime: int, size: int) -> tuple[str, ...]:
    return tuple(Path(file).read_text(encoding="utf-8").split("\n"))
