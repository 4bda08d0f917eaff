"""Verdicts: the class of rows, the evidence, and the repair, with the hosts to ask and the facts to compare again."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpustack.novadb.model import Instance, Migration, PciRow
from gpustack.novadb.view import HostState

Name = Annotated[str, StringConstraints(max_length=255)]
RowId = Annotated[int, Field(ge=0, lt=1 << 63)]


class Status(enum.StrEnum):
    """The status of a verdict."""

    STALE = "stale"
    """Proved stale; can be repaired."""
    HEALS = "heals"
    """Wrong now; Nova repairs it in its next periodic task, or when nova-compute starts."""
    REPORT = "report"
    """Wrong, but a wrong decision could give one GPU to two instances: report only."""
    PROTECTED = "protected"
    """Work is or was recently under way: must not be changed."""
    STUCK = "stuck"
    """Protected by work that nothing continues: a person must end it."""
    UNDECIDED = "undecided"
    """Not decided: something that the proof needs could not be read."""


class Repair(enum.StrEnum):
    """The repairs, safest first."""

    FAIL_MIGRATION = "fail-migration"
    """Set an ``error`` migration to ``failed``: a running nova-compute frees the device in its next periodic task."""
    RESTART = "restart"
    """Restart nova-compute, which corrects its rows when it starts; instances keep running. gpustack writes no row."""
    FREE = "free"
    """Set the row to available, or to unavailable beside a taken related function, and clear owner and request; only
    where nova-compute does not run."""
    RETIRE = "retire"
    """Free the row and soft-delete it: its compute node is deleted."""
    CLEAR_DELETED = "clear-deleted"
    """Clear status, owner and request of a row that stays soft-deleted."""
    UNBLOCK = "unblock"
    """Set a blocked physical or virtual function to available."""
    BLOCK_PARENT = "block-parent"
    """Set a physical function to unavailable while one of its virtual functions is taken."""
    CLEAR_OWNER = "clear-owner"
    """Clear owner and request of a row that is available."""
    UNSET_ALLOCATION = "unset-allocation"
    """Remove one allocation in Placement; carried out after all other repairs."""


class PlannedDevice(TypedDict):
    """A row of a planned verdict."""

    id: int
    address: str
    status: str
    dev_type: str


class Recorded(BaseModel):
    """A part of the record of a repair in a journal, which others can edit: it is validated when it is read."""

    model_config = ConfigDict(strict=True, frozen=True)


class HeldDevice(Recorded):
    """A row that a migration holds, with the host of its compute node."""

    host: Name
    id: RowId
    compute_node_id: RowId
    address: Name
    status: Name
    instance_uuid: Name | None
    request_id: Name | None
    deleted: RowId | None


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Work without a write for ``--stuck-after`` that still protects rows.

    :ivar task: the task of the instance; empty if a migration alone is under way.
    :ivar since: the last write, naive UTC.
    :ivar age: the time since then; ``younger`` is the same without the possible difference between clocks.
    :ivar hosts: the hosts whose nova-compute may continue it; empty if they are unknown.
    :ivar by_compute: whether only a nova-compute continues the task.
    :ivar advice: what a person can do if nothing continues it.
    """

    instance: str
    task: str
    since: datetime
    age: timedelta
    younger: timedelta
    hosts: tuple[str, ...]
    by_compute: bool
    advice: str


class Origin(Recorded):
    """The compute node and the owner of repaired rows at the repair.

    :ivar node_id: the id of the compute node.
    :ivar node_uuid: its uuid; None if it has none.
    :ivar node_deleted: whether it was deleted.
    :ivar owner: host, node and cell of the owner, the cell of the rows as an empty text; None without a live owner.
    :ivar users: the instances to which rows give the device of an allocation (classes Q and S).
    :ivar beside: the instances of the taken functions of the same devices, by address.
    """

    node_id: RowId
    node_uuid: Name | None
    node_deleted: bool
    owner: Annotated[tuple[Name | None, Name | None, Name], Field(strict=False)] | None
    users: Annotated[tuple[Name, ...], Field(strict=False, max_length=10_000)] = ()
    beside: Annotated[dict[Name, Name | None], Field(max_length=10_000)] = {}

    @staticmethod
    def place(instance: Instance, cell: str) -> tuple[str | None, str | None, str]:
        """Return the place of an owner; a cell may be renamed, so that of the rows, ``cell``, has no name."""
        return instance.host, instance.node, "" if instance.cell == cell else instance.cell


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
        "allocation": dict[str, str] | None,
        "database": NotRequired[str],
    },
)
"""A verdict as plain data, as in a saved plan, a journal and ``-f json``."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """An allocation of a device in Placement.

    :ivar provider: the uuid of the device's resource provider.
    :ivar name: the provider's name.
    :ivar addresses: the addresses of its functions, separated by spaces.
    :ivar consumer: the uuid of the instance or migration that holds the allocation.
    """

    provider: str
    name: str
    addresses: str
    consumer: str


@dataclass(frozen=True, kw_only=True)
class Question:
    """What one host must confirm before a repair (:mod:`gpustack.repair.permission`).

    :ivar names: the names that Nova has for the host: the answering machine must be able to be one of them.
    :ivar offered: devices that the repair may free there: vendor and product by address. No instance may use them.
    :ivar near: addresses of other functions that no instance may use.
    :ivar by: the only users that count; None counts all.
    :ivar absent: the instance that may use no device of the host; None if it is placed there.
    :ivar kept: the permitted user of each device when nova-compute starts, by address; None if it is not started.
    :ivar rows: vendor and product of the compute node's rows, by address. At least one must match the machine.
    :ivar state: the state of nova-compute there.
    :ivar spared: why no answer is needed; empty if one is.
    :ivar younger: nova-compute must have started within this time; None if that does not matter.
    :ivar resident: for instances that may run on another host than in Nova's record: their devices here, one of which
        must be in use by the instance.
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
    """A fact in the database that a verdict depends on: exactly one row of a table matches, or none.

    :ivar match: by column, a value (None: NULL), :class:`NotBefore`, or :class:`NotIn`.
    :ivar count: 1 or 0.
    """

    table: str
    match: tuple[tuple[str, Any], ...]
    count: int = 1

    @classmethod
    def of(cls, table: str, match: Mapping[str, Any], count: int = 1) -> Seen:
        """Create a fact from a mapping of columns."""
        return cls(table=table, match=tuple(match.items()), count=count)


@dataclass(frozen=True)
class NotBefore:
    """Matches this time and any later one."""

    moment: datetime


@dataclass(frozen=True)
class NotIn:
    """Matches everything except these values; NULL matches."""

    values: frozenset[Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict of one class on rows of one compute node.

    :ivar klass: the letter of the class, such as ``A`` (:data:`gpustack.repair.classes.CLASSES`).
    :ivar rows: the rows; empty if a device's row is missing.
    :ivar owner: the uuid of the instance; None without one.
    :ivar evidence: the observed facts, one sentence each.
    :ivar because: why the rows are stale, or why they must not be changed.
    :ivar repair: the repair, if the status is *stale*.
    :ivar migrations: ids of the migrations that the repair sets to failed.
    :ivar stop: whether nova-compute of the host must be stopped during the repair.
    :ivar allocation: the allocation in Placement, for classes Q and S.
    :ivar advice: what a person can do where gpustack does nothing.
    :ivar starts: whether the next start of nova-compute repairs it.
    :ivar then: advice to start nova-compute, given only after the host has answered.
    :ivar questions: the hosts to ask before the repair; None if not determined, which prevents the repair.
    :ivar seen: the facts that the verdict depends on; each statement that writes compares them again.
    """

    klass: str
    title: str
    status: Status
    cell: str
    host: str
    node: str
    host_state: HostState
    evidence: tuple[str, ...]
    because: str
    rows: tuple[PciRow, ...] = ()
    owner: str | None = None
    repair: Repair | None = None
    migrations: tuple[int, ...] = ()
    stop: bool = False
    advice: str = ""
    allocation: Allocation | None = None
    starts: bool = False
    then: str = ""
    questions: tuple[Question, ...] | None = None
    seen: tuple[Seen, ...] = ()
    lingering: Migration | None = None
    """The unfinished one of ``migrations``, if there is one: no nova-compute continues it. That of its source must have
    started after its last write."""
    held: tuple[HeldDevice, ...] = ()
    """The devices of the owner on both hosts of ``migrations``, for the journal."""
    origin: Origin | None = None
    """The compute node and the owner, for the journal."""
    waiting: Waiting | None = None
    """The work without progress that protects the rows."""
    again: datetime | None = None
    """When the grace time ends, naive UTC, if nothing else protects the rows."""

    @property
    def asks(self) -> tuple[str, ...]:
        """The names of the hosts to ask."""
        return tuple(dict.fromkeys(question.host for question in self.questions or () if question.host))

    def withdrawn(self, status: Status, because: str, advice: str = "", **more: Any) -> Verdict:  # noqa: ANN401
        """Return the verdict with another status, and without a repair."""
        more |= {"repair": None, "stop": False, "starts": False}
        return replace(self, status=status, because=because, advice=advice, **more)

    def undecided(self, because: str, advice: str = "") -> Verdict:
        """Return the verdict as *undecided*, without a repair."""
        return self.withdrawn(Status.UNDECIDED, because, advice, migrations=())

    def to_dict(self) -> PlannedVerdict:
        """Return the verdict as plain data, for JSON."""
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
            "allocation": asdict(self.allocation) if self.allocation else None,
        }


def words(row: PciRow) -> str:
    """Describe a row: ``row 45, 0000:84:00.0 (10de:11b4, type-PCI), is allocated``."""
    state = row.status if row.live else f"soft-deleted, with status {row.status}"
    return f"row {row.id}, {row.address} ({row.vendor_id}:{row.product_id}, {row.dev_type}), is {state}"
