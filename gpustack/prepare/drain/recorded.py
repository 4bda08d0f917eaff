"""Maintenance as recorded changes: with the lock of the cloud, and a journal that ``gpustack history`` lists."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar

from gpustack.base.errors import ApplyError, CloudError, PlanError
from gpustack.base.text import counted, listed
from gpustack.changes.change import SUCCESSFUL, ChangeOutcome, ChangeResult, CloudChange
from gpustack.changes.closed import reason_change
from gpustack.changes.journal import Cloud, RunHead, RunJournal, new_id
from gpustack.changes.lock import held
from gpustack.changes.run import recorded_run
from gpustack.cloud import Connection
from gpustack.cloud.closed import MAINTENANCE, reasons_of, service_of
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.session import Refused, place_of
from gpustack.prepare.drain.steps import GuestStep

_WAIT = 600.0
"""Seconds to wait for other runs: those of the other hosts of a batch, among others."""


class InstanceStep(CloudChange):
    """Move, stop or start an instance during maintenance."""

    kind: ClassVar[str] = "change_instance"
    object_kind: ClassVar[str] = "instance"
    undone: ClassVar[str] = "none: the end of the maintenance starts a stopped instance, and a moved one stays"
    reversible: ClassVar[bool] = False
    value: ClassVar[Any] = str

    def describe(self) -> str:
        return f"{self.name}: {self.wanted} (was {self.seen})"


class RecordedCloud(ServiceCloud, AbstractContextManager["RecordedCloud"]):
    """The requests of a drain; opening and closing a host waits for other runs, and is recorded."""

    def __init__(self, connection: Connection, log: Callable[[str], None], most: int = 0) -> None:
        """:param most: how many services gpustack may have disabled at a time in the cloud; 0 for no limit."""
        super().__init__(connection)
        self._log, self._most = log, most
        self._journal: RunJournal | None = None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._journal is not None:
            self._journal.close(ended=kind is None)

    @contextmanager
    def recorded(self, step: GuestStep, before: str) -> Iterator[None]:
        """Record a step on an instance around its requests, with those of the same phase.

        Without the lock of the cloud: a drain takes up to an hour, and Nova refuses a step that does not fit any more.

        :param before: the state of the instance.
        """
        self._journal = self._journal or RunJournal(self._head(), ())
        name, tag = f"{step.name} ({step.server})", f"instance:{step.server}:{new_id()}"
        change = InstanceStep(why=step.why, id=step.server, name=name, seen=before, wanted=step.result, tag=tag)
        self._journal.begin(change)
        try:
            yield
        except CloudError as error:
            result = ChangeResult.FAILED if isinstance(error, Refused) else ChangeResult.UNKNOWN
            self._journal.end(ChangeOutcome(change=change, result=result, detail=error.what))
            raise
        self._journal.end(ChangeOutcome(change=change, result=ChangeResult.DONE, detail="Nova accepted the request"))

    def close(self, host: str, text: str) -> None:
        """Close a host for maintenance; only the text of one that is closed for maintenance changes."""
        if MAINTENANCE in reasons_of(service_of(self.connection, host)).own:
            with held(self.connection, self._head(), self._log, seconds=_WAIT):
                super().close(host, text)
        else:
            self._run(host, text, close=True)

    def reopen(self, host: str) -> None:
        """End the maintenance of a host."""
        self._run(host, "", close=False)

    def _check_limit(self, host: str) -> None:
        """Refuse to close another host beyond the limit. The lock of the cloud keeps other runs from closing one now.

        :param host: the host that is closed next; empty if one is opened.
        """
        if not host or self._most <= 0:
            return
        closed = [s.host for s in self.services() if s.host != host and (reasons_of(s).own or not s.answers)]
        if len(closed) >= self._most:
            others = counted(len(closed), "other compute service")
            raise PlanError(
                f"gpustack has disabled {others}, or their cell does not answer: {listed(sorted(closed), 5)}; with"
                f" gpustack_max_disabled {self._most}, {host} stays in service",
                where=host,
                remedy="run the playbook again when they are in service; keep the sum of gpustack_serial of all slices"
                " below the limit",
            )

    def _head(self) -> RunHead:
        return RunHead(id=new_id(), command="host apply", cloud=Cloud(**place_of(self.connection)))

    def _run(self, host: str, text: str, *, close: bool) -> None:
        service = service_of(self.connection, host)
        change = reason_change(service, MAINTENANCE, text, close=close, why="the host is rebooted")
        first = partial(self._check_limit, host if close else "")
        ran = recorded_run(self.connection, self._head(), [change], warn=self._log, seconds=_WAIT, first=first)
        if ran.signals:
            raise KeyboardInterrupt
        (outcome,) = ran.outcomes
        if outcome.result not in SUCCESSFUL:
            raise ApplyError(f"{change.name}: {outcome.result}: {outcome.detail}", where=host)
