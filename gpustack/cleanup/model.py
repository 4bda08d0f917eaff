"""Rows of the databases, as clean-up knows them.

Times are naive UTC, as Nova writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gpustack.hostnames import key

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
TAKEN = frozenset({"claimed", "allocated"})


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
        """A row as a database has it: SQLite, and a server other than Nova's, keep any value in a column of text.

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
        return self.status in TAKEN

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

        A host that was reinstalled has a deleted compute node of the same names, on which nothing is. An instance
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
    def reported_at(self) -> datetime | None:
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
