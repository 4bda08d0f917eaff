"""What clean-up knows of a cell, as plain data: everything that judging the rows of one compute node takes.

Times are naive UTC, as Nova writes them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from gpustack.hostnames import find, key

if TYPE_CHECKING:
    from gpustack.cleanup.hardware import Hardware

# nova/db/main/api.py, migration_get_in_progress_and_error_by_host_and_node: what Nova holds for finished. Since
# Victoria (commit 255b3f2f91) a migration in error is not: its devices stay claimed for ever.
TERMINAL = frozenset({"confirmed", "reverted", "failed", "completed", "cancelled", "done"})
ERROR = "error"
IN_FLIGHT = frozenset(
    {
        "accepted",
        "queued",
        "preparing",
        "running",
        "running (post-copy)",
        "pre-migrating",
        "migrating",
        "post-migrating",
        "finished",
        "confirming",
        "reverting",
    }
)


Place = tuple[str | None, str | None]
"""The keys of a host's and a node's name."""

_REPORT_INTERVAL = timedelta(seconds=10)
_TAKEN = frozenset({"claimed", "allocated"})


# nova/objects/fields.py, PciDeviceStatus
STATUSES = frozenset({"available", "claimed", "allocated", "removed", "deleted", "unclaimable", "unavailable"})
_TEXTS = frozenset({str, type(None)})


class PciRow(NamedTuple):
    """A row of ``pci_devices``. ``deleted`` is 0 for a live row, else the row's own id.

    There may be a million of them: a named tuple is made in a tenth of the time of a data class.
    """

    id: int
    compute_node_id: int
    address: str
    vendor_id: str
    product_id: str
    dev_type: str
    status: str
    instance_uuid: str | None
    request_id: str | None
    parent_addr: str | None
    deleted: int | None
    updated_at: datetime | None
    created_at: datetime | None
    """None as well where ``updated_at`` is known."""

    @classmethod
    def of(cls, values: Iterable[Any]) -> PciRow:
        """A row as a database has it: SQLite, and a server that is none of Nova's, keep any value in a column of text.

        What is no text becomes one: a repair that compares with it finds no such row, and writes nothing.
        """
        row = cls._make(values)
        if row.address.__class__ is row.status.__class__ is str and {value.__class__ for value in row[3:10]} <= _TEXTS:
            return row
        optional = (None if value is None else str(value) for value in row[7:10])
        return cls._make((*row[:2], *map(str, row[2:7]), *optional, *row[10:]))

    @property
    def live(self) -> bool:
        """Whether Nova sees the row (``deleted = 0``); NULL is as good as deleted."""
        return self.deleted == 0

    @property
    def taken(self) -> bool:
        """Whether the row's status says that an instance has the device."""
        return self.status in _TAKEN

    @property
    def changed_at(self) -> datetime | None:
        """When the row was last written."""
        return self.updated_at or self.created_at


@dataclass(frozen=True, kw_only=True)
class ComputeNode:
    """A row of ``compute_nodes``."""

    id: int
    uuid: str | None
    host: str | None
    hypervisor_hostname: str | None
    deleted: int | None
    updated_at: datetime | None
    deleted_at: datetime | None = None
    pci_stats: str | None = None

    @property
    def place(self) -> Place:
        """Its host and node, as those of migrations are compared with."""
        return _place(self.host, self.hypervisor_hostname)

    def has(self, instance: Instance) -> bool:
        """Whether an instance is placed on this live compute node: on the host *and* the node, letter by letter.

        A host that was installed anew has a deleted compute node of the same names, on which nothing is. An instance
        whose names are written otherwise may be here: the classes that free devices ask for that as well.
        """
        return not self.deleted and (instance.host, instance.node) == (self.host, self.hypervisor_hostname)

    @property
    def name(self) -> str:
        """How people call it: the host, and the node where it has another name."""
        host = self.host or "(no host)"
        return host if self.hypervisor_hostname in (None, host) else f"{host} ({self.hypervisor_hostname})"


@dataclass(frozen=True, kw_only=True)
class Service:
    """The ``nova-compute`` row of ``services`` of a host."""

    host: str
    disabled: bool
    forced_down: bool
    last_seen_up: datetime | None
    updated_at: datetime | None
    created_at: datetime | None
    report_count: int | None = None

    @property
    def seen(self) -> datetime | None:
        """When it last reported (``nova/servicegroup/drivers/db.py``, ``is_up``)."""
        return self.last_seen_up or self.created_at

    @property
    def interval(self) -> timedelta | None:
        """How often it has reported on average since it was created; None when that is not known.

        Times in which it did not run make the average longer: a silence that is judged by it is the surer.
        """
        if not self.report_count or self.last_seen_up is None or self.created_at is None:
            return None
        return max((self.last_seen_up - self.created_at) / self.report_count, timedelta(0))


class Instance(NamedTuple):
    """A row of ``instances``; ``cell`` names the cell in which it was found.

    Like :class:`PciRow`, and unlike most facts, there may be hundreds of thousands of them.
    """

    uuid: str
    host: str | None
    node: str | None
    vm_state: str | None
    task_state: str | None
    deleted: int
    hidden: bool
    display_name: str | None
    cell: str
    updated_at: datetime | None = None
    """When it was last written, its deletion included."""


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A row of ``migrations`` that is not soft-deleted."""

    id: int
    instance_uuid: str
    source_compute: str | None
    source_node: str | None
    dest_compute: str | None
    dest_node: str | None
    status: str | None
    migration_type: str | None
    cross_cell_move: bool
    updated_at: datetime | None

    @property
    def in_flight(self) -> bool:
        """Whether work is under way, or might be: an unknown status counts as one that is."""
        return self.status not in TERMINAL and self.status != ERROR

    @property
    def known(self) -> bool:
        """Whether the status is one that Nova's code has."""
        return self.status in TERMINAL or self.status in IN_FLIGHT or self.status == ERROR

    def touches(self, node: ComputeNode) -> bool:
        """Whether the migration leads from or to a compute node; MySQL, and so Nova, ignores the case of names."""
        return node.place in self.places

    @property
    def places(self) -> tuple[Place, Place]:
        """Where it leads from and to."""
        return _place(self.source_compute, self.source_node), _place(self.dest_compute, self.dest_node)

    @property
    def over(self) -> bool:
        """Whether Nova holds it for finished: it keeps no device then."""
        return self.status in TERMINAL

    @property
    def ends(self) -> tuple[str, ...]:
        """The hosts that it leads from and to."""
        return tuple(dict.fromkeys(host for host in (self.source_compute, self.dest_compute) if host))


def _place(host: str | None, node: str | None) -> Place:
    return (host and key(host), node and key(node))


@dataclass(frozen=True, kw_only=True)
class Request:
    """One of an instance's PCI requests (``instance_extra.pci_requests``)."""

    request_id: str | None
    count: int
    alias_name: str | None


class Whereabouts(enum.Enum):
    """What is known of a row's owner."""

    FOUND = "found"
    ABSENT = "absent"
    """In no cell is there a live instance with this uuid, and every cell was asked."""
    UNKNOWN = "unknown"
    """Not in this cell, and the others could not be asked."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The owner of rows: the instance in whichever cell it lives."""

    uuid: str
    whereabouts: Whereabouts
    instance: Instance | None = None
    in_several_cells: bool = False
    migrations: tuple[Migration, ...] = ()
    requests: tuple[Request, ...] | None = None
    """None: there is no readable ``pci_requests``."""
    unknown_because: str | None = None
    asked: str | None = None
    """``pci_requests`` as the database has them, to compare; None: there are none, or several."""

    @property
    def alive(self) -> bool:
        """Whether the instance exists and is not deleted."""
        return self.instance is not None and self.instance.deleted == 0

    @property
    def wanted(self) -> int:
        """How many devices the instance asks for."""
        return sum(request.count for request in self.requests or ())

    def on(self, node: ComputeNode) -> bool:
        """Whether the live instance is placed on a compute node."""
        return self.instance is not None and not self.instance.deleted and node.has(self.instance)


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

    def age(self, seen: datetime) -> timedelta:
        """How long ago a service reported, by the nearer of two clocks: the database's, that of the other reports."""
        return min(abs(moment - seen) for moment in (self.now, self.heard) if moment is not None)

    def state(self, service: Service | None) -> HostState:
        """Whether a nova-compute runs, by its service alone."""
        if service is None:
            return HostState.GONE
        seen = service.seen
        if seen is not None and self.age(seen) <= self.service_down_time:
            return HostState.UP
        if self.doubt or (seen is not None and seen > self.now):
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
    """It can't be told: the times in the database are not of now; or what is said is not of one host."""


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One compute node with all that its rows are judged by.

    :ivar rows: its live rows, and those soft-deleted ones that still name an owner.
    :ivar residents: the live instances that are placed on its host and node.
    :ivar owners: by uuid, every owner of a row, and every resident.
    :ivar elsewhere: rows of this node's owners on other compute nodes, by owner: (compute node's name, row).
    """

    cell: str
    node: ComputeNode
    service: Service | None
    rows: tuple[PciRow, ...]
    owners: Mapping[str, Owner]
    residents: tuple[str, ...] = ()
    elsewhere: Mapping[str, tuple[tuple[str, PciRow], ...]] = field(default_factory=dict)
    has_request_ids: bool = True
    """Whether this release gives the requests of flavors an id (Zed and later)."""
    hardware: Hardware | None = None
    """What the host really has; None when nobody looked."""
    services: Mapping[str, Service] = field(default_factory=dict)
    """The ``nova-compute`` services of the whole cell, indexed by host."""
    written: Mapping[int, str] = field(default_factory=dict)
    """The owners of those rows, by id, whose owner is not written in small letters, as they are written."""
    moves: tuple[Migration, ...] = ()
    """The unfinished migrations of any instance that lead from or to it."""
    unread: str = ""
    """Why nothing but the name of the compute node is known."""

    def service_on(self, host: str) -> Service | None:
        """The nova-compute service of a host of this cell."""
        return find(self.services, host)

    def host_state(self, clock: Clock) -> HostState:
        """Whether a nova-compute looks after this node now."""
        if self.node.deleted:
            return HostState.GONE
        if self.node.host in clock.stopped and not self.reports(clock):
            return HostState.STOPPED
        return clock.state(self.service)

    def reports(self, clock: Clock) -> bool:
        """Whether nova-compute reported within two of its own intervals (nova.conf: ``report_interval``, 10 s).

        Where its interval is not known, and at most, it is the time after which Nova itself calls it down.
        """
        seen = self.service.seen if self.service else None
        if self.service is None or seen is None:
            return False
        interval = self.service.interval
        silence = clock.service_down_time
        if interval is not None:
            silence = min(silence, 2 * max(interval, _REPORT_INTERVAL))
        # One that is behind the other services by less than its interval reports as they do.
        like_others = clock.heard is not None and clock.heard - seen <= silence / 2
        return like_others or abs(clock.now - seen) <= silence

    @cached_property
    def odd(self) -> tuple[PciRow, ...]:
        """The rows that are neither live and free of an owner nor live and taken by one: few, in a healthy cell."""
        return tuple(
            row
            for row in self.rows
            if row.deleted != 0 or (row.status not in _TAKEN if row.instance_uuid else row.status != "available")
        )

    @cached_property
    def by_address(self) -> Mapping[str, PciRow]:
        """The live rows by address."""
        return {row.address: row for row in self.rows if row.deleted == 0}

    @cached_property
    def children(self) -> Mapping[str, tuple[PciRow, ...]]:
        """The live virtual functions by the address of their physical function."""
        found: dict[str, list[PciRow]] = {}
        for row in self.rows:
            if row.parent_addr and row.deleted == 0:
                found.setdefault(row.parent_addr, []).append(row)
        return {address: tuple(rows) for address, rows in found.items()}

    @cached_property
    def taken(self) -> tuple[PciRow, ...]:
        """The live rows that are claimed or allocated."""
        return tuple(row for row in self.rows if row.status in _TAKEN and row.deleted == 0)

    @cached_property
    def displaced(self) -> tuple[tuple[PciRow, Owner], ...]:
        """The taken rows whose owner is not on this node, with it: few, in a healthy cell."""
        here = {uuid for uuid, owner in self.owners.items() if owner.on(self.node)}
        return tuple(
            (row, self.owners[row.instance_uuid])
            for row in self.taken
            if row.instance_uuid and row.instance_uuid not in here
        )

    @cached_property
    def held(self) -> Mapping[str, tuple[PciRow, ...]]:
        """The live claimed or allocated rows by owner."""
        found: dict[str, list[PciRow]] = {}
        for row in self.taken:
            if row.instance_uuid:
                found.setdefault(row.instance_uuid, []).append(row)
        return {uuid: tuple(rows) for uuid, rows in found.items()}
