"""The state of a run in Nova: the reason of a disabled service, and metadata of instances.

Before an instance is stopped or moved, gpustack writes metadata: the host, and the last request before its own. Nova
records every request for an instance, so a later run can see whether anybody else has acted since.
"""

from __future__ import annotations

import enum
import re
from datetime import datetime

from gpustack.cloud.compute import Service
from gpustack.cloud.servers import Server

STOPPED = "gpustack_stopped_for"
"""Metadata key: the host for whose reboot gpustack stopped the instance."""
MOVED = "gpustack_moved_from"
"""Metadata key: the host from which gpustack moved the instance."""
AFTER = "gpustack_after"
"""Metadata key: the id of the last request before gpustack's own."""

_OURS = "gpustack:"
_LONGEST = 255


def reason(host: str, why: str, now: datetime) -> str:
    """Return the reason to write to a disabled service.

    :param why: the reason for the reboot.
    """
    return _reason(f"{host} is rebooted: {why}", now)


def reason_of_failure(host: str, why: str, now: datetime) -> str:
    """Return the reason to write to a service that stays disabled after a failed run.

    :param why: the error of the run.
    """
    return _reason(f"{host} has failed: {' '.join(why.split())}", now)


def _reason(text: str, now: datetime) -> str:
    """Format a reason so that :func:`disabled_here` recognizes it; Nova accepts 255 characters."""
    end = f" (since {now:%Y-%m-%dT%H:%M:%SZ})"
    return f"{_OURS} {text}"[: _LONGEST - len(end)] + end


def disabled_here(service: Service | None) -> bool:
    """Whether gpustack disabled the service, and nobody has disabled it for another reason since."""
    return service is not None and not service.enabled and service.reason.startswith(_OURS)


class Since(enum.Enum):
    """The requests for an instance since gpustack marked it."""

    OURS = "only what gpustack asks"
    NOTHING = "nothing"
    OTHERS = "something else"


_STOPPED = re.compile(r"(stop )+(start )*")
_MOVED = re.compile(r"(migrate )+|(live-migration )+")


def since(server: Server, key: str, user: str) -> Since:
    """Classify the requests for an instance since gpustack marked it.

    A start after a stop is gpustack's own start that failed. A stop after a start is not gpustack's: somebody wanted
    the instance stopped.

    :param key: the metadata key: :data:`STOPPED` or :data:`MOVED`.
    :param user: the id of the user as whom gpustack authenticates; empty if unknown.
    """
    newer = []
    for action in server.actions or ():
        if action.request == server.metadata.get(AFTER):
            break
        newer.append(action)
    else:
        return Since.OTHERS  # the recorded request is not in the list: unknown
    if not newer:
        return Since.NOTHING
    if user and any(action.user and action.user != user for action in newer):
        return Since.OTHERS
    verbs = "".join(f"{action.what} " for action in reversed(newer))
    return Since.OURS if (_STOPPED if key == STOPPED else _MOVED).fullmatch(verbs) else Since.OTHERS
