"""Carry decisions out: write and withdraw notices, shelve; unshelve the instances of a journal.

Each instance is read and judged again directly before its step. If the decision is another one by then, for example
because the instance was started, it is left alone. Nova has no request that shelves only an instance that is still
stopped, so one that is started within these milliseconds is shut down and shelved; unshelving starts it again.

An instance starts when it is unshelved, also one that was stopped. It needs free GPUs and may get others; without free
ones it stays shelved and can be unshelved later.
"""

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from gpustack.base.errors import CloudError
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.servers import Server
from gpustack.cloud.session import Refused
from gpustack.operate.reclaim.decide import judge
from gpustack.operate.reclaim.journal import ReclaimJournal, Shelved
from gpustack.operate.reclaim.model import Candidate, Choices, Decision, Rules, Step
from gpustack.operate.reclaim.notice import KEYS, metadata

PAUSE = 2.0
"""Seconds between two reads."""
_CONFLICT = 409
OFFLOADED, _SHELVED = "SHELVED_OFFLOADED", "SHELVED"


class Result(enum.StrEnum):
    """The result of a step."""

    NOTIFIED = "notified"
    WITHDRAWN = "withdrawn"
    SHELVED = "shelved"
    RESTORED = "unshelved"
    SKIPPED = "skipped"
    """The instance changed since the plan; nothing was done."""
    FAILED = "failed"
    UNFINISHED = "unfinished"
    """The time was over while Nova was still working."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a step on an instance."""

    server: str
    name: str
    result: Result
    detail: str = ""


class Reads(Protocol):
    """Reads an instance again, as :class:`gpustack.operate.reclaim.read.Reader` does."""

    def again(self, server_id: str) -> Candidate | None:
        """Read one instance as it is now; None if it does not exist."""


@dataclass(kw_only=True)
class Runner:
    """Carries decisions out, one after the other.

    :param seconds: the time limit for each instance.
    """

    api: ServiceCloud
    reader: Reads
    rules: Rules
    choices: Choices
    seconds: float
    now: Callable[[], datetime] = lambda: datetime.now(UTC).replace(tzinfo=None)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    # --- notices ----------------------------------------------------------------------------------------------------

    def notify(self, decision: Decision) -> Outcome:
        """Write or withdraw the notice of an instance.

        :raises CloudError: if Nova cannot be reached.
        """
        candidate = self._unchanged(decision)
        if isinstance(candidate, str):
            return _outcome(decision, Result.SKIPPED, candidate)
        try:
            if decision.step is Step.WITHDRAW:
                for key in KEYS:
                    self.api.unmark(decision.server.id, key)
                return _outcome(decision, Result.WITHDRAWN)
            due = (self.now() + self.rules.grace).replace(microsecond=0)
            self.api.mark(decision.server.id, metadata(due, candidate.actions))
            return _outcome(decision, Result.NOTIFIED, f"may be shelved from {due:%FT%TZ}")
        except Refused as error:
            return _outcome(decision, Result.FAILED, error.what)

    def _unchanged(self, decision: Decision) -> Candidate | str:
        """Read an instance again; why it is left alone if the decision is another one now."""
        candidate = self.reader.again(decision.server.id)
        if candidate is None:
            return "the instance does not exist any more"
        current = judge(candidate, self.rules, self.choices, self.now())
        if current is None:
            return f"the instance is {candidate.server.status} now, and not idle any more"
        if current.step is not decision.step:
            reasons = "; ".join(f"{found.code}: {found.message}" for found in current.findings)
            return reasons or f"the next step is now: {current.step}"
        return candidate

    # --- shelve -----------------------------------------------------------------------------------------------------

    def shelve(self, decision: Decision, journal: ReclaimJournal) -> Outcome:
        """Shelve an instance, and wait until its host has freed its GPUs.

        :raises CloudError: if Nova cannot be reached.
        :raises gpustack.base.errors.JournalError: if the journal cannot be written.
        """
        candidate = self._unchanged(decision)
        if isinstance(candidate, str):
            return _outcome(decision, Result.SKIPPED, candidate)
        number = journal.begin(decision)
        try:
            result, detail = self._shelve(decision.server.id)
        except CloudError as error:
            journal.end(number, Result.UNFINISHED.value, error.what)
            raise
        journal.end(number, result.value, detail, last_shelving(self.api, decision.server.id))
        return _outcome(decision, result, detail)

    def _shelve(self, server_id: str) -> tuple[Result, str]:
        try:
            self.api.act(server_id, "shelve")
        except Refused as error:
            return Result.FAILED, error.what
        end = self.clock() + self.seconds
        offloading = False
        while True:
            server = self.api.server(server_id)
            if server is None:
                return Result.FAILED, "the instance does not exist any more"
            if not server.task:
                # The host is empty only after nova-compute has freed the devices.
                if server.status == OFFLOADED and not server.host:
                    return Result.SHELVED, "its GPUs are free"
                if server.status == _SHELVED and not offloading:
                    # With shelved_offload_time other than 0, Nova keeps the instance and its GPUs on the host.
                    offloading, refused = self._offload(server_id)
                    if refused:
                        return Result.FAILED, f"the instance is SHELVED and keeps its GPUs: {refused}"
                elif server.status != OFFLOADED:
                    return Result.FAILED, self._why(server)
            if self.clock() >= end:
                return Result.UNFINISHED, f"still {server.status}, task {server.task}, after {self.seconds:g} s"
            self.sleep(PAUSE)

    def _offload(self, server_id: str) -> tuple[bool, str]:
        """Request the offloading; return whether Nova accepted it, and why it refused for good."""
        try:
            self.api.act(server_id, "shelve_offload")
        except Refused as error:
            # After a conflict, Nova's own periodic task has begun it.
            return False, "" if error.status == _CONFLICT else error.what
        return True, ""

    def _why(self, server: Server) -> str:
        actions = self.api.actions(server.id)
        reason = self.api.why_failed(server.id, actions[0].request) if actions else ""
        return f"the instance is {server.status}: {reason or 'see the log of nova-compute'}"


def last_shelving(api: ServiceCloud, server_id: str) -> str:
    """The id of the newest request that shelved an instance; empty if there is none."""
    return next((action.request for action in api.actions(server_id) if action.what == "shelve"), "")


def _outcome(decision: Decision, result: Result, detail: str = "") -> Outcome:
    return Outcome(server=decision.server.id, name=decision.server.name, result=result, detail=detail)


@dataclass(kw_only=True)
class Undo:
    """Unshelves instances, one after the other.

    :param seconds: the time limit for each instance.
    """

    api: ServiceCloud
    seconds: float
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def unshelve(self, entry: Shelved) -> Outcome:
        """Unshelve an instance.

        :raises CloudError: if Nova cannot be reached.
        """
        result, detail = self._unshelve(entry)
        return Outcome(server=entry.server, name=entry.name, result=result, detail=detail)

    def _unshelve(self, entry: Shelved) -> tuple[Result, str]:
        server = self.api.server(entry.server)
        if server is None:
            return Result.SKIPPED, "the instance does not exist any more"
        if server.status != OFFLOADED or server.task:
            return Result.SKIPPED, f"the instance is {server.status}{f', task {server.task}' if server.task else ''}"
        if entry.request and last_shelving(self.api, entry.server) != entry.request:
            return Result.SKIPPED, "somebody unshelved the instance and shelved it again since"
        if not entry.request and not self._shelved_by_us(entry.server):
            return Result.SKIPPED, "Nova has no record that gpustack shelved the instance"
        try:
            self.api.act(entry.server, "unshelve")
        except Refused as error:
            return Result.FAILED, error.what
        return self._wait(entry)

    def _shelved_by_us(self, server: str) -> bool:
        """Whether the user as whom gpustack authenticates shelved an instance: others can edit a journal."""
        user = self.api.user()
        newest = next((action for action in self.api.actions(server) if action.what == "shelve"), None)
        return newest is not None and (not user or not newest.user or newest.user == user)

    def _wait(self, entry: Shelved) -> tuple[Result, str]:
        end = self.clock() + self.seconds
        while True:
            server = self.api.server(entry.server)
            if server is None:
                return Result.FAILED, "the instance does not exist any more"
            if not server.task and server.status == "ACTIVE":
                return Result.RESTORED, f"it runs on {server.host} (it was {entry.status}), perhaps with other GPUs"
            if not server.task:
                return Result.FAILED, f"the instance is still {server.status}: no host has free GPUs for it"
            if self.clock() >= end:
                return Result.UNFINISHED, f"task {server.task} after {self.seconds:g} s"
            self.sleep(PAUSE)
