"""Whether a nova-compute runs, and what is recent: by the database's time, and by what services reported."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpustack.cleanup.model import Service


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What "up", "recent" and "long ago" mean.

    :ivar now: the database's own time, naive UTC.
    :ivar grace: nothing is called stale that changed within this time.
    :ivar service_down_time: a service that reported within this time is up (nova.conf: ``service_down_time``, 60 s).
    """

    now: datetime
    grace: timedelta = timedelta(seconds=300)
    service_down_time: timedelta = timedelta(seconds=60)
    stuck_after: timedelta = timedelta(hours=1)
    """Work on which nothing was written for so long may be *stuck*."""
    stopped: frozenset[str] = frozenset()
    """Hosts whose nova-compute the operator has stopped for a repair."""
    heard: datetime | None = None
    """When a service of the cell other than nova-compute last reported; None when there is none, or ``doubt``."""
    unblock: frozenset[tuple[str, str]] = frozenset()
    """Devices, by host and address, that the operator wants to be available again (class H)."""
    doubt: str = ""
    """Why the times in the database do not tell which of its services run now; empty when they do."""

    def age(self, reported_at: datetime) -> timedelta:
        """How long ago a service reported, by the nearer of two clocks: the database's, that of the other reports."""
        return min(abs(moment - reported_at) for moment in (self.now, self.heard) if moment is not None)

    def state(self, service: Service | None) -> HostState:
        """Whether a nova-compute runs, by its service alone."""
        if service is None:
            return HostState.GONE
        reported_at = service.reported_at
        if reported_at is not None and self.age(reported_at) <= self.service_down_time:
            return HostState.UP
        if self.doubt or (reported_at is not None and reported_at > self.now):
            return HostState.UNKNOWN
        return HostState.FORCED_DOWN if service.forced_down else HostState.DOWN

    def ahead(self, moment: datetime | None) -> bool:
        """Whether a moment is yet to come, by more than two clocks may differ."""
        return moment is not None and moment - self.now > max(self.grace, self.service_down_time)

    def recent(self, moment: datetime | None) -> bool:
        """Whether a moment lies within the grace time; one that is not known does not."""
        return moment is not None and self.now - moment < self.grace


class HostState(enum.StrEnum):
    """Whether a nova-compute looks after a compute node's rows."""

    UP = "up"
    """A running nova-compute has the rows in its memory; also when it was forced down and reports nevertheless."""
    DOWN = "down"
    FORCED_DOWN = "forced down"
    STOPPED = "stopped"
    """Stopped by the operator, who said so, and the service reports no more."""
    GONE = "gone"
    """The compute node is deleted, or has no nova-compute service."""
    UNKNOWN = "unknown"
    """Unknown: the database's times are not current, or the records are not of one host."""
