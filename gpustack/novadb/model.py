"""The rows of Nova's databases that gpustack reads.

Times are naive UTC, as Nova writes them. Rows are edited by hand, restored or corrupted, and no damaged value may end a
plan: an unreadable time becomes :data:`UNREADABLE`. It can be compared like any time, and
:mod:`gpustack.repair.rules._times` prevents a verdict that depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gpustack.base.hostnames import key
from gpustack.nova_options.tables import facts

UNREADABLE = datetime.min  # noqa: DTZ901 - naive, as all times of Nova's databases
"""Replaces a time that is present but unreadable, such as MariaDB's ``0000-00-00 00:00:00``."""

DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that a value of an unexpected type raises where it is used."""


def parsed(text: str) -> Any:  # noqa: ANN401 - JSON
    """Parse a JSON document.

    :raises ValueError: if the text is not JSON, or is nested too deeply to parse.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def count(value: Any) -> int:  # noqa: ANN401 - JSON
    """Convert a JSON value to a number of devices.

    :raises ValueError: if the value is not an integer of at least 0.
    """
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{value!r} is no number of devices") from error
    if number < 0 or isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value!r} is no number of devices")
    return number


# nova/db/main/api.py, migration_get_in_progress_and_error_by_host_and_node: the statuses that Nova treats as finished.
# Since Victoria (commit 255b3f2f91) "error" is not among them: Nova keeps the devices of such a migration.
TERMINAL = frozenset({"confirmed", "reverted", "failed", "completed", "cancelled", "done"})
ERROR = "error"
IN_FLIGHT = frozenset(facts()["migrations"]["in_flight"])

Place = tuple[str | None, str | None]
"""A host and a node, each as the key by which names are compared (:func:`gpustack.base.hostnames.key`)."""
TAKEN = frozenset({"claimed", "allocated"})


# nova/objects/fields.py, PciDeviceStatus
STATUSES = frozenset({"available", "claimed", "allocated", "removed", "deleted", "unclaimable", "unavailable"})
_TEXTS = frozenset({str, type(None)})


class PciRow(NamedTuple):
    """A row of ``pci_devices``. ``deleted`` is 0 for a live row, otherwise the row's own id.

    A named tuple, because a cell can have a million rows and a data class takes ten times as long to create.
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

    @classmethod
    def of(cls, values: Iterable[Any]) -> PciRow:
        """Create a row from the values of a statement.

        SQLite stores values of any type in a text column. A value that is not text is converted to text. A repair
        compares with that text, matches no row, and writes nothing. The owner is converted to lower case.
        """
        row = cls._make(values)
        if row.instance_uuid.__class__ is str and not row.instance_uuid.islower():
            row = row._replace(instance_uuid=row.instance_uuid.lower())
        if row.address.__class__ is row.status.__class__ is str and {value.__class__ for value in row[3:10]} <= _TEXTS:
            return row
        optional = (None if value is None else str(value) for value in row[7:10])
        return cls._make((*row[:2], *map(str, row[2:7]), *optional, *row[10:]))

    @property
    def live(self) -> bool:
        """Whether ``deleted`` is 0; nova-compute loads no other rows, such as soft-deleted ones or those with NULL."""
        return self.deleted == 0

    @property
    def taken(self) -> bool:
        """Whether the status is ``claimed`` or ``allocated``."""
        return self.status in TAKEN

    @property
    def changed_at(self) -> datetime | None:
        return self.updated_at or self.created_at


@dataclass(frozen=True, kw_only=True)
class ComputeNode:
    """A row of ``compute_nodes``. Since 2023.2, nova-compute writes the id of its service (``resource_tracker.py``)."""

    id: int
    uuid: str | None
    host: str | None
    hypervisor_hostname: str | None
    deleted: int | None
    updated_at: datetime | None
    deleted_at: datetime | None = None
    pci_stats: str | None = None
    service_id: int | None = None

    @property
    def place(self) -> Place:
        return place(self.host, self.hypervisor_hostname)

    def has(self, instance: Instance) -> bool:
        """Whether this compute node is live and equal to the instance's host *and* node, including case.

        A reinstalled host leaves a deleted compute node with the same names and without instances. An instance whose
        names differ in case or domain may be on this node: rules that free devices also check
        :func:`gpustack.repair.evidence.renamed`.
        """
        return not self.deleted and (instance.host, instance.node) == (self.host, self.hypervisor_hostname)

    @property
    def name(self) -> str:
        """The name for messages: the host, and the node in parentheses if its name differs."""
        host = self.host or "(no host)"
        return host if self.hypervisor_hostname in (None, host) else f"{host} ({self.hypervisor_hostname})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The ``nova-compute`` row of ``services`` of a host. With slots, because all of a cell are in memory."""

    host: str
    disabled: bool
    forced_down: bool
    last_seen_up: datetime | None
    updated_at: datetime | None
    created_at: datetime | None
    report_count: int | None = None
    id: int | None = None

    @property
    def reported_at(self) -> datetime | None:
        """The time of the last report (``nova/servicegroup/drivers/db.py``, ``is_up``)."""
        return self.last_seen_up or self.created_at

    @property
    def unconfirmed(self) -> timedelta:
        """How much older the row's last write is than its last report. A report writes both times (``service_update``).

        A greater difference than that of two clocks shows that one of them is wrong.
        """
        if self.last_seen_up is None:
            return timedelta(0)
        return self.last_seen_up - (self.updated_at or datetime.min)  # noqa: DTZ901 - naive, as in the database

    @property
    def interval(self) -> timedelta | None:
        """The average time between two reports since the service was created; None if unknown.

        Downtime makes the average longer. So a limit that is derived from it errs towards "the service still runs".
        """
        if not self.report_count or self.last_seen_up is None or self.created_at is None:
            return None
        return max((self.last_seen_up - self.created_at) / self.report_count, timedelta(0))


class Instance(NamedTuple):
    """A row of ``instances``; ``cell`` is the name of its cell.

    A named tuple like :class:`PciRow`, because there can be hundreds of thousands.
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
    """The time of the last write, including deletion."""


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
        """Whether the migration is under way. An unknown status counts as under way."""
        return self.status not in TERMINAL and self.status != ERROR

    @property
    def known(self) -> bool:
        """Whether Nova's code has this status."""
        return self.status in TERMINAL or self.status in IN_FLIGHT or self.status == ERROR

    def touches(self, node: ComputeNode) -> bool:
        """Whether the compute node is source or destination; case is ignored, as in MySQL and therefore in Nova."""
        return node.place in self.places

    @property
    def places(self) -> tuple[Place, Place]:
        """Source and destination."""
        return place(self.source_compute, self.source_node), place(self.dest_compute, self.dest_node)

    @property
    def over(self) -> bool:
        """Whether Nova treats the migration as finished, so that it keeps no device."""
        return self.status in TERMINAL

    @property
    def ends(self) -> tuple[str, ...]:
        """The source host and the destination host, each once."""
        return tuple(dict.fromkeys(host for host in (self.source_compute, self.dest_compute) if host))


def place(host: str | None, node: str | None) -> Place:
    """Return the key of a host and a node."""
    return (host and key(host), node and key(node))


@dataclass(frozen=True, kw_only=True)
class Request:
    """One PCI request of an instance (``instance_extra.pci_requests``)."""

    request_id: str | None
    count: int
    alias_name: str | None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Free PCI devices that Nova does not distinguish.

    :ivar address: of the device, or of the physical function of virtual ones; empty before Nova 2023.1.
    """

    vendor: str
    product: str
    dev_type: str
    node: int | None
    count: int
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """A NUMA node of a host, as nova-compute reports it (``NUMACell``).

    :ivar cpus: the processors for instances without dedicated ones.
    :ivar pcpus: the processors that can be dedicated; without ``cpu_dedicated_set`` they are the same.
    :ivar pinned: those that instances have.
    :ivar siblings: the threads of each core.
    :ivar cpu_usage: the vCPUs of instances without dedicated processors.
    :ivar memory: MiB of the node, with huge pages.
    :ivar memory_usage: MiB of instances.
    :ivar pages: the total and the free number of pages by size in KiB; empty if the host does not report them.
    :ivar socket: None if Nova does not know it.
    """

    cpus: frozenset[int] = frozenset()
    pcpus: frozenset[int] = frozenset()
    pinned: frozenset[int] = frozenset()
    siblings: tuple[frozenset[int], ...] = ()
    cpu_usage: int = 0
    memory: int = 0
    memory_usage: int = 0
    pages: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    cpu_ratio: float = 1.0
    ram_ratio: float = 1.0
    socket: int | None = None

    @property
    def free(self) -> frozenset[int]:
        """The processors that can still be dedicated."""
        return self.pcpus - self.pinned


@dataclass(frozen=True, kw_only=True)
class NodeResources:
    """A row of ``compute_nodes``.

    :ivar nodes: None if the host reports no NUMA nodes.
    :ivar disabled: whether its cell is disabled, so that nova-scheduler leaves it out.
    """

    uuid: str
    name: str
    pools: tuple[Pool, ...]
    nodes: Mapping[int, NumaNode] | None
    disabled: bool = False
