"""The journal of an apply: JSON lines, each synced to disk before the change that it records.

A ``begin`` line holds the complete rows before the change, and the values to write. If there is no ``end`` line, the
database shows whether the change was committed. So a journal is usable wherever the process was killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, TextIO

from gpustack.cleanup.repair import Change
from gpustack.cleanup.verdict import HeldDevice
from gpustack.errors import JournalError
from gpustack.files import file_remedy, read_text

FORMAT = "gpustack_cleanup_journal"
VERSION = 1
_MAX_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One repair in a journal.

    :ivar cell: the name of the cell.
    :ivar database: the uuid of the cell; empty if the cell was named by ``--db-url``.
    :ivar before: the complete rows before the repair, in the order of the changes.
    :ivar outcome: ``done``, ``skipped`` or ``failed``; None if the process ended before the outcome was recorded.
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


@dataclass(kw_only=True)
class Journal:
    """A journal that is being written: a new file, readable by its owner only.

    :raises JournalError: if the file exists or cannot be created.
    """

    path: Path
    _stream: TextIO = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise JournalError(
                f"the journal can't be made: {error.strerror}; nothing was changed",
                where=str(self.path),
                remedy=f"{file_remedy(error)}; or name another file with --journal",
            ) from error
        os.fsync(directory)
        os.close(directory)
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        self._write(
            {FORMAT: VERSION, "at": datetime.now().astimezone().isoformat(timespec="seconds")}, "nothing was changed"
        )

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
    ) -> int:
        """Record a repair before it is carried out; return its number.

        :param database: the uuid of the cell.
        :param before: the complete rows before the repair, in the order of ``changes``.
        :param allocation: the allocation in Placement that is removed, for classes Q and S.
        :param witness: the answers of hosts that permit the repair, and those that the operator replaced (``--gone``).
        :param held: the devices on both hosts of the migrations that are set to ``failed``.
        :raises JournalError: if the line cannot be written.
        """
        self._count += 1
        self._write(
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
            },
            f"repair {self._count} was not begun",
        )
        return self._count

    def end(self, number: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of a repair. By then it is committed, or rolled back.

        :raises JournalError: if the line cannot be written.
        """
        happened = "was carried out" if outcome == "done" else "wrote nothing"
        self._write(
            {"end": number, "outcome": outcome, "detail": detail},
            f"repair {number} {happened}, and its outcome is not recorded; no further repair was begun",
        )

    def close(self) -> None:
        with suppress(OSError):  # a line that can't be written is reported by _write
            self._stream.close()

    def _write(self, entry: Mapping[str, Any], state: str) -> None:
        """Write a line and sync it to disk.

        :param state: the state of the repair, for the error if the line cannot be written.
        """
        try:
            self._stream.write(json.dumps(entry, default=_plain) + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            error.filename = str(self.path)  # an error of a write names no file
            raise JournalError(
                f"the journal can't be written: {error.strerror}; {state}",
                where=str(self.path),
                remedy=file_remedy(error),
            ) from error


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return {"datetime": value.isoformat()}
    raise TypeError(f"{type(value).__name__} does not belong into a journal")


def read(path: Path) -> tuple[JournalEntry, ...]:
    """Read the repairs of a journal in the order in which they were started.

    A last line that a crash cut short is ignored: its repair was not started, or its outcome is unknown.

    :raises JournalError: if the file cannot be read, or is not a journal of this version.
    """
    try:
        lines = read_text(path, _MAX_BYTES).splitlines(keepends=True)
    except OSError as error:
        raise JournalError(f"can't be read: {error.strerror}", where=str(path), remedy=file_remedy(error)) from error
    except UnicodeDecodeError as error:
        raise JournalError(
            f"not a journal: {error}", where=str(path), remedy="name the file that apply printed"
        ) from error
    entries: list[Any] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(json.loads(line, object_hook=_rich))
        except (ValueError, TypeError, RecursionError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise JournalError(f"line {number} is damaged", where=str(path)) from error
    try:
        if not entries or entries[0].get(FORMAT) != VERSION:
            raise JournalError("this is no journal of gpustack cleanup, or of another version", where=str(path))
        return tuple(_entries(entries))
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        raise JournalError("a line does not belong to a journal", where=str(path)) from error


def _entries(lines: Sequence[Mapping[str, Any]]) -> Iterator[JournalEntry]:
    from gpustack.cleanup.journal_lines import Begin

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
            )


def _rich(entry: Mapping[str, Any]) -> object:
    if set(entry) == {"datetime"}:
        return datetime.fromisoformat(entry["datetime"])
    return entry
