"""Plan how to restore a verified host: start what gpustack stopped, enable what it disabled."""

from collections.abc import Iterator

from gpustack.base.findings import Code, finding
from gpustack.cloud.closed import MAINTENANCE, reasons_of
from gpustack.cloud.compute import Service
from gpustack.cloud.marks import Mark, MarkKind, Since, keys_of, marks
from gpustack.cloud.servers import Server
from gpustack.prepare.drain.instances import Note, Treatment, Wait, under_way
from gpustack.prepare.drain.model import World
from gpustack.prepare.drain.plan import ServicePlan, plan_of
from gpustack.prepare.drain.steps import EnableService, Forget, Start

TITLE = "back in service, when it is verified"
_UNMARKABLE = ("ERROR", "UNKNOWN")
"""Statuses of instances whose metadata cannot be written."""


def plan_resume(host: str, world: World, *, alive: bool) -> ServicePlan:
    """Plan the remaining steps until a verified host is back in service.

    :param host: the inventory's name.
    :param alive: whether nova-compute has reported since the host was verified.
    """
    servers = (*world.servers, *world.away)
    treatments = [treatment for server in servers for treatment in _of_instance(server, world, alive=alive)]
    return plan_of(host, TITLE, (*treatments, *_enable(world.service, alive=alive)))


def _enable(service: Service, *, alive: bool) -> Iterator[Treatment]:
    reasons = reasons_of(service)
    if left := str(reasons.minus(MAINTENANCE)):
        yield Note(f"host stays closed: {left}")
    if MAINTENANCE not in reasons.own:
        return
    if alive:
        yield EnableService(service=service.id, host=service.host, left=left, why="gpustack disabled it")
    elif service.forced_down:
        yield finding(Code.COMPUTE_FORCED_DOWN, place=service.host)
    else:
        yield Wait(f"nova-compute of {service.host} to report")


def _of_instance(server: Server, world: World, *, alive: bool) -> Iterator[Treatment]:
    own = [mark for mark in marks(server, world.user) if mark.host == world.service.host]
    if own and not any(mark.recorded or mark.since is Since.NOTHING for mark in own):
        yield Note(f"{server.label}: its mark was set by the project, and has no effect")
    elif own and own[0].kind is MarkKind.STOPPED:
        yield from _stopped(server, own[0], world, alive=alive)
    elif own:
        yield _moved(server, world)


def _stopped(server: Server, mark: Mark, world: World, *, alive: bool) -> Iterator[Treatment]:
    """What to do with an instance that gpustack marked before it stopped it."""
    host, requests = world.service.host, world.requests
    if server.task:
        yield Wait(f"{server.label}: {server.task}")
    elif server.status in _UNMARKABLE:
        yield _not_started(server, host, requests.get(f"start:{server.id}") or f"it is in {server.status}")
    elif server.host != host or server.status != "SHUTOFF":
        why = "it runs" if server.status == "ACTIVE" else "somebody has changed it since"
        yield _forget(server, world, why)
    elif server.locked or mark.since is not Since.OURS:
        yield finding(Code.INSTANCE_LEFT_STOPPED, place=f"{host} {server.label}")
        yield _forget(server, world, "somebody has changed it since")
    elif not alive:
        yield Wait(f"nova-compute of {host} to report")
    else:
        step = Start(server=server.id, name=server.name, why="gpustack stopped it")
        failed = requests.get(step.key)
        yield step if failed is None else _not_started(server, host, failed or "no reason was given")


def _not_started(server: Server, host: str, reason: str) -> Treatment:
    return finding(Code.INSTANCE_NOT_STARTED, place=f"{host} {server.label}", said=reason)


def _moved(server: Server, world: World) -> Treatment:
    """What to do with an instance that gpustack marked before it moved it."""
    if (current := under_way(server, world)) is not None:
        return current
    if server.status in _UNMARKABLE:
        return Note(f"{server.label}: it is in {server.status} on {server.host}, so its mark stays")
    return _forget(server, world, f"it is on {server.host}")


def _forget(server: Server, world: World, why: str) -> Treatment:
    """Remove the metadata of a host from an instance, unless this run has requested that already."""
    step = Forget(server=server.id, name=server.name, keys=keys_of(server, world.service.host), why=why)
    return None if step.key in world.requests else step
