"""What a run leaves in Nova so that another run can take it up: the reason of a disabled service, and guests' metadata.

A guest is marked before it is stopped or moved: for which host, and what was the last thing that anybody had asked of
it until then. Nova keeps a list of what is asked of a guest, so it can be told later whether only gpustack has acted
since.
"""

from __future__ import annotations

import enum
import re
from datetime import datetime

from gpustack.maintenance.model import ComputeService, Server

STOPPED = "gpustack_stopped_for"
"""The host for whose reboot gpustack stopped a guest."""
MOVED = "gpustack_moved_from"
"""The host from which gpustack moved a guest."""
AFTER = "gpustack_after"
"""The request that was the last before gpustack's own."""

_OURS = "gpustack:"
_LONGEST = 255


def reason(host: str, why: str, now: datetime) -> str:
    """Why a service is disabled."""
    return _reason(f"{host} is rebooted: {why}", now)


def reason_of_failure(host: str, why: str, now: datetime) -> str:
    """Why a service stays disabled after a run that has failed."""
    return _reason(f"{host} has failed: {' '.join(why.split())}", now)


def _reason(text: str, now: datetime) -> str:
    """In a form that :func:`disabled_here` knows again; Nova takes 255 characters."""
    end = f" (since {now:%Y-%m-%dT%H:%M:%SZ})"
    return f"{_OURS} {text}"[: _LONGEST - len(end)] + end


def disabled_here(service: ComputeService | None) -> bool:
    """Whether gpustack disabled the service, and nobody has disabled it for another reason since."""
    return service is not None and not service.enabled and service.reason.startswith(_OURS)


class Since(enum.Enum):
    """What was asked of a marked guest since it was marked."""

    OURS = "only what gpustack asks"
    NOTHING = "nothing"
    OTHERS = "something else"


_STOPPED = re.compile(r"(stop )+(start )*")
_MOVED = re.compile(r"(migrate )+|(live-migration )+")


def since(server: Server, key: str, user: str) -> Since:
    """What was asked of a guest since it was marked.

    After a stop, a start is gpustack's own that did not work; a stop after a start is not: somebody wanted it stopped.

    :param key: the mark: :data:`STOPPED` or :data:`MOVED`.
    :param user: the id of the user that gpustack signs in as; empty when it can't be known.
    """
    newer = []
    for action in server.actions or ():
        if action.request == server.metadata.get(AFTER):
            break
        newer.append(action)
    else:
        return Since.OTHERS  # the mark names nothing that was ever asked: it can't be judged
    if not newer:
        return Since.NOTHING
    if user and any(action.user and action.user != user for action in newer):
        return Since.OTHERS
    verbs = "".join(f"{action.name} " for action in reversed(newer))
    return Since.OURS if (_STOPPED if key == STOPPED else _MOVED).fullmatch(verbs) else Since.OTHERS
