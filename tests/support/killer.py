"""End a process at one of the writes of ``cleanup apply``."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

import sqlalchemy as sa

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


def killed(work: Callable[[], object], at: int) -> bool:
    """Work in a process of its own, killed at a step of what it writes; return whether it came to its end."""
    child = os.fork()
    if child:
        _pid, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL), status
        return status == 0
    try:
        killer = Killer(at)
        sa.event.listen(sa.Engine, "before_cursor_execute", killer.statement)
        sa.event.listen(sa.Engine, "after_cursor_execute", killer.statement)
        sa.event.listen(sa.Engine, "commit", killer.step)
        os.fsync = killer.around(os.fsync)  # type: ignore[assignment]
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
