"""One compute node with everything that its rows are judged by, and the owners of these rows."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from gpustack.cleanup.clock import Clock, HostState
from gpustack.cleanup.model import TAKEN, ComputeNode, Instance, Migration, PciRow, Request, Service
from gpustack.hostnames import find

if TYPE_CHECKING:
    from gpustack.cleanup.hardware import Hardware


_REPORT_INTERVAL = timedelta(seconds=10)


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
        reported_at = self.service.reported_at if self.service else None
        if self.service is None or reported_at is None:
            return False
        interval = self.service.interval
        silence = clock.service_down_time
        if interval is not None:
            silence = min(silence, 2 * max(interval, _REPORT_INTERVAL))
        # One that is behind the other services by less than its interval reports as they do.
        like_others = clock.heard is not None and clock.heard - reported_at <= silence / 2
        return like_others or abs(clock.now - reported_at) <= silence

    @cached_property
    def odd(self) -> tuple[PciRow, ...]:
        """The rows that are neither live and free of an owner nor live and taken by one: few, in a healthy cell."""
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
        """The live virtual functions by the address of their physical function."""
        by_parent: dict[str, list[PciRow]] = {}
        for row in self.rows:
            if row.parent_addr and row.deleted == 0:
                by_parent.setdefault(row.parent_addr, []).append(row)
        return {address: tuple(rows) for address, rows in by_parent.items()}

    @cached_property
    def taken(self) -> tuple[PciRow, ...]:
        """The live rows that are claimed or allocated."""
        return tuple(row for row in self.rows if row.status in TAKEN and row.deleted == 0)

    @cached_property
    def displaced(self) -> tuple[tuple[PciRow, Owner], ...]:
        """The taken rows whose owner is not on this node, with it: few, in a healthy cell."""
        present = {uuid for uuid, owner in self.owners.items() if owner.on(self.node)}
        return tuple(
            (row, self.owners[row.instance_uuid])
            for row in self.taken
            if row.instance_uuid and row.instance_uuid not in present
        )

    @cached_property
    def held(self) -> Mapping[str, tuple[PciRow, ...]]:
        """The live claimed or allocated rows by owner."""
        by_owner: dict[str, list[PciRow]] = {}
        for row in self.taken:
            if row.instance_uuid:
                by_owner.setdefault(row.instance_uuid, []).append(row)
        return {uuid: tuple(rows) for uuid, rows in by_owner.items()}
