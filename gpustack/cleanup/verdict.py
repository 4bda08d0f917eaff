"""A verdict: what a class says of rows, why, and what may be done about it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypedDict

from gpustack.cleanup.clock import HostState
from gpustack.cleanup.model import PciRow


class Status(enum.StrEnum):
    """What follows from a verdict."""

    STALE = "stale"
    """Proved stale: it can be repaired."""
    HEALS = "heals"
    """Wrong now, and Nova itself puts it right: in its next periodic, or when it starts again."""
    REPORT = "report"
    """Wrong, but a wrong guess could give one GPU to two guests: a person must decide."""
    PROTECTED = "protected"
    """Work is under way, or was a moment ago: it must not be touched."""
    STUCK = "stuck"
    """Work that protects it and that nobody does any more: a person must end it."""
    UNDECIDED = "undecided"
    """Something that the proof needs could not be read."""


class Repair(enum.StrEnum):
    """The ways to repair, from the safest on."""

    FAIL_MIGRATION = "fail-migration"
    """Set an ``error`` migration to ``failed``: the running nova-compute then frees the device in its next periodic."""
    RESTART = "restart"
    """Restart nova-compute, which puts its rows right when it starts; guests keep running. No row is written."""
    FREE = "free"
    """Write the row to available, without owner and request, where no nova-compute runs that would."""
    RETIRE = "retire"
    """Free the row and soft-delete it: its compute node is deleted."""
    CLEAR_DELETED = "clear-deleted"
    """Take status, owner and request off a row that stays soft-deleted."""
    UNBLOCK = "unblock"
    """Write a blocked physical or virtual function back to available."""
    BLOCK_PARENT = "block-parent"
    """Write a physical function to unavailable while one of its virtual functions is taken."""
    CLEAR_OWNER = "clear-owner"
    """Take owner and request off a row that is available."""
    UNSET_ALLOCATION = "unset-allocation"
    """Take one allocation away in Placement; it comes last."""


class PlannedDevice(TypedDict):
    """A row of a planned verdict."""

    id: int
    address: str
    status: str
    dev_type: str


class PlannedAllocation(TypedDict):
    """An :class:`Allocation` of a planned verdict."""

    provider: str
    name: str
    addresses: str
    consumer: str


PlannedVerdict = TypedDict(
    "PlannedVerdict",
    {
        "class": str,
        "title": str,
        "status": str,
        "cell": str,
        "host": str,
        "node": str,
        "host_state": str,
        "devices": list[PlannedDevice],
        "instance": str | None,
        "evidence": list[str],
        "because": str,
        "repair": str | None,
        "migrations": list[int],
        "stop_service": bool,
        "asks": list[str],
        "advice": str,
        "allocation": PlannedAllocation | None,
    },
)
"""A verdict as plain data: what a saved plan, a journal and ``-f json`` hold of it."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """An allocation of a device in Placement.

    :ivar provider: the uuid of the device's resource provider, called ``name``.
    :ivar addresses: the functions that it stands for, separated by spaces.
    :ivar consumer: the uuid of the instance, or of the migration, that has it.
    """

    provider: str
    name: str
    addresses: str
    consumer: str

    def to_dict(self) -> PlannedAllocation:
        """As plain data."""
        return {
            "provider": self.provider,
            "name": self.name,
            "addresses": self.addresses,
            "consumer": self.consumer,
        }


@dataclass(frozen=True, kw_only=True)
class Lingering:
    """A migration that is not in error, and that a repair sets to failed because nobody works on it any more.

    :ivar status: its status.
    :ivar host: the host whose nova-compute worked on it.
    :ivar since: when it was last written: that nova-compute must have started later.
    """

    status: str
    host: str
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Question:
    """What one host must answer before a repair is made (:mod:`gpustack.cleanup.permission`).

    :ivar offered: vendor and product of each device that may become free there, by address: no guest may have it.
    :ivar near: addresses of other functions that no guest may have either.
    :ivar by: the only users that matter; None: all of them.
    :ivar absent: the instance that may have no device there at all; None where it is placed there.
    :ivar kept: who may have a device when nova-compute starts there, by address; None where it is not started.
    :ivar rows: vendor and product of rows of that compute node, by address: one of them proves the host.
    :ivar state: whether nova-compute runs there.
    :ivar spared: why no answer is needed; empty where one is.
    :ivar younger: nova-compute must have started there within this time; None where that does not matter.
    :ivar names: the names that the machine may have which is that host, without their domains.
    :ivar resident: for instances that may run elsewhere although Nova places them there, the devices of which one must
        be in use by the instance.
    """

    host: str
    names: frozenset[str] = frozenset()
    offered: Mapping[str, str] = field(default_factory=dict)
    near: frozenset[str] = frozenset()
    by: frozenset[str] | None = None
    absent: str | None = None
    kept: Mapping[str, str] | None = None
    rows: Mapping[str, str] = field(default_factory=dict)
    state: HostState = HostState.UNKNOWN
    spared: str = ""
    younger: timedelta | None = None
    resident: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A fact of the database that a verdict rests on: one row of a table matches, or none.

    :ivar match: what each column must be: a value (None: NULL), :class:`NotBefore`, or :class:`NotIn`.
    :ivar count: 1, or 0.
    """

    table: str
    match: tuple[tuple[str, Any], ...]
    count: int = 1

    @classmethod
    def of(cls, table: str, match: Mapping[str, Any], count: int = 1) -> Seen:
        """A fact whose columns are named."""
        return cls(table=table, match=tuple(match.items()), count=count)


@dataclass(frozen=True)
class NotBefore:
    """A time, or any later one."""

    moment: datetime


@dataclass(frozen=True)
class NotIn:
    """None of these values; NULL is none of them."""

    values: frozenset[Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one class says of one or several rows of one compute node.

    :ivar klass: the class, ``A`` to ``R``.
    :ivar rows: the rows in question; none where a device's row is missing.
    :ivar evidence: what was seen, a sentence each.
    :ivar because: why it is stale, why it is safe, or why it must not be touched.
    :ivar repair: what to do when it is stale.
    :ivar migrations: ids of the migrations that the repair sets to failed.
    :ivar stop: whether the host's nova-compute must be stopped while the repair is written.
    :ivar allocation: the allocation in Placement that it is about.
    :ivar advice: what a person does where gpustack does nothing.
    :ivar starts: whether Nova itself ends it when nova-compute starts.
    :ivar then: advice to start nova-compute, which is given only after the host has answered.
    :ivar questions: whom to ask before the repair; None where nobody has worked that out: it is not made then.
    :ivar seen: the facts of the database that it rests on, which the statement that writes compares again.
    """

    klass: str
    title: str
    status: Status
    cell: str
    host: str
    node: str
    host_state: HostState
    rows: tuple[PciRow, ...]
    owner: str | None
    evidence: tuple[str, ...]
    because: str
    repair: Repair | None = None
    migrations: tuple[int, ...] = ()
    stop: bool = False
    advice: str = ""
    allocation: Allocation | None = None
    starts: bool = False
    then: str = ""
    questions: tuple[Question, ...] | None = None
    seen: tuple[Seen, ...] = ()
    lingering: Lingering | None = None
    """What is known of the one of ``migrations`` that is not in error."""
    again: datetime | None = None
    """When the grace time ends that alone protects it, naive UTC."""

    @property
    def asks(self) -> tuple[str, ...]:
        """The hosts to ask."""
        return tuple(dict.fromkeys(question.host for question in self.questions or ()))

    def to_dict(self) -> PlannedVerdict:
        """The verdict as plain data, for JSON."""
        return {
            "class": self.klass,
            "title": self.title,
            "status": self.status.value,
            "cell": self.cell,
            "host": self.host,
            "node": self.node,
            "host_state": self.host_state.value,
            "devices": [
                {"id": row.id, "address": row.address, "status": row.status, "dev_type": row.dev_type}
                for row in self.rows
            ],
            "instance": self.owner,
            "evidence": list(self.evidence),
            "because": self.because,
            "repair": self.repair.value if self.repair else None,
            "migrations": list(self.migrations),
            "stop_service": self.stop,
            "asks": list(self.asks),
            "advice": self.advice,
            "allocation": self.allocation.to_dict() if self.allocation else None,
        }


def words(row: PciRow) -> str:
    """A row in words: ``row 45, 0000:84:00.0 (10de:11b4, type-PCI), is allocated``."""
    state = row.status if row.live else f"soft-deleted, with status {row.status}"
    return f"row {row.id}, {row.address} ({row.vendor_id}:{row.product_id}, {row.dev_type}), is {state}"
