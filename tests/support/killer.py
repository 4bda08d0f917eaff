"""End a process at one of the writes of ``cleanup apply``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from gpustack.repair.verdict import Repair

REPAIRS = (
    ("A", Repair.FREE),
    ("B", Repair.FAIL_MIGRATION),
    ("B", Repair.FREE),
    ("C", Repair.RETIRE),
    ("D", Repair.CLEAR_DELETED),
    ("E", Repair.FREE),
    ("F", Repair.FREE),
    ("G", Repair.FREE),
    ("H", Repair.UNBLOCK),
    ("I", Repair.BLOCK_PARENT),
    ("J", Repair.CLEAR_OWNER),
)
READS = 40
"""Reading statements change nothing; only every READS-th of them counts as a step."""


class Killer:
    """Counts writes, and ends the process at one of them."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count = self._reads = 0

    def step(self, *_arguments: object) -> None:
        self._count += 1
        if self._count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def statement(self, _connection: object, _cursor: object, text: str, *_rest: object) -> None:
        if text.startswith(("SELECT", "PRAGMA")):
            self._reads += 1
            if self._reads % READS:
                return
        self.step()

    def around(self, original: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **keywords: object) -> object:
            self.step()
            result = original(*arguments, **keywords)
            self.step()
            return result

        return wrapped
