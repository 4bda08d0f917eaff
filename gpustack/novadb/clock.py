"""Decide whether a nova-compute runs and which changes are recent, from the database's time and services' reports."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from gpustack.novadb.model import Service
from gpustack.spec.model import OutOfService
from gpustack.spec.out_of_service import by_machine

CURRENT = timedelta(minutes=15)
"""A report older than this shows no service as up, whatever ``service_down_time`` says: the option may be wrong."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the operator chose: the limits of "up", "recent" and "long ago", and the state of hosts and devices.

    :ivar grace: rows that changed within this time are never stale.
    :ivar service_down_time: a service that reported within this time is up (nova.conf: ``service_down_time``, 60 s).
    """

    grace: timedelta = timedelta(seconds=300)
    service_down_time: timedelta = timedelta(seconds=60)
    stuck_after: timedelta = timedelta(hours=1)
    """Work may be *stuck* if nothing has been written for this time."""
    stopped: frozenset[str] = frozenset()
    """Hosts whose nova-compute the operator has stopped for a repair (``--stopped``)."""
    unblock: frozenset[tuple[str, str]] = frozenset()
    """Devices, by host and address, that class H may make available (``--unblock``)."""
    out_of_service: tuple[OutOfService, ...] = ()
    """GPUs that class H never makes available (``--spec``)."""


@dataclass(frozen=True, kw_only=True)
class Clock(Judgement):
    """The limits, with the times of a cell.

    :ivar now: the database's current time, naive UTC.
    """

    now: datetime
    heard: datetime | None = None
    """The last report of any other service of the cell; None if there is no current one."""
    doubt: str = ""
    """Why the database's times do not show which services run now; empty if they do."""

    @cached_property
    def out_of_service_by_machine(self) -> Mapping[str, Sequence[OutOfService]]:
        """The entries of ``out_of_service`` by the short names of their hosts."""
        return by_machine(self.out_of_service)

    def age(self, reported_at: datetime) -> timedelta:
        """Return the time since a report, by the nearer clock: the database's, or the last report of other services."""
        return min(abs(moment - reported_at) for moment in (self.now, self.heard) if moment is not None)

    def state(self, service: Service | None) -> "HostState":
        """Return the state of a nova-compute from its service alone; GONE without a service."""
        if service is None:
            return HostState.GONE
        reported_at = service.reported_at
        if reported_at is not None and self.age(reported_at) <= self.service_down_time:
            known = max(self.age(reported_at), service.unconfirmed) <= min(self.service_down_time, CURRENT)
            return HostState.UP if known else HostState.UNKNOWN
        if self.doubt or (reported_at is not None and reported_at > self.now):
            return HostState.UNKNOWN
        return HostState.FORCED_DOWN if service.forced_down else HostState.DOWN

    def ahead(self, moment: datetime | None) -> bool:
        """Whether a time is in the future by more than the permitted difference between clocks."""
        return moment is not None and moment - self.now > max(self.grace, min(self.service_down_time, CURRENT))

    def recent(self, moment: datetime | None) -> bool:
        """Whether a time is within the grace time; False if unknown."""
        return moment is not None and self.now - moment < self.grace


class HostState(enum.StrEnum):
    """The state of the nova-compute of a compute node."""

    UP = "up"
    """Running, with the rows in its memory; also if it is forced down but still reports."""
    DOWN = "down"
    FORCED_DOWN = "forced down"
    STOPPED = "stopped"
    """Stopped by the operator (``--stopped``), and the service no longer reports."""
    GONE = "gone"
    """The compute node is deleted, or the host of a migration has no nova-compute service."""
    UNKNOWN = "unknown"
    """The database's times are not current, or a live compute node has no service (Nova deletes both at once), or its
    last report is in the future, or older than ``CURRENT``, or no write confirms it."""
