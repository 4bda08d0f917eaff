"""Unshelve the instances of a journal, each unless somebody used it since.

An instance starts when it is unshelved, also one that was stopped. It needs free GPUs and may get others; without free
ones it stays shelved and can be unshelved later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gpustack.cloud.session import Refused
from gpustack.operate.reclaim.journal import Shelved
from gpustack.operate.reclaim.run import OFFLOADED, PAUSE, Outcome, Result, last_shelving
from gpustack.prepare.drain.api import ServiceApi


@dataclass(kw_only=True)
class Undo:
    """Unshelves instances, one after the other.

    :param seconds: the time limit for each instance.
    """

    api: ServiceApi
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
        try:
            self.api.act(entry.server, "unshelve")
        except Refused as error:
            return Result.FAILED, error.what
        return self._wait(entry)

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
