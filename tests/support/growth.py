"""Count the lines that gpustack executes, by function, and find those that grow too fast.

Python reports a line each time that it begins, and each turn of a loop within a line, so results are the same on each
machine. Loops inside C (``in`` of a list, adding tuples) and the garbage collector are invisible here: :file:`bench/`
measures them.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gpustack

PRODUCT = str(Path(gpustack.__file__).parent)
TOP = Path(PRODUCT).parent
FEW = 400
"""Fewer lines than these are not judged."""
_Tracer = Callable[[FrameType, str, Any], Any]


@dataclass
class Counts:
    """What one run did.

    :ivar lines: the number of times that each line began, by the offset of its instruction, by code object.
    :ivar opened: the number of files that were opened.
    :ivar started: the number of processes that were started.
    :ivar statements: the number of SQL statements.
    """

    lines: dict[CodeType, list[int]] = field(default_factory=dict)
    opened: int = 0
    started: int = 0
    statements: int = 0

    def by_place(self) -> Counter[tuple[CodeType, int | None]]:
        """The number of executed lines by code object and line, and of all lines together under None."""
        totals: Counter[tuple[CodeType, int | None]] = Counter()
        for code, counts in self.lines.items():
            totals[code, None] = sum(counts)
            for start, end, line in code.co_lines():
                if line is not None:
                    totals[code, line] += sum(counts[start:end])
        return totals


@dataclass(frozen=True)
class Growth:
    """A function, or a line of it, whose executed lines grow faster than n log n, with the numbers at n and 4 n."""

    code: CodeType
    line: int
    few: int
    many: int
    size: int

    def __str__(self) -> str:
        path = os.path.relpath(self.code.co_filename, TOP)
        grown = f"{self.few} lines at {self.size}, {self.many} at {4 * self.size}"
        return f"{path}:{self.line} {self.code.co_qualname}: {grown} ({self.many / max(self.few, 1):.1f} times)"


_counting: Counts | None = None
"""The counts of the run that takes place: Python's audit hooks cannot be removed."""
_hooked = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _counting is None:
        return
    if event == "open" and isinstance(arguments[0], str) and not arguments[0].endswith((".py", ".pyc")):
        _counting.opened += 1
    elif event in ("subprocess.Popen", "os.posix_spawn", "os.fork"):
        _counting.started += 1


def counted(run: Callable[[], object], *below: str) -> Counts:
    """Run something, and count what the code in some directories does (default: all of gpustack)."""
    global _counting, _hooked
    counts = Counts()
    tracers: dict[CodeType, _Tracer | None] = {}
    places = below or (PRODUCT,)

    def tracer(code: CodeType) -> _Tracer | None:
        if not code.co_filename.startswith(places):
            return None
        cells = counts.lines[code] = [0] * len(code.co_code)

        def local(frame: FrameType, event: str, _argument: object) -> _Tracer:
            if event == "line":
                cells[frame.f_lasti] += 1
            return local

        return local

    def called(frame: FrameType, _event: str, _argument: object) -> _Tracer | None:
        code = frame.f_code
        try:
            local = tracers[code]
        except KeyError:
            local = tracers[code] = tracer(code)
        return local

    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    before = sys.gettrace()
    _counting = counts
    threading.settrace(called)  # a pool that asks a cloud also does work of the fleet
    sys.settrace(called)
    try:
        run()
    finally:
        sys.settrace(before)
        threading.settrace(before)
        _counting = None
    return counts


def limit(size: int) -> float:
    """How many times as many lines n log n permits at four times the size."""
    return 4 * math.log(4 * size) / math.log(size)


def too_fast(few: Counts, many: Counts, size: int) -> list[Growth]:
    """The functions and lines that grow faster than n log n from ``size`` to four times as much.

    A line counts by itself: beside much linear work, a short loop within a loop hides in the total of its function.
    """
    before = few.by_place()
    worst: dict[CodeType, Growth] = {}
    # Totals come first: they count where no line grows enough by itself, with the first line of the function.
    for (code, line), number in sorted(many.by_place().items(), key=lambda pair: (pair[0][1] is not None, pair[1])):
        if number > FEW and number > limit(size) * before[code, line]:
            worst[code] = Growth(code, line or code.co_firstlineno, before[code, line], number, size)
    return sorted(worst.values(), key=lambda growth: -growth.many)


def confirmed(few: Counts, many: Counts, size: int, most: Callable[[], Counts]) -> list[Growth]:
    """The functions and lines that grow too fast up to four times the size, and again up to 16 times.

    Work that begins at some size, such as grouping, looks like growth once.

    :param most: counts at 16 times the size; it is called if there is a suspicion.
    """
    suspects = too_fast(few, many, size)
    again = {growth.code for growth in too_fast(many, most(), 4 * size)} if suspects else ()
    return [growth for growth in suspects if growth.code in again]
