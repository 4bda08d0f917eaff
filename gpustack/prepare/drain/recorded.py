"""Maintenance as recorded changes: with the lock of the cloud, and a journal that ``gpustack history`` lists."""

from collections.abc import Callable

from gpustack.base.errors import ApplyError
from gpustack.changes.change import SUCCESSFUL
from gpustack.changes.closed import reason_change
from gpustack.changes.journal import new_id
from gpustack.changes.journal_lines import Cloud, RunHead
from gpustack.changes.lock import held
from gpustack.changes.run import recorded_run
from gpustack.cloud import Connection
from gpustack.cloud.closed import MAINTENANCE, reasons_of, service_of
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.session import place_of

_WAIT = 600.0
"""Seconds to wait for other runs: those of the other hosts of a batch, among others."""


class RecordedCloud(ServiceCloud):
    """The requests of a drain; opening and closing a host waits for other runs, and is recorded."""

    def __init__(self, connection: Connection, log: Callable[[str], None]) -> None:
        super().__init__(connection)
        self._log = log

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

    def _head(self) -> RunHead:
        return RunHead(id=new_id(), command="host apply", cloud=Cloud(**place_of(self.connection)))

    def _run(self, host: str, text: str, *, close: bool) -> None:
        service = service_of(self.connection, host)
        change = reason_change(service, MAINTENANCE, text, close=close, why="the host is rebooted")
        ran = recorded_run(self.connection, self._head(), [change], warn=self._log, seconds=_WAIT)
        if ran.signals:
            raise KeyboardInterrupt
        (outcome,) = ran.outcomes
        if outcome.result not in SUCCESSFUL:
            raise ApplyError(f"{change.name}: {outcome.result}: {outcome.detail}", where=host)
