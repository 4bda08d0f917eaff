"""The journal of an apply: JSON lines, each synced to disk before the change that it records.

A ``begin`` line holds the complete rows before the change, and the values to write. If there is no ``end`` line, the
database shows whether the change was committed. So a journal is usable wherever the process was killed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from gpustack.base.errors import JournalError
from gpustack.changes.journal_file import JournalFile, read_lines
from gpustack.repair.repair import Change
from gpustack.repair.verdict import HeldDevice, Origin

FORMAT = "gpustack_cleanup_journal"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One repair in a journal.

    :ivar cell: the name of the cell.
    :ivar database: the uuid of the cell; empty if the cell was named by ``--db-url``.
    :ivar before: the complete rows before the repair, in the order of the changes.
    :ivar outcome: ``done``, ``skipped``, ``failed`` or ``unknown`` (the answer to COMMIT was lost); None if the process
        ended before the outcome was recorded.
    """

    number: int
    cell: str
    database: str
    verdict: Mapping[str, Any]
    changes: tuple[Change, ...]
    before: tuple[Mapping[str, Any], ...]
    outcome: str | None = None
    allocation: Mapping[str, Any] | None = None
    """The consumer, the provider, and the consumer's allocations before one was removed (classes Q and S)."""
    held: tuple[HeldDevice, ...] | None = ()
    """The devices on both hosts of migrations that were set to ``failed``; None in a journal of an older gpustack."""
    origin: Origin | None = None
    """The compute node and the owner at the repair; None in a journal of an older gpustack."""


@dataclass(kw_only=True)
class Journal:
    """A journal that is being written: a new file, readable by its owner only.

    :raises JournalError: if the file exists or cannot be created.
    """

    path: Path
    _file: JournalFile = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self._file = JournalFile(self.path, {FORMAT: VERSION}, _plain)

    def begin(
        self,
        cell: str,
        database: str,
        verdict: Mapping[str, Any],
        changes: Sequence[Change],
        before: Sequence[Mapping[str, Any]],
        allocation: Mapping[str, Any] | None = None,
        witness: str = "",
        held: Sequence[HeldDevice] = (),
        origin: Origin | None = None,
    ) -> int:
        """Record a repair before it is carried out; return its number.

        :param database: the uuid of the cell.
        :param before: the complete rows before the repair, in the order of ``changes``.
        :param allocation: the allocation in Placement that is removed, for classes Q and S.
        :param witness: the answers of hosts that permit the repair, and those that the operator replaced (``--gone``).
        :param held: the devices on both hosts of the migrations that are set to ``failed``.
        :param origin: the compute node and the owner.
        :raises JournalError: if the line cannot be written.
        """
        self._count += 1
        self._file.write(
            {
                "begin": self._count,
                "cell": cell,
                "database": database,
                "verdict": dict(verdict),
                "changes": [{"table": c.table, "id": c.id, "seen": dict(c.seen), "new": dict(c.new)} for c in changes],
                "before": [dict(row) for row in before],
                "allocation": allocation,
                "witness": witness,
                "held": [asdict(device) for device in held],
                "origin": None if origin is None else asdict(origin),
            },
            f"repair {self._count} was not begun",
        )
        return self._count

    def end(self, number: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of a repair. By then it is committed, or rolled back.

        :raises JournalError: if the line cannot be written.
        """
        unknown = "is carried out or wrote nothing" if outcome == "unknown" else "wrote nothing"
        happened = "was carried out" if outcome == "done" else unknown
        self._file.write(
            {"end": number, "outcome": outcome, "detail": detail},
            f"repair {number} {happened}, and its outcome is not recorded; no further repair was begun",
        )

    def close(self) -> None:
        self._file.close()


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return {"datetime": value.isoformat()}
    raise TypeError(f"{type(value).__name__} does not belong into a journal")


def read(path: Path) -> tuple[JournalEntry, ...]:
    """Read the repairs of a journal in the order in which they were started.

    A last line that a crash cut short is ignored: its repair was not started, or its outcome is unknown.

    :raises JournalError: if the file cannot be read, or is not a journal of this version.
    """
    entries = read_lines(path, _rich)
    try:
        if not entries or entries[0].get(FORMAT) != VERSION:
            raise JournalError("this is no journal of gpustack cleanup, or of another version", where=str(path))
        return tuple(_entries(entries))
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        raise JournalError("a line does not belong to a journal", where=str(path)) from error


def _entries(lines: Sequence[Mapping[str, Any]]) -> Iterator[JournalEntry]:
    from gpustack.repair.journal_lines import Begin

    outcomes = {line["end"]: line["outcome"] for line in lines if "end" in line}
    for line in lines:
        if "begin" in line:
            begin = Begin.model_validate(line)
            yield JournalEntry(
                number=begin.begin,
                cell=begin.cell,
                database=begin.database,
                verdict=begin.verdict,
                changes=tuple(Change(**change.model_dump()) for change in begin.changes),
                before=begin.before,
                outcome=outcomes.get(begin.begin),
                allocation=None if begin.allocation is None else begin.allocation.model_dump(exclude_unset=True),
                held=None if begin.held is None else tuple(HeldDevice(**line.model_dump()) for line in begin.held),
                origin=None if begin.origin is None else Origin(**begin.origin.model_dump()),
            )


def _rich(entry: Mapping[str, Any]) -> object:
    if set(entry) == {"datetime"}:
        return datetime.fromisoformat(entry["datetime"])
    return entry
