"""A model of the part of Nova that host maintenance uses: states, tasks that take time, and the requests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpustack.cloud.closed import MAINTENANCE, Reasons, reasons_of
from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.cloud.placement import Amounts, Room
from gpustack.cloud.servers import Event, Migration, Server
from gpustack.cloud.session import Refused

_NAMES = {
    "stop": "stop",
    "start": "start",
    "live_migrate": "live-migration",
    "cold_migrate": "migrate",
    "confirm": "confirmResize",
}


class Killed(BaseException):
    """The run ends here."""


@dataclass
class Nova:
    """Every method is one request.

    :param dies_at: the number of the request at which the run is killed.
    :param carried_out: whether that request is still carried out.
    :param slow: the number of queries that a task takes.
    :param qemu: the versions of QEMU by host.
    """

    service: Service
    guests: dict[str, Server]
    dies_at: int = 10**9
    carried_out: bool = False
    slow: int = 1
    no_room: bool = False
    qemu: dict[str, str] = field(default_factory=dict)
    capacity: int = 10**6
    neutron: Ports = field(default_factory=Ports)
    demand: Amounts = field(default_factory=dict)
    placement: Room | None = None
    action_log: dict[str, list[Event]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    _requests: int = 0
    _tasks: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    _left: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for server_id in self.guests:
            self.action_log[server_id] = [Event(what="create", request="r-create")]

    def request(self, write: str = "") -> None:
        """Count the request, and advance running tasks."""
        number, self._requests = self._requests, self._requests + 1
        self._die_after = number == self.dies_at and self.carried_out
        if number == self.dies_at and not self.carried_out:
            raise Killed
        if write:
            self.writes.append(write)
        else:
            self.service = replace(self.service, seen=f"{number}")
            for server_id, (looks, change) in list(self._tasks.items()):
                if looks <= 0:
                    del self._tasks[server_id]
                    self.guests[server_id] = replace(self.guests[server_id], task="", **change)
                else:
                    self._tasks[server_id] = (looks - 1, change)

    def answered(self) -> None:
        if self._die_after:
            raise Killed

    @property
    def requests(self) -> int:
        return self._requests

    def forget_requests(self) -> None:
        self._requests, self.dies_at = 0, 10**9

    # -- reads -----------------------------------------------------------------------------------------------

    def user(self) -> str:
        return "me"

    def services(self) -> tuple[Service, ...]:
        self.request()
        self.answered()
        return (self.service, Service(id="s2", host="gpu2", enabled=True, up=True))

    def servers(self, host: str) -> tuple[Server, ...]:
        self.request()
        self.answered()
        return tuple(server for server in self.guests.values() if server.host == host)

    def unconfirmed(self) -> tuple[Server, ...]:
        self.request()
        self.answered()
        return tuple(server for server in self.guests.values() if server.status == "VERIFY_RESIZE")

    def left(self, host: str) -> tuple[str, ...]:
        self.request()
        self.answered()
        return tuple(self._left)

    def server(self, server_id: str) -> Server | None:
        self.request()
        self.answered()
        return self.guests.get(server_id)

    def ports(self, host: str) -> Ports:
        return self.neutron

    def needs(self, server_id: str) -> Amounts:
        return self.demand

    def qemu_versions(self) -> dict[str, str]:
        return self.qemu

    def room(self, needs: Amounts) -> Room | None:
        assert not self.service.enabled, "the host would be among those that have room"
        return self.placement

    def migrations(self, host: str) -> tuple[Migration, ...]:
        self.request()
        self.answered()
        return ()

    def actions(self, server_id: str) -> tuple[Event, ...]:
        self.request()
        self.answered()
        return tuple(self.action_log[server_id])

    def why_failed(self, server_id: str, request: str) -> str:
        self.request()
        self.answered()
        return "No valid host was found." if self.no_room or self.capacity < 0 else ""

    # -- writes ----------------------------------------------------------------------------------------------

    def close(self, host: str, text: str) -> None:
        self.request("disable")
        self._switch(reasons_of(self.service).plus(MAINTENANCE, text))

    def reopen(self, host: str) -> None:
        self.request("enable")
        self._switch(reasons_of(self.service).minus(MAINTENANCE))

    def _switch(self, reasons: Reasons) -> None:
        self.service = replace(self.service, enabled=not reasons, reason=reasons.to_text() if reasons else "")
        self.answered()

    def mark(self, server_id: str, metadata: Mapping[str, str]) -> None:
        self.request(f"mark {server_id}")
        server = self.guests[server_id]
        self.guests[server_id] = replace(server, metadata={**server.metadata, **metadata})
        self.answered()

    def unmark(self, server_id: str, key: str) -> None:
        self.request(f"unmark {server_id}")
        server = self.guests[server_id]
        metadata = {name: value for name, value in server.metadata.items() if name != key}
        self.guests[server_id] = replace(server, metadata=metadata)
        self.answered()

    def act(self, server_id: str, action: str) -> None:
        self.request(f"{action} {server_id}")
        self.do(server_id, action, "me")
        self.answered()

    def do(self, server_id: str, action: str, user: str) -> None:
        """An action by a user."""
        server = self.guests[server_id]
        status = {"stop": "ACTIVE", "start": "SHUTOFF", "confirm": "VERIFY_RESIZE"}.get(action, "ACTIVE")
        if server.task or server.status != status:
            raise Refused(f"it is {server.status}, {server.task}", status=409)
        if action.endswith("migrate") and server.demands:
            neighbours = [
                neighbour for neighbour in self.guests.values() if neighbour.demands and neighbour is not server
            ]
            assert not [
                neighbour for neighbour in neighbours if neighbour.task or neighbour.status == "VERIFY_RESIZE"
            ], "they would race"
        request = f"r{next(self._numbers)}"
        self.action_log[server_id].insert(0, Event(what=_NAMES[action], request=request, user=user))
        changes: dict[str, dict[str, Any]] = {
            "stop": {"status": "SHUTOFF", "power": 4},
            "start": {"status": "ACTIVE", "power": 1},
            "live_migrate": {"host": "gpu2"},
            "cold_migrate": {"host": "gpu2", "status": "VERIFY_RESIZE"},
            "confirm": {"status": "ACTIVE"},
        }
        change = changes[action]
        if action.endswith("migrate"):
            self._left.append(server_id)
            self.capacity -= 1
            change = {} if self.no_room or self.capacity < 0 else change
        self._tasks[server_id] = (self.slow if change else 0, change)
        if action != "confirm":  # Nova shows no task while it confirms
            self.guests[server_id] = replace(server, task=action)
