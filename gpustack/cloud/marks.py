"""The marks of gpustack on instances, which count only together with Nova's record of requests.

Before an instance is stopped or moved, gpustack writes metadata: the host, and the last request before its own. The
users of the instance can write the same metadata, but not Nova's instance actions: these show who requested what since.
"""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpustack.cloud.servers import Event, Server


class MarkKind(enum.Enum):
    """Why gpustack marked an instance."""

    STOPPED = "gpustack_stopped_for"
    MOVED = "gpustack_moved_from"


class Since(enum.Enum):
    """The requests for an instance since gpustack marked it."""

    OURS = "only what gpustack asks"
    NOTHING = "nothing"
    OTHERS = "something else"


_AFTER = "gpustack_after"
_REQUESTS = {
    MarkKind.STOPPED: re.compile(r"(stop )+(start )*"),
    MarkKind.MOVED: re.compile(r"(migrate )+|(live-migration )+"),
}


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A mark.

    :ivar host: the host for whose reboot the instance was stopped or moved.
    :ivar recorded: whether Nova recorded gpustack's request after it; otherwise the project wrote the metadata, or the
        run ended before the request.
    """

    kind: MarkKind
    host: str
    since: Since
    recorded: bool


def marks(server: Server, user: str) -> tuple[Mark, ...]:
    """The marks of an instance, compared with its actions.

    A start after a stop is gpustack's own start that failed. A stop after a start is not gpustack's: somebody wanted
    the instance stopped.

    :param user: the id of the user as whom gpustack authenticates; empty if unknown.
    """
    newer = _newer(server)
    return tuple(
        Mark(kind=kind, host=server.metadata[kind.value], since=since, recorded=recorded)
        for kind in MarkKind
        if kind.value in server.metadata
        for since, recorded in [_compared(kind, newer, user)]
    )


def mark_of(server: Server, kind: MarkKind, user: str) -> Mark | None:
    """The mark of one kind; None without one."""
    return next((mark for mark in marks(server, user) if mark.kind is kind), None)


def hosts_named(server: Server) -> frozenset[str]:
    """The hosts that marks name. It decides nothing but which actions to read."""
    return frozenset(server.metadata[kind.value] for kind in MarkKind if kind.value in server.metadata)


def metadata_of(kind: MarkKind, host: str) -> dict[str, str]:
    """The metadata to write before a request."""
    return {kind.value: host}


def metadata_after(request: str) -> dict[str, str]:
    """The metadata that names the last request before gpustack's own."""
    return {_AFTER: request}


def keys_of(server: Server, host: str) -> tuple[str, ...]:
    """The metadata keys of a host's marks, in the order of their removal.

    The request's is first, but only if no other host's mark needs it.
    """
    present = [kind.value for kind in MarkKind if kind.value in server.metadata]
    own = [key for key in present if server.metadata[key] == host]
    return (*((_AFTER,) if own == present else ()), *own)


def _newer(server: Server) -> Sequence[Event] | None:
    """The actions since the recorded request, oldest first; None if Nova does not list that request.

    A run that ended while it removed a mark leaves no request: then nothing counts.
    """
    if _AFTER not in server.metadata:
        return []
    newer: list[Event] = []
    for action in server.actions or ():
        if action.request == server.metadata.get(_AFTER):
            return newer[::-1]
        newer.append(action)
    return None


def _compared(kind: MarkKind, newer: Sequence[Event] | None, user: str) -> tuple[Since, bool]:
    if newer is None:
        return Since.OTHERS, False
    if not newer:
        return Since.NOTHING, False
    ours = [not user or not action.user or action.user == user for action in newer]
    first = f"{newer[0].what} "
    recorded = ours[0] and _REQUESTS[kind].fullmatch(first) is not None
    only_ours = all(ours) and _REQUESTS[kind].fullmatch("".join(f"{action.what} " for action in newer))
    return (Since.OURS if only_ours else Since.OTHERS), recorded
