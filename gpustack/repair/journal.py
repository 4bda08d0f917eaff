"""What the journal of a run records of each repair before the COMMIT: enough to undo it if the process is killed.

A record holds the complete rows before the change, and the values to write. Journals of 0.1.0 have the same records.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, StringConstraints, model_validator

from gpustack.base.by_key import by_key
from gpustack.cloud.placement import Consumer, Id
from gpustack.novadb.sources import Cell
from gpustack.repair.repair import Change
from gpustack.repair.verdict import HeldDevice, Name, Origin, Recorded, RowId, Verdict

Value = Annotated[str, StringConstraints(max_length=1 << 24)] | int | float | bool | datetime | None
"""A column's value; Nova's TEXT columns hold 64 KiB, MEDIUMTEXT 16 MiB."""


class _Change(Recorded):
    table: Name
    id: RowId
    seen: dict[str, Value]
    new: dict[str, Value]


class _Allocation(Recorded):
    consumer: Id
    provider: Id
    before: Consumer

    @model_validator(mode="after")
    def _had_it(self) -> Self:
        if self.provider not in self.before.allocations:
            raise ValueError("the consumer had no allocation of the provider")
        return self


def _checked(line: type[Recorded], made: Callable[..., object]) -> PlainValidator:
    """Check a line, and make an object of it."""
    return PlainValidator(lambda value: made(**line.model_validate(value).model_dump(exclude_unset=True)))


class JournalEntry(Recorded):
    """One repair in a journal: others can edit the file, and undo writes databases and Placement from it.

    :ivar cell: the name of the cell.
    :ivar database: the uuid of the cell; empty if the cell was named by ``--db-url``.
    :ivar changes: tables and columns are :class:`Change`'s to check.
    :ivar before: the complete rows before the repair, in the order of the changes.
    """

    cell: Name
    database: Name
    verdict: dict[str, Any]
    changes: Annotated[list[Annotated[Change, _checked(_Change, Change)]], Field(max_length=10_000)]
    before: tuple[dict[str, Value], ...] = Field(strict=False)
    allocation: Annotated[dict[str, Any], _checked(_Allocation, dict)] | None = None
    """The consumer, the provider, and the consumer's allocations before one was removed (classes Q and S)."""
    held: Annotated[list[HeldDevice], Field(max_length=10_000)] | None = None
    """The devices on both hosts of migrations that were set to ``failed``; None in a journal of an older gpustack."""
    origin: Origin | None = None
    """The compute node and the owner at the repair; None in a journal of an older gpustack."""

    @model_validator(mode="after")
    def _rows_are_whole(self) -> Self:
        if len(self.before) != len(self.changes) or any(
            not change.new.keys() <= row.keys() for change, row in zip(self.changes, self.before, strict=False)
        ):
            raise ValueError("a change without the row as it was before")
        return self

    @property
    def written(self) -> dict[str, set[int]]:
        """By table, the ids of the rows that the repair wrote."""
        return {table: set(ids) for table, ids in by_key((c.table, c.id) for c in self.changes).items()}


def payload(
    cell: Cell,
    verdict: Verdict,
    changes: Sequence[Change],
    before: Sequence[Mapping[str, Any]],
    allocation: Mapping[str, Any] | None = None,
    witness: str = "",
) -> dict[str, Any]:
    """Return the record of a repair, as plain data.

    :param before: the complete rows before the repair, in the order of ``changes``.
    :param allocation: the allocation in Placement that is removed, for classes Q and S.
    :param witness: the answers of hosts that permit the repair, and those that the operator replaced (``--gone``).
    """
    return {
        "cell": cell.name,
        "database": str(cell.uuid),
        "verdict": verdict.to_dict(),
        "changes": [{"table": c.table, "id": c.id, "seen": _plain(c.seen), "new": _plain(c.new)} for c in changes],
        "before": [_plain(row) for row in before],
        "allocation": allocation,
        "witness": witness,
        "held": [device.model_dump() for device in verdict.held],
        "origin": None if verdict.origin is None else verdict.origin.model_dump(),
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no times; columns of other types are not Nova's, and undo does not write them."""
    times = {name: {"datetime": value.isoformat()} for name, value in row.items() if isinstance(value, datetime | date)}
    return {
        name: value if isinstance(value, str | int | float | None) else str(value) for name, value in row.items()
    } | times


def entry(record: Mapping[str, Any]) -> JournalEntry:
    """Read the record of a repair.

    :raises ValueError: if it is none.
    """
    return JournalEntry.model_validate(json.loads(json.dumps(record), object_hook=_rich))


def _rich(value: Mapping[str, Any]) -> object:
    return datetime.fromisoformat(value["datetime"]) if set(value) == {"datetime"} else value
