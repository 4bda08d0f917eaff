"""Plan how to restore a verified host: start what gpustack stopped, enable what it disabled."""

from collections.abc import Mapping

from gpustack.base.findings import Code, finding
from gpustack.cloud.closed import MAINTENANCE, reasons_of
from gpustack.cloud.marks import Mark, MarkKind, Since, keys_of, marks
from gpustack.cloud.servers import Server
from gpustack.prepare.drain.instances import confirm, half_moved, key
from gpustack.prepare.drain.model import World
from gpustack.prepare.drain.plan import Draft, ServicePlan
from gpustack.prepare.drain.steps import EnableService, Forget, Start

TITLE = "back in service, when it is verified"
NOTHING: Mapping[str, str] = {}
_UNMARKABLE = ("ERROR", "UNKNOWN")
"""Statuses of instances whose metadata cannot be written."""


def plan_resume(host: str, world: World, *, alive: bool, requests: Mapping[str, str] = NOTHING) -> ServicePlan:
    """Plan the remaining steps until a verified host is back in service.

    :param host: the inventory's name.
    :param alive: whether nova-compute has reported since the host was verified.
    :param requests: as in :func:`gpustack.prepare.drain.drain.plan_empty`.
    """
    service = world.service
    if service is None:
        return ServicePlan(host=host, title=TITLE, notes=("Nova has no nova-compute of this host",))
    judged = _Judged(service.host, world.user, alive, requests)
    for server in (*world.servers, *world.away):
        own = [mark for mark in marks(server, world.user) if mark.host == service.host]
        if own and not any(mark.recorded or mark.since is Since.NOTHING for mark in own):
            judged.notes.append(f"{server.label}: its mark was set by the project, and has no effect")
        elif own and own[0].kind is MarkKind.STOPPED:
            judged.stopped(server, own[0])
        elif own:
            judged.moved(server)
    reasons = reasons_of(service)
    left = str(reasons.minus(MAINTENANCE))
    if left:
        judged.notes.append(f"host stays closed: {left}")
    if MAINTENANCE in reasons.own:
        if alive:
            step = EnableService(service=service.id, host=service.host, left=left, why="gpustack disabled it")
            judged.steps.append(step)
        elif service.forced_down:
            judged.findings.append(finding(Code.COMPUTE_FORCED_DOWN, place=service.host))
        else:
            judged.waits.append(f"nova-compute of {service.host} to report")
    return judged.plan(host, TITLE)


class _Judged(Draft):
    def __init__(self, host: str, user: str, alive: bool, requests: Mapping[str, str]) -> None:
        super().__init__(host, requests)
        self._user = user
        self._alive = alive

    def stopped(self, server: Server, mark: Mark) -> None:
        """Add the step for an instance that gpustack marked before it stopped it."""
        if server.task:
            self.waits.append(f"{server.label}: {server.task}")
        elif server.status in _UNMARKABLE:
            self._not_started(server, self.requests.get(f"start:{server.id}") or f"it is in {server.status}")
        elif server.host != self.service_host or server.status != "SHUTOFF":
            self._forget(server, "it runs" if server.status == "ACTIVE" else "somebody has changed it since")
        elif server.locked or mark.since is not Since.OURS:
            self.findings.append(finding(Code.INSTANCE_LEFT_STOPPED, place=f"{self.service_host} {server.label}"))
            self._forget(server, "somebody has changed it since")
        elif not self._alive:
            self.waits.append(f"nova-compute of {self.service_host} to report")
        else:
            step = Start(server=server.id, name=server.name, why="gpustack stopped it")
            if key(step) in self.requests:
                self._not_started(server, self.requests[key(step)] or "no reason was given")
            else:
                self.steps.append(step)

    def _not_started(self, server: Server, reason: str) -> None:
        place = f"{self.service_host} {server.label}"
        self.findings.append(finding(Code.INSTANCE_NOT_STARTED, place=place, said=reason))

    def moved(self, server: Server) -> None:
        """Add the step for an instance that gpustack marked before it moved it."""
        if server.task:
            self.waits.append(f"{server.label}: {server.task}")
        elif half_moved(server, self._user):
            self.take(confirm(server, self.requests))
        elif server.status in _UNMARKABLE:
            self.notes.append(f"{server.label}: it is in {server.status} on {server.host}, so its mark stays")
        else:
            self._forget(server, f"it is on {server.host}")

    def _forget(self, server: Server, why: str) -> None:
        """Remove this host's metadata from an instance."""
        keys = keys_of(server, self.service_host)
        step = Forget(server=server.id, name=server.name, keys=keys, why=why)
        if key(step) not in self.requests:
            self.steps.append(step)
