"""Runs of ``host apply`` and ``host undo`` in the history: listed only, since their records stay on the hosts."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from gpustack.base.files import digest
from gpustack.changes.change import ChangeOutcome, ChangeResult, CloudChange
from gpustack.changes.journal import RunHead, RunJournal, new_id
from gpustack.connect.playbooks.record import HostRecord, RunOutcome


class HostRun(CloudChange):
    """The changes of one host in a run: no change of a cloud, so that no undo reads it."""

    kind: ClassVar[str] = "run_on_host"
    object_kind: ClassVar[str] = "host"


_RESULTS: dict[RunOutcome | None, ChangeResult] = {
    RunOutcome.DONE: ChangeResult.DONE,
    RunOutcome.NOTHING: ChangeResult.UNCHANGED,
    RunOutcome.NOT_BEGUN: ChangeResult.NOT_BEGUN,
}


@contextlib.contextmanager
def recorded(command: str, spec: Path | None, hosts: Sequence[str]) -> Iterator[Callable[[HostRecord], None]]:
    """Record a run on hosts, and yield what records the result of a host.

    :raises gpustack.base.errors.JournalError: if the record cannot be written; nothing was changed then.
    """
    changes = {host: HostRun(why=command, name=host, seen=None, wanted=None) for host in hosts}
    head = RunHead(id=new_id(), command=command, spec=str(spec or ""), spec_sha256=digest(spec))
    with RunJournal(head, list(changes.values())) as log:
        for change in changes.values():
            log.begin(change)
        yield lambda record: log.end(
            ChangeOutcome(
                change=changes[record.host],
                result=_RESULTS.get(record.outcome, ChangeResult.FAILED),
                detail=record.problem,
            )
        )
