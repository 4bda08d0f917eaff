"""One compute node with its rows, their owners, and the clock: whether nova-compute runs, which changes are recent."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from gpustack.base.by_key import by_key
from gpustack.base.hostnames import find
from gpustack.novadb.hardware import Hardware
from gpustack.novadb.model import TAKEN, ComputeNode, Instance, Migration, PciRow, Request, Service
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


_REPORT_INTERVAL = timedelta(seconds=10)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The owner of rows: an instance, in whichever cell it is."""

    uuid: str
    instance: Instance | None = None
    in_several_cells: bool = False
    migrations: tuple[Migration, ...] = ()
    """Those in the cell of the rows."""
    migrations_elsewhere: tuple[Migration, ...] = ()
    """Those in other cells; their ids, hosts and rows mean nothing in the cell of the rows."""
    requests: tuple[Request, ...] | None = None
    """None if no readable ``pci_requests`` exists."""
    unknown_because: str | None = None
    """Why it cannot be judged: a database could not be read, or its mapping contradicts the cells; None if it can."""
    unknown_even_so: str | None = None
    """As ``unknown_because``, without unreadable cells that its mapping does not name."""
    asked: str | None = None
    """The text of ``pci_requests`` in the database, for comparison; None if there is none, or if it is unreadable."""

    @property
    def moves(self) -> tuple[Migration, ...]:
        """All its migrations, in every cell."""
        return (*self.migrations, *self.migrations_elsewhere)

    @property
    def alive(self) -> bool:
        """Whether the instance exists and is not deleted."""
        return self.instance is not None and self.instance.deleted == 0

    @property
    def wanted(self) -> int:
        """The number of devices that the instance requests."""
        return sum(request.count for request in self.requests or ())

    def on(self, node: ComputeNode) -> bool:
        """Whether the instance is live and placed on this compute node."""
        return self.instance is not None and not self.instance.deleted and node.has(self.instance)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One compute node with everything that its rows are judged by.

    :ivar rows: its live rows, and soft-deleted rows that still name an owner.
    :ivar owners: the owners of all rows, and all live instances that are, or may be, placed on it, by uuid.
    :ivar elsewhere: rows of this node's owners on other compute nodes, by owner: (name of the compute node's host,
        row).
    """

    cell: str
    node: ComputeNode
    service: Service | None
    rows: tuple[PciRow, ...]
    owners: Mapping[str, Owner]
    elsewhere: Mapping[str, tuple[tuple[str, PciRow], ...]] = field(default_factory=dict)
    has_request_ids: bool = True
    """Whether PCI requests of flavors have an id in this release (Zed and later)."""
    hardware: Hardware | None = None
    """The PCI functions of the host, from its facts; None without facts."""
    services: Mapping[str, Service] = field(default_factory=dict)
    """The ``nova-compute`` services of the cell, indexed by host."""
    written: Mapping[int, str] = field(default_factory=dict)
    """By row id, the original spelling of owner uuids that are not in lower case."""
    moves: tuple[Migration, ...] = ()
    """The unfinished migrations from or to this compute node, of any instance."""
    unread: str = ""
    """Why only the names of the compute node could be read; empty if everything was read."""

    def service_on(self, host: str) -> Service | None:
        """Return the nova-compute service of a host of this cell; None if there is none."""
        return find(self.services, host)

    def host_state(self, clock: Clock) -> HostState:
        """The state of the nova-compute of this node, including ``--stopped`` and deletion of the compute node."""
        if self.node.deleted:
            return HostState.GONE
        if self.node.host in clock.stopped and not (self.others_service or self.reports(clock)):
            return HostState.STOPPED
        return HostState.UNKNOWN if self.service is None or self.others_service else clock.state(self.service)

    @property
    def others_service(self) -> bool:
        """Whether the service of this host's name is not the one that has written the compute node."""
        return self.service is not None and self.node.service_id not in (None, self.service.id)

    def reports(self, clock: Clock) -> bool:
        """Whether nova-compute reported within two of its own report intervals (nova.conf: ``report_interval``, 10 s).

        The limit is at most ``service_down_time``, which also applies if the interval is unknown.
        """
        reported_at = self.service.reported_at if self.service else None
        if self.service is None or reported_at is None:
            return False
        interval = self.service.interval or clock.service_down_time
        silence = min(clock.service_down_time, 2 * max(interval, _REPORT_INTERVAL))
        # The database's clock may differ from the services': compare with the reports of other services too.
        like_others = clock.heard is not None and clock.heard - reported_at <= silence / 2
        return like_others or abs(clock.now - reported_at) <= silence

    @cached_property
    def odd(self) -> tuple[PciRow, ...]:
        """All rows except live ones that are available without owner or taken with one; few in a healthy cell."""
        return tuple(
            row
            for row in self.rows
            if row.deleted != 0 or (row.status not in TAKEN if row.instance_uuid else row.status != "available")
        )

    @cached_property
    def by_address(self) -> Mapping[str, PciRow]:
        """The live rows by address."""
        return {row.address: row for row in self.rows if row.deleted == 0}

    @cached_property
    def children(self) -> Mapping[str, tuple[PciRow, ...]]:
        """The live virtual functions, by the address of their physical function."""
        by_parent = by_key((row.parent_addr, row) for row in self.rows if row.parent_addr and row.deleted == 0)
        return {address: tuple(rows) for address, rows in by_parent.items()}

    def relatives(self, row: PciRow) -> tuple[PciRow, ...]:
        """The live parent of a virtual function, or the live children of a physical one."""
        if row.parent_addr:
            parent = self.by_address.get(row.parent_addr)
            return (parent,) if parent else ()
        return self.children.get(row.address, ())

    @cached_property
    def taken(self) -> tuple[PciRow, ...]:
        """The live rows that are claimed or allocated."""
        return tuple(row for row in self.rows if row.status in TAKEN and row.deleted == 0)

    @cached_property
    def displaced(self) -> tuple[tuple[PciRow, Owner], ...]:
        """The taken rows whose owner is not placed on this node, with the owner; few in a healthy cell."""
        present = {uuid for uuid, owner in self.owners.items() if owner.on(self.node)}
        return tuple(
            (row, self.owners[row.instance_uuid])
            for row in self.taken
            if row.instance_uuid and row.instance_uuid not in present
        )

    @cached_property
    def held(self) -> Mapping[str, tuple[PciRow, ...]]:
        """The live claimed or allocated rows, by owner."""
        by_owner = by_key((row.instance_uuid, row) for row in self.taken if row.instance_uuid)
        return {uuid: tuple(rows) for uuid, rows in by_owner.items()}
