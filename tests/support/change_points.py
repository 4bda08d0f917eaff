"""The points of a run at which a fault can come: around each line of the journal and each request that writes."""

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
    """

    def __init__(self, at: int = NEVER, fault: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._at, self._fault = at, fault

    def _point(self) -> None:
        if self.count == self._at:
            self._fault()
        self.count += 1

    def _around(self, original: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            if not counts(*arguments, **keywords):
                return original(*arguments, **keywords)
            self._point()
            result = original(*arguments, **keywords)
            self._point()
            return result

        return wrapped

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the run within the block."""
        lines, writes = (lambda *_arguments: True), _writes
        with (
            mock.patch.object(RunJournal, "begin", self._around(RunJournal.begin, lines)),
            mock.patch.object(RunJournal, "end", self._around(RunJournal.end, lines)),
            mock.patch.object(HTTPConnectionPool, "urlopen", self._around(HTTPConnectionPool.urlopen, writes)),
        ):
            yield


def _writes(_pool: Any, method: str, url: str, *_more: Any, **_keywords: Any) -> bool:
    """Whether a request changes something but the lock and the token."""
    return method != "GET" and "/auth/" not in url
