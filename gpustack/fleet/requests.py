"""Requests to the APIs of a cloud: read-only, several at a time, with errors as :class:`CloudError`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from gpustack.base.errors import CloudError
from gpustack.cloud.session import raise_refusal, translated_errors

if TYPE_CHECKING:
    from openstack.connection import Connection

AT_ONCE = 8
"""Requests at a time: few enough for an API that serves a cloud meanwhile."""
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError)
_ROLE = "the user needs the right to read this: use a cloud of clouds.yaml with the role admin or reader of the system"
Question = TypeVar("Question")
Answer = TypeVar("Answer")
Progress = Callable[[int, int], None]
"""Called with the number of requests that were answered, and their total."""


def silent(done: int, total: int) -> None:
    """Show no progress."""


def get(cloud: Connection, service: str, path: str, doing: str, *, version: str | None = None) -> Any:  # noqa: ANN401 - JSON
    """The content of a resource.

    :param service: the name of the SDK's proxy: ``compute``, ``placement`` or ``identity``.
    :param doing: the action, for the message: "can't …".
    :param version: the microversion.
    :raises gpustack.cloud.session.Refused: if the API refuses.
    :raises CloudError: if there is no answer, or an unreadable one.
    """
    with translated_errors(doing):
        answer = getattr(cloud, service).get(path, microversion=version)
        raise_refusal(answer, doing, None, forbidden=_ROLE)
        content = answer.json()
    if not isinstance(content, dict):
        raise CloudError(f"can't {doing}: the answer is not as the API documents it")
    return content


@contextmanager
def well_formed(doing: str) -> Iterator[None]:
    """Convert the exceptions of reading a malformed answer to a :class:`CloudError`."""
    try:
        yield
    except _MALFORMED as error:
        raise CloudError(
            f"can't {doing}: the answer is not as the API documents it", remedy="check which service answers there"
        ) from error


def pages(cloud: Connection, path: str, key: str, doing: str, *, version: str) -> Iterator[list[Any]]:
    """Yield the pages of a listing of Nova, one request for each thousand entries (``[api] max_limit``)."""
    marker = ""
    while True:
        content = get(cloud, "compute", f"{path}&limit=1000{marker}", doing, version=version)
        with well_formed(doing):
            entries = list(content[key])
            yield entries
            more = any(link.get("rel") == "next" for link in content.get(f"{key}_links", ()))
            if not (more and entries):
                return
            last = entries[-1]
            following = f"&marker={last.get('uuid') or last['id']}"
            if following == marker:
                raise ValueError("the next page begins where this one did")
            marker = following


def each(
    ask: Callable[[Question], Answer], questions: Iterable[Question], progress: Progress = silent
) -> Iterator[Answer]:
    """Yield the answers in the order of the questions, :data:`AT_ONCE` requests at a time."""
    wanted = list(questions)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        try:
            for number, answer in enumerate(pool.map(ask, wanted), 1):
                progress(number, len(wanted))
                yield answer
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
