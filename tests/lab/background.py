"""A playbook that runs while the test goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


def in_background(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> Future[_T]:
    """Call the function in a thread.

    A test that is interrupted does not wait for it: its hosts end first, and then the playbook, which loses them.
    """
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(function, *arguments, **options)
    pool.shutdown(wait=False)
    return future
