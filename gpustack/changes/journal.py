"""The journal of a run: who changes what, and each change before it is made.

It is a file of JSON lines. The first one has all changes of the plan. Each change has a line before its request, synced
to disk, and one with its result. Others can edit a journal, and an undo writes to a cloud what it holds: its lines are
validated, and a file that others can write is refused.
"""

import hashlib
import json
import os
import platform
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpustack.base.errors import JournalError
from gpustack.base.files import StatusCheck, file_errors, make_directory, read_text, state_dir, user_name
from gpustack.base.text import quoted
from gpustack.base.validation import first_problem
from gpustack.changes.change import SUCCESSFUL, ChangeOutcome, ChangeResult, CloudChange, GuardedChange

Text = Annotated[str, StringConstraints(max_length=4096)]
Key = Annotated[str, StringConstraints(max_length=1024, min_length=1)]
VERSION = 1
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class JournalLine(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Cloud(JournalLine):
    """The cloud of a run, without anything secret.

    :ivar auth_url: Keystone's address; empty for a run that knows Nova's databases alone.
    :ivar databases: the names of their cells, for such a run.
    """

    auth_url: Text = ""
    region: Text = ""
    user: Text = ""
    project: Text = ""
    databases: Text = ""

    @property
    def key(self) -> str:
        """The identity of the cloud: runs with the same key change the same objects. Its version may be left out."""
        address = self.auth_url.lower().rstrip("/").removesuffix("/v3").rstrip("/") or self.databases
        return hashlib.sha256(f"{address}\n{self.region}".encode()).hexdigest()[:16]

    def is_same(self, other: Self) -> bool:
        """Whether runs on both change the same objects; of databases, a cell outlives new names and new cells."""
        uuids = [{uuid for uuid in _UUID.findall(cloud.databases) if uuid.strip("0-")} for cloud in (self, other)]
        return self.key == other.key or not uuids[0].isdisjoint(uuids[1])

    def __str__(self) -> str:
        return f"{self.auth_url} {self.region}".strip() or self.databases


class PlannedChange(JournalLine):
    """A planned change; its kind checks the values."""

    key: Key
    kind: Key
    id: Text
    name: Text
    why: Text
    seen: Any
    wanted: Any
    needs: Annotated[list[Key], Field(max_length=10_000)]
    after: Annotated[list[Key], Field(max_length=10_000)] = []
    about: dict[Key, Text]


class RunHead(JournalLine):
    """The first line: the circumstances of a run, and all its changes.

    :ivar command: the command without its values: ``flavor apply``.
    :ivar at: the time of the first line, in ISO 8601.
    :ivar spec: the path of the spec; empty without one.
    :ivar spec_sha256: the digest of the spec as it was read.
    :ivar undoes: the ID of the run that this one reverts.
    :ivar completes: the ID of the interrupted run that this one completes; their changes have the same keys.
    """

    gpustack_change: Literal[1] = 1
    id: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]
    command: Text
    user: Text = ""
    host: Text = ""
    cloud: Cloud = Cloud()
    spec: Text = ""
    spec_sha256: Text = ""
    undoes: Text = ""
    completes: Text = ""
    at: Text = ""
    changes: Annotated[list[PlannedChange], Field(max_length=100_000)] = []


class RunLine(JournalLine):
    """A line after the first: the begin or the end of a change, or the end of the run.

    :ivar planned: the change that begins, if it was planned after the run had begun.
    :ivar payload: what the undo of the change that begins needs; its kind checks it.
    """

    begin: Text = ""
    planned: PlannedChange | None = None
    payload: dict[str, Any] | None = None
    end: Text = ""
    result: Annotated[str, Field(pattern="^(|" + "|".join(ChangeResult) + ")$")] = ""
    detail: Annotated[str, StringConstraints(max_length=1 << 16)] = ""
    id: Text = ""
    closed: bool = False


_MAX_BYTES = 256 << 20
RESTORE = "restore the file from a backup, or revert the changes by hand: its lines have the former values"


class JournalFile:
    """A journal that is being written: a new file, readable by its owner only.

    :param head: the first line, without the time.
    :raises JournalError: if the file exists or cannot be created.
    """

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self.path = path
        what, state, remedy = "the journal can't be made", "nothing was changed", "name another file with --journal"
        with file_errors(JournalError, what, path, state=state, remedy=remedy):
            make_directory(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(directory)
        os.close(directory)
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        try:
            self.write({**head, "at": datetime.now().astimezone().isoformat(timespec="seconds")}, "nothing was changed")
        except JournalError:
            self.close()
            path.unlink(missing_ok=True)  # it would count as a record that cannot be read
            raise

    def write(self, entry: Mapping[str, Any], state: str) -> None:
        """Write a line and sync it to disk.

        :param state: the state of the change, for the error if the line cannot be written.
        :raises JournalError: if the line cannot be written.
        """
        with file_errors(JournalError, "the journal can't be written", self.path, state=state):
            self._stream.write(json.dumps(entry) + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # a line that can't be written is reported by write
            self._stream.close()


def read_lines(path: Path, check: StatusCheck | None = None) -> list[Any]:
    """Read the lines of a journal. A last line that a crash cut short is ignored.

    :raises JournalError: if the file cannot be read, the check refuses it, or a line is damaged.
    """
    try:
        with file_errors(JournalError, "can't be read", path):
            lines = read_text(path, _MAX_BYTES, check=check).splitlines(keepends=True)
    except UnicodeDecodeError as error:
        remedy = "name the file that apply printed"
        raise JournalError(f"not a journal: {error}", where=str(path), remedy=remedy) from error
    entries: list[Any] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            if number == 1:
                remedy = "name a file or an ID of `gpustack history`"
                raise JournalError("not a journal of gpustack", where=str(path), remedy=remedy) from error
            raise JournalError(f"line {number} is damaged", where=str(path), remedy=RESTORE) from error
    return entries


_FORMAT, _ID = "gpustack_change", "%Y%m%dT%H%M%S%fZ"
Former = Mapping[str, Callable[[Mapping[str, Any]], CloudChange]]
"""By the first key of a journal of 0.1.0, what makes a change of a line that begins one, and of the line with its end.
"""
_FORMER_RESULTS = {
    **dict.fromkeys(("", "unfinished", "unknown"), ChangeResult.UNKNOWN),
    **{result.value: result for result in (ChangeResult.FAILED, ChangeResult.SKIPPED)},
}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A journal that was read.

    :ivar results: by key of a change, its result; :attr:`ChangeResult.UNKNOWN` if it began and has no result.
    :ivar ends: by key of a change, the line with its result.
    :ivar payloads: by key of a change, what its undo needs, if it recorded that when it began.
    :ivar closed: whether the run ended by itself.
    """

    path: Path
    head: RunHead
    results: Mapping[str, ChangeResult] = field(default_factory=dict)
    ends: Mapping[str, RunLine] = field(default_factory=dict)
    payloads: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False

    @property
    def made(self) -> tuple[PlannedChange, ...]:
        """The changes that were made, or may have been made: one that failed before it began wrote nothing."""
        failed = {key for key, result in self.results.items() if result is ChangeResult.FAILED}
        made = {key for key, result in self.results.items() if result in _MADE} - (failed - self.payloads.keys())
        return tuple(change for change in self.head.changes if change.key in made)

    @property
    def state(self) -> str:
        """``done``, ``failed``, or ``unfinished`` if the run did not reach its end."""
        if not self.closed or ChangeResult.UNKNOWN in self.results.values():
            return "unfinished"
        whole = len(self.results) == len(self.head.changes) and not _BAD & set(self.results.values())
        return "done" if whole else "failed"


_IN_PART = frozenset({ChangeResult.UNKNOWN, ChangeResult.FAILED})
"""The results of a change that may have been made in part: an undo reads its object."""
_MADE = _IN_PART | {ChangeResult.DONE}
_BAD = frozenset({ChangeResult.FAILED, ChangeResult.SKIPPED, ChangeResult.NOT_BEGUN})


class UnbegunError(JournalError):
    """A journal without a complete line: it is synced before the first change, so its run made none."""


def new_id() -> str:
    """A new ID, which sorts by time, and after those of all journals if the clock was set back."""
    now = datetime.now(UTC)
    for path in directory().glob("*.jsonl"):
        with suppress(OverflowError, ValueError):
            now = max(now, datetime.strptime(f"{path.stem}+0000", f"{_ID}%z") + timedelta(microseconds=1))
    return now.strftime(_ID)


def directory() -> Path:
    """The directory of journals."""
    return state_dir() / "changes"


class RunJournal(AbstractContextManager["RunJournal"]):
    """A journal that is being written; safe to use from several threads. As a context, it records whether it ended.

    :param path: the file; None for ``ID.jsonl`` in :func:`directory`.
    :raises JournalError: if the file exists or cannot be created.
    """

    def __init__(self, head: RunHead, changes: Sequence[CloudChange], path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._broken = False
        self.path = path or directory() / f"{head.id}.jsonl"
        lines = [PlannedChange.model_validate(change.to_record()) for change in changes]
        self._planned = {line.key for line in lines}
        first = head.model_copy(update={"user": user_name(), "host": platform.node(), "changes": lines})
        self._file = JournalFile(self.path, first.model_dump(exclude={"at"}))

    def begin(self, change: CloudChange, payload: Mapping[str, Any] | None = None) -> None:
        """Record that a change begins, what its undo needs, and the change itself if the first line lacks it.

        :raises JournalError: if the line cannot be written.
        """
        line = {"begin": change.key} | ({"payload": payload} if payload else {})
        line |= {} if change.key in self._planned else {"planned": change.to_record()}
        with self._lock:
            self._file.write(line, f"{change.name} was not changed")

    def end(self, outcome: ChangeOutcome) -> None:
        """Record the result of a change.

        :raises JournalError: if the line cannot be written.
        """
        line = {"end": outcome.change.key, "result": str(outcome.result), "detail": outcome.detail, "id": outcome.id}
        with self._lock:
            self._broken = True
            self._file.write(line, f"not recorded: {outcome.change.name}: {outcome.result}; nothing else was changed")
            self._broken = False

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        self.close(ended=kind is None)

    def close(self, *, ended: bool = True) -> None:
        """Close the file.

        :param ended: whether to record that the run came to its end.
        :raises JournalError: if that line cannot be written.
        """
        with self._lock:
            try:
                if ended and not self._broken:
                    self._file.write({"closed": True}, "all changes are recorded")
            finally:
                self._file.close()


def read(path: Path, former: Former | None = None) -> RunRecord:
    """Read a journal.

    :param former: the journals of 0.1.0 that are valid too.
    :raises JournalError: if the file cannot be read, is no journal of this version, or others can write it.
    """
    if not (entries := read_lines(path, refuse_shared)):
        what = "empty or half-written, as after a power cut: its run ended before its first change"
        raise UnbegunError(what, where=str(path), remedy=f"nothing to undo; remove the file: rm {quoted(path)}")
    first, *lines = entries
    old = next((key for key in former or {} if isinstance(first, dict) and first.get(key) == VERSION), None)
    if not old and (not isinstance(first, dict) or _FORMAT not in first):
        remedy = "name a file or an ID of `gpustack history`"
        raise JournalError("not a journal of gpustack", where=str(path), remedy=remedy)
    if not old and first[_FORMAT] != VERSION:
        what = f"a journal of version {first[_FORMAT]!r}; this gpustack reads version {VERSION}"
        raise JournalError(what, where=str(path), remedy="use the gpustack that wrote the file")
    try:
        if former and old:
            return _former_record(path, first, lines, former[old])
        return _record(path, RunHead.model_validate(first), map(RunLine.model_validate, lines))
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # ValueError: pydantic's errors too
        what = f"a line does not belong to a journal: {first_problem(error)}"
        raise JournalError(what, where=str(path), remedy=RESTORE) from error


def _record(path: Path, head: RunHead, lines: Iterable[RunLine]) -> RunRecord:
    results: dict[str, ChangeResult] = {}
    ends: dict[str, RunLine] = {}
    payloads: dict[str, Any] = {}
    closed = False
    changes = list(head.changes)
    for line in lines:
        closed = closed or line.closed
        changes += [line.planned] if line.planned else []
        if line.begin:
            results[line.begin], payloads[line.begin] = ChangeResult.UNKNOWN, line.payload
        elif line.end:
            results[line.end], ends[line.end] = ChangeResult(line.result), line
    refuse_alike(changes)
    if foreign := results.keys() - {change.key for change in changes}:
        raise ValueError(f"not in the plan: {', '.join(sorted(foreign))}")
    head = head.model_copy(update={"changes": changes})
    return RunRecord(path=path, head=head, results=results, ends=ends, payloads=payloads, closed=closed)


def _former_record(
    path: Path, first: Mapping[str, Any], lines: Sequence[Any], change: Callable[[Mapping[str, Any]], CloudChange]
) -> RunRecord:
    ends = {line["end"]: line for line in lines if "end" in line}
    changes, results, payloads = [], {}, {}
    for line in lines:
        if "begin" in line:
            end = ends.get(line["begin"], {})
            former = change({**line, **end})
            made = PlannedChange.model_validate({**former.to_record(), "key": str(line["begin"])})
            changes.append(made)
            payloads[made.key] = former.payload if isinstance(former, GuardedChange) else None
            results[made.key] = _FORMER_RESULTS.get(end.get("outcome", ""), ChangeResult.DONE)
    name = re.sub("[^0-9A-Za-z-]", "-", path.stem)[:64]
    head = RunHead(id=name, command="", at=str(first.get("at", "")), changes=changes)
    refuse_alike(head.changes)
    return RunRecord(path=path, head=head, results=results, payloads=payloads, closed=True)


def refuse_alike(changes: Sequence[PlannedChange]) -> None:
    """Refuse changes of which two have one key, or need one another.

    :raises ValueError: if there are such changes.
    """
    if len({change.key for change in changes}) != len(changes):
        raise ValueError("two changes have one key")
    try:
        TopologicalSorter({change.key: {*change.needs, *change.after} for change in changes}).prepare()
    except CycleError as error:
        raise ValueError("changes need one another") from error


def refuse_shared(path: Path, status: os.stat_result) -> None:
    """Refuse a file that another user could have written.

    :param status: that of the open file.
    :raises JournalError: if it is such a file.
    """
    foreign = status.st_uid not in (os.geteuid(), 0)
    if foreign or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode, owner = f"mode {stat.S_IMODE(status.st_mode):04o}", f"owner {status.st_uid}"
        what, change = (owner, f"sudo chown {quoted(os.geteuid())}") if foreign else (mode, "chmod 600")
        remedy = f"check its content, then run: {change} {quoted(path)}"
        raise JournalError(f"others can write this file ({what})", where=str(path), remedy=remedy)


def records() -> Iterator[tuple[Path, RunRecord | JournalError]]:
    """All journals of this user, newest first; an unreadable one with its error."""
    for path in sorted(filter(Path.is_file, directory().glob("*.jsonl")), reverse=True):
        try:
            yield path, read(path)
        except JournalError as error:
            yield path, error


def last(
    cloud: Callable[[], Cloud], condition: Callable[[RunRecord], bool]
) -> tuple[RunRecord | None, JournalError | None]:
    """The newest run on a cloud that meets a condition, with what others completed; None if there is none.

    Also the error of a newer record that cannot be read, which may be of such a run unless it is unbegun.

    :param cloud: looks up the cloud; is not called if there are no runs.
    """
    here, unread = None, None
    for _, record in records():
        if isinstance(record, JournalError):
            unread = record if isinstance(unread, UnbegunError | None) else unread
        elif not record.head.completes:
            here = here or cloud()
            if here.is_same(record.head.cloud) and condition(whole := completed(record)):
                return whole, unread
    return None, unread


def completed(record: RunRecord) -> RunRecord:
    """A run together with the later ones that completed it; what its undos reverted counts as unchanged."""
    later: list[RunRecord] = []
    for path, other in records():
        if path.stem <= record.head.id:
            break  # IDs sort by time
        later += [other] if isinstance(other, RunRecord) and (other.head.completes or other.head.undoes) else []
    changes = {change.key: change for change in record.head.changes}
    results, ends, payloads = dict(record.results), dict(record.ends), dict(record.payloads)
    for other in later:
        if other.head.completes == record.head.id:
            changes |= {change.key: change for change in other.made}
            results |= {change.key: other.results[change.key] for change in other.made}
            ends |= other.ends
            payloads |= other.payloads
    left = _left(record.head.id, results, later)
    results = {key: left.get(key, ChangeResult.UNCHANGED) for key in results}
    head = record.head.model_copy(update={"changes": list(changes.values())})
    return replace(record, head=head, results=results, ends=ends, payloads=payloads)


def _left(run: str, results: Mapping[str, ChangeResult], later: Sequence[RunRecord]) -> Mapping[str, ChangeResult]:
    """The results of a run without the changes that its undos reverted; one that was interrupted is unknown.

    :param later: later runs, newest first: an undo may have been undone too.
    """
    left = dict(results)
    for number, undo in enumerate(later):
        if undo.head.undoes == run:
            for key, result in _left(undo.head.id, undo.results, later[:number]).items():
                if result in SUCCESSFUL:
                    left.pop(key, None)
                elif result in _IN_PART and key in left:
                    left[key] = ChangeResult.UNKNOWN
    return left


def find(name: str, former: Former | None = None) -> RunRecord:
    """The record with an ID, or of a file.

    :param former: the journals of 0.1.0 that are valid too.
    :raises JournalError: if there is none, or it cannot be read.
    """
    path = directory() / f"{name}.jsonl"
    if "/" not in name and path.is_file():
        return read(path)
    if Path(name).is_file():
        return read(Path(name), former)
    raise JournalError(f"there is no change {name!r}", remedy="`gpustack history` lists the changes")
