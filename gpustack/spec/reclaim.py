"""The section ``reclaim`` of the spec's model: when GPUs of idle instances may be freed."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, StrictBool

from gpustack.spec.fields import SpecSection, described, matching
from gpustack.spec.flavors import Project

DURATION_PATTERN = r"^[1-9][0-9]{0,4}[mhd]$"
MOMENT_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})$"
SERVER_PATTERN = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """The length of ``90m``, ``12h`` or ``3d``."""
    return timedelta(**{_UNITS[text[-1]]: int(text[:-1])})


def moment(text: str) -> datetime:
    """A time with its time zone, such as ``2026-12-31T18:00:00Z``, as naive UTC.

    :raises ValueError: if the text is not such a time. A time without a time zone is never guessed.
    """
    if not re.fullmatch(MOMENT_PATTERN[1:-1], text, re.ASCII):
        raise ValueError("expected a time with time zone, like 2026-12-31T18:00:00Z")
    try:
        return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise ValueError("the time is out of range") from error


def _checked(text: str) -> str:
    moment(text)
    return text


Duration = Annotated[str, matching(DURATION_PATTERN, "a number of minutes, hours or days", "72h")]
Moment = Annotated[
    str, AfterValidator(_checked), described(MOMENT_PATTERN, "a time with time zone in quotes", "2026-12-31T18:00:00Z")
]
ServerId = Annotated[str, matching(SERVER_PATTERN, "the id of an instance", "3f2b8c1e-5d0a-4b7c-9e6f-1a2b3c4d5e6f")]


class IdleAfter(SpecSection):
    """How long an instance may hold GPUs in a state without using them. A state without a time is permitted forever."""

    shutoff: Duration | None = None
    """Time in SHUTOFF, counted from the last stop."""
    paused: Duration | None = None
    """Time in PAUSED. The content of the instance's memory is lost."""
    suspended: Duration | None = None
    """Time in SUSPENDED. The content of the instance's memory is lost."""


class Reclaim(SpecSection):
    """When `gpustack reclaim` frees the GPUs of idle instances, by shelving the instances."""

    projects: tuple[Project, ...] = ()
    """The projects whose instances may be shelved, by id or name. Instances of other projects are only listed."""
    idle_after: IdleAfter = IdleAfter()
    """How long a stopped instance may hold GPUs, by state."""
    grace: Duration = "72h"
    """Time between the notice and the shelving."""
    expired: StrictBool = False
    """Whether instances expire at the time in their metadata key `gpustack:expires`. Tenants can change their metadata."""  # noqa: E501
    expires: Mapping[ServerId, Moment] = {}
    """The times at which instances expire, by id of the instance. A time here replaces the one of the metadata."""
    running: StrictBool = False
    """Whether expired instances are shelved in the states ACTIVE, PAUSED and SUSPENDED too. They are shut down, and the content of their memory is lost."""  # noqa: E501
