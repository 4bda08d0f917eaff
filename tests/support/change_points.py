"""The points of a run at which a fault can come: after each line of the journal and each request that writes.

Between two points, neither the journal nor the cloud changes: a fault there has the effect of one at the point before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from urllib3.connectionpool import HTTPConnectionPool

from gpustack.changes.journal import RunJournal

NEVER = 10**9


class ChangePoints:
    """Counts the points of a run, and does something at one of them.

    :param at: the number of the point, from 0.
    :param operations: whether only the begins of operations count.
    """

    def __init__(self, at: int = NEVER, fault: Callable[[], None] = lambda: None, *, operations: bool = False) -> None:
        self.count = 0
        self._at, self._fault, self._operations = at, fault, operations

    def _after(self, original: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            result = original(*arguments, **keywords)
            if counts(*arguments, **keywords):
                self.count += 1
                if self.count - 1 == self._at:
                    self._fault()
            return result

        return wrapped

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the run within the block."""

        def all_points(*_arguments: Any, **_keywords: Any) -> bool:
            return not self._operations

        def writes(_pool: Any, method: str, url: str, *_more: Any, **_keywords: Any) -> bool:
            """Whether a request changes something; signing in does not."""
            return not self._operations and method != "GET" and "/auth/" not in url

        with (
            mock.patch.object(RunJournal, "__init__", self._after(RunJournal.__init__, all_points)),
            mock.patch.object(RunJournal, "begin", self._after(RunJournal.begin, lambda *_arguments: True)),
            mock.patch.object(RunJournal, "end", self._after(RunJournal.end, all_points)),
            mock.patch.object(HTTPConnectionPool, "urlopen", self._after(HTTPConnectionPool.urlopen, writes)),
        ):
            yield
