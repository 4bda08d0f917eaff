"""Carry changes out: check each object again, record, write, record the result.

Changes run in the order of their needs, independent ones at the same time. After a request without an answer, nothing
else begins. A signal lets the changes in progress end.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpustack.base.errors import CloudError, GpustackError, JournalError
from gpustack.base.text import printable
from gpustack.changes import lock
from gpustack.changes.change import (
    SUCCESSFUL,
    ChangeOutcome,
    ChangeResult,
    CloudChange,
    Ended,
    GuardedChange,
    Value,
    difference,
    is_between,
)
from gpustack.changes.journal import RunHead, RunJournal
from gpustack.changes.signals import stopping
from gpustack.cloud import Connection
from gpustack.cloud.reads import reading_once
from gpustack.cloud.session import CONFLICT, UNAUTHORIZED, Refused, Unanswered

_STOPPED = "the run was stopped"


def run(
    changes: Sequence[CloudChange],
    apis: Mapping[str, Any],
    recorder: RunJournal | None,
    *,
    jobs: int = 1,
    stop: threading.Event | None = None,
    tell: Callable[[ChangeOutcome], None] = lambda outcome: None,
) -> tuple[ChangeOutcome, ...]:
    """Carry changes out, and return an outcome for each, in their order.

    :param apis: the client of each kind of object.
    :param recorder: None for a preview: changes are only checked, and those that would be made count as done.
    :param jobs: how many changes run at the same time.
    :param stop: no change begins after it is set.
    :param tell: is called with each outcome, in the calling thread.
    :raises GpustackError: in a preview, if an object cannot be read.
    """
    known = {change.key: change for change in changes}
    if len(known) != len(changes):
        raise ValueError("two changes have one key")
    return _Run(changes=known, apis=apis, recorder=recorder, stop=stop or threading.Event(), tell=tell).all(jobs)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A run that ended.

    :ivar signals: the signals that arrived meanwhile.
    """

    outcomes: tuple[ChangeOutcome, ...]
    journal: Path
    signals: Sequence[int] = ()


def recorded_run(
    connection: Connection | None,
    head: RunHead,
    changes: Sequence[CloudChange],
    *,
    warn: Callable[[str], None],
    clients: Mapping[str, Any] | None = None,
    path: Path | None = None,
    jobs: int = 1,
    tell: Callable[[ChangeOutcome], None] = lambda outcome: None,
    seconds: float = lock.WAIT,
    first: Callable[[], None] = lambda: None,
) -> RunResult:
    """Carry changes out with the lock of the cloud and a journal.

    :param connection: None for a run that knows Nova's databases alone: only runs on this machine are locked out.
    :param clients: the client of each kind of object; None to make them of the connection.
    :param path: the journal; None for a new one of this user.
    :param seconds: how long to wait for other runs.
    :param first: what must hold when no other run is under way any more; its error ends the run without a journal.
    :raises LockedError: if another run changes the cloud.
    :raises JournalError: if the journal cannot be written.
    """
    stop = threading.Event()
    with contextlib.ExitStack() as signals, lock.held(connection, head, warn, seconds=seconds):
        arrived = signals.enter_context(stopping(stop))  # until the lock is released
        first()
        journal = RunJournal(head, changes, path)
        if clients is None:
            clients = {change.object_kind: change.client(connection) for change in changes}
        with journal:
            outcomes = run(changes, clients, journal, jobs=jobs, stop=stop, tell=tell)
    return RunResult(outcomes=outcomes, journal=journal.path, signals=arrived)


@dataclass(kw_only=True)
class _Run:
    changes: Mapping[str, CloudChange]
    apis: Mapping[str, Any]
    recorder: RunJournal | None
    stop: threading.Event
    tell: Callable[[ChangeOutcome], None]
    outcomes: dict[str, ChangeOutcome] = field(default_factory=dict)
    because: str = _STOPPED

    def all(self, jobs: int) -> tuple[ChangeOutcome, ...]:
        waiting = dict(self.changes)
        running: set[Future[ChangeOutcome]] = set()
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            while waiting or running:
                for change in self._ready(waiting)[: jobs - len(running)]:
                    running.add(pool.submit(self._one, waiting.pop(change.key)))
                if not running:
                    if waiting and not self._settle(waiting):
                        raise ValueError(f"changes need one another: {', '.join(waiting)}")
                    continue
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    self._note(future.result())
        return tuple(self.outcomes[key] for key in self.changes)

    def _settle(self, waiting: dict[str, CloudChange]) -> bool:
        """Note the changes that can't begin any more; return whether there were any."""
        before = len(waiting)
        for change in list(waiting.values()):
            failed = [key for key in change.needs if key in self.outcomes and not self._succeeded(key)]
            if self.stop.is_set() or failed:
                first = self.outcomes[failed[0]] if failed else None
                detail = f"needs {printable(first.change.name, keep='')} ({first.result})" if first else self.because
                del waiting[change.key]
                self._note(ChangeOutcome(change=change, result=ChangeResult.NOT_BEGUN, detail=detail))
        return len(waiting) < before

    def _ready(self, waiting: Mapping[str, CloudChange]) -> list[CloudChange]:
        return [
            change
            for change in waiting.values()
            if all(key not in self.changes or self._succeeded(key) for key in change.needs)
            and all(key not in self.changes or key in self.outcomes for key in change.after)
        ]

    def _succeeded(self, key: str) -> bool:
        return key in self.outcomes and self.outcomes[key].result in SUCCESSFUL

    def _note(self, outcome: ChangeOutcome) -> None:
        try:
            if self.recorder is not None:
                self.recorder.end(outcome)
        except JournalError as error:
            self._halt(error.what)
            outcome = replace(outcome, lost=outcome.lost or error)
        self.outcomes[outcome.change.key] = outcome
        try:
            self.tell(outcome)
        except OSError:  # the reader of the output, or the terminal, is gone: as after a signal
            self.stop.set()

    def _one(self, change: CloudChange) -> ChangeOutcome:
        """Check one change and carry it out."""
        if self.stop.is_set():
            return ChangeOutcome(change=change, result=ChangeResult.NOT_BEGUN, detail=self.because)
        api = self.apis[change.object_kind]
        if isinstance(change, GuardedChange):
            return self._attempted(change, api)
        with reading_once():
            if self.recorder is not None:
                return self._checked(change, api, self.recorder)
            made = [outcome.change for outcome in self.outcomes.values() if outcome.result is ChangeResult.DONE]
            return without_a_write(change, api, made) or ChangeOutcome(change=change, result=ChangeResult.DONE)

    def _checked(self, change: CloudChange, api: Any, recorder: RunJournal) -> ChangeOutcome:  # noqa: ANN401
        try:
            if (ended := without_a_write(change, api)) is not None:
                return ended
            recorder.begin(change)
        except GpustackError as error:
            return self._failed(change, error)
        return self._written(change, api)

    def _attempted(self, change: GuardedChange, api: Any) -> ChangeOutcome:  # noqa: ANN401
        """Let a change check and write by itself; a lost server ends the run."""
        if self.recorder is None:
            result, detail, _lost = change.preview(api)
            return ChangeOutcome(change=change, result=result, detail=detail)
        try:
            ended = change.attempt(api, partial(self.recorder.begin, change))
        except GpustackError as error:
            ended = Ended(ChangeResult.FAILED, error.what, error)
        if ended.lost:
            self._halt(ended.lost.what)
        return ChangeOutcome(change=change, result=ended.result, detail=ended.detail, lost=ended.lost)

    def _written(self, change: CloudChange, api: Any) -> ChangeOutcome:  # noqa: ANN401 - each kind has its own client
        try:
            new = change.carry_out(api)
        except GpustackError as error:
            cause = error if isinstance(error, Unanswered) else error.__cause__
            if not isinstance(cause, Unanswered):
                return self._failed(change, error)
            self._halt("an earlier request got no answer")
            return self._after_silence(change, api, error)
        return ChangeOutcome(change=change, result=ChangeResult.DONE, id=new)

    def _after_silence(self, change: CloudChange, api: Any, error: GpustackError) -> ChangeOutcome:  # noqa: ANN401
        """Read an object whose change got no answer, to learn whether it was carried out."""
        try:
            present = change.read(api)
        except GpustackError:
            return ChangeOutcome(change=change, result=ChangeResult.UNKNOWN, detail=error.what)
        if present == change.wanted:
            confirmed = "confirmed by reading; the answer was lost"
            return ChangeOutcome(change=change, result=ChangeResult.DONE, detail=confirmed)
        detail = error.what if present == change.seen else f"partly done: {error.what}"
        return ChangeOutcome(change=change, result=ChangeResult.FAILED, detail=detail)

    def _failed(self, change: CloudChange, error: GpustackError) -> ChangeOutcome:
        """A change that failed: before its first write, or because the API refused it.

        If another run or person created the object since, nothing was written: an undo must leave that object.
        """
        status = error.status if isinstance(error, Refused) else 0
        if isinstance(error, Unanswered | JournalError) or status == UNAUTHORIZED:  # Keystone locks out who tries on
            self._halt(error.what)
        exists = change.seen is None and status == CONFLICT
        plain = "; ".join(filter(None, (error.what, error.remedy)))
        detail = plain if isinstance(error, CloudError | JournalError) else str(error)
        result = ChangeResult.SKIPPED if exists else ChangeResult.FAILED
        return ChangeOutcome(change=change, result=result, detail=detail)

    def _halt(self, because: str) -> None:
        self.because = because
        self.stop.set()


def without_a_write(change: CloudChange, api: Any, made: Sequence[CloudChange] = ()) -> ChangeOutcome | None:  # noqa: ANN401
    """What a change ends with before it writes: it is made already, or something is in its way; None if it would begin.

    :param made: the earlier changes of a preview, which the cloud does not have.
    :raises GpustackError: if the object cannot be read.
    """
    present = change.seen if change.compared_by_api else _foreseen(change, change.read(api), made)
    if present == change.wanted:
        return ChangeOutcome(change=change, result=ChangeResult.UNCHANGED, id=change.id)
    foreign = change.foreign(api) if change.recorded else ""
    obstacle = _changed(change, present) or foreign or change.obstacle(api, made)
    return ChangeOutcome(change=change, result=ChangeResult.SKIPPED, detail=obstacle) if obstacle else None


def _foreseen(change: CloudChange, present: Value, made: Sequence[CloudChange]) -> Value:
    """The value of an object after earlier changes; as the plan saw it, if one creates or deletes the object."""
    for other in (other for other in made if other.place == change.place):
        if None in (other.seen, other.wanted):
            return change.seen
        if isinstance(present, Mapping) and isinstance(other.wanted, Mapping):
            present = {k: v for k, v in other.made_to(present).items() if v is not None or k in change.seen}
    return present


def _changed(change: CloudChange, present: Value) -> str:
    """How an object differs from the plan; empty if it does not."""
    if present == change.seen or (change.partial and is_between(present, change.seen, change.wanted)):
        return ""
    if present is None:
        return "it does not exist any more"
    lines = difference(change.seen, present, both=change.seen is not None)
    return printable(f"changed since the plan: {'; '.join(line[2:] for line in lines)}", keep="")
