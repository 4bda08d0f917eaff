"""A verdict: what a class says of rows, why, and what may be done about it."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any

from gpustack.cleanup.facts import HostState, PciRow


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

    def to_dict(self) -> dict[str, str]:
        """As plain data."""
        return asdict(self)


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
    :ivar ask_hypervisor: whether the repair must not go ahead where the hypervisor says that the device is in use.
    :ivar must_ask: whether nothing may be written where the hypervisor can't be asked.
    :ivar allocation: the allocation in Placement that it is about.
    :ivar advice: what a person does where gpustack does nothing.
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
    ask_hypervisor: bool = False
    advice: str = ""
    must_ask: bool = False
    allocation: Allocation | None = None

    def to_dict(self) -> dict[str, Any]:
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
            "ask_hypervisor": self.ask_hypervisor,
            "advice": self.advice,
            "allocation": self.allocation.to_dict() if self.allocation else None,
        }


def words(row: PciRow) -> str:
    """A row in words: ``row 45, 0000:84:00.0 (10de:11b4, type-PCI), is allocated``."""
    state = row.status if row.live else f"soft-deleted, with status {row.status}"
    return f"row {row.id}, {row.address} ({row.vendor_id}:{row.product_id}, {row.dev_type}), is {state}"
