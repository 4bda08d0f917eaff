"""Plan how to take a host out of service: disable nova-compute, move or stop the instances that run."""

from collections.abc import Iterator
from datetime import datetime
from itertools import chain

from gpustack.base.errors import PlanError
from gpustack.base.findings import Code, finding
from gpustack.cloud.closed import MAINTENANCE, reasons_of
from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.prepare.drain.instances import Note, Treatment, Wait, judge, under_way
from gpustack.prepare.drain.model import InstanceChoices, World
from gpustack.prepare.drain.plan import ServicePlan, plan_of
from gpustack.prepare.drain.steps import ColdMigrate, DisableService, GuestStep, LiveMigrate

TITLE = "before its reboot"


def reason(why: str, now: datetime) -> str:
    """The text of the maintenance that closes a host."""
    return f"since {now:%Y-%m-%dT%H:%M:%SZ}: {' '.join(why.split())}"


def plan_empty(host: str, world: World, choices: InstanceChoices, *, why: str, now: datetime) -> ServicePlan:
    """Plan the remaining steps until a host can be rebooted; the plan is empty if there are none.

    :param host: the inventory's name.
    :param why: the reason for the reboot.
    :param now: the time to write into the reason of the disabled service.
    """
    service = world.service
    judged = [judge(server, world, choices) for server in world.servers]
    judged += [under_way(server, world) for server in world.away]  # the host takes part in their moves
    treated = (_unless_failed(treatment, world) for treatment in judged)
    parts = (_disable(service, why, now), _ports(world.ports, service.host), treated, _moves(world, service.host))
    return plan_of(host, TITLE, chain(*parts))


def _disable(service: Service, why: str, now: datetime) -> Iterator[Treatment]:
    reasons = reasons_of(service)
    if MAINTENANCE not in reasons.own:
        text = reason(why, now)
        try:
            reasons.plus(MAINTENANCE, text).to_text()
        except PlanError as error:
            yield finding(Code.REASONS_TOO_LONG, place=service.host, what=error.what)
        yield DisableService(service=service.id, host=service.host, reason=text, why="no new guests come then")
    if reasons:
        yield Note(f"host is closed already: {reasons}")


def _ports(ports: Ports, host: str) -> Iterator[Treatment]:
    if ports.none:
        yield Note(f"ports of guests: {ports.none}")
    if ports.unknown:
        yield finding(Code.PORTS_UNKNOWN, place=host, said=ports.unknown)


def _moves(world: World, host: str) -> Iterator[Treatment]:
    """Migrations whose instance is not, or not yet, on the host."""
    busy = {server.id for server in (*world.servers, *world.away) if server.task}
    for move in world.migrations:
        if move.idle:
            place = f"{host} {move.server}"
            yield finding(Code.MIGRATION_LEFT_BEHIND, place=place, status=move.status)
        elif move.server not in busy:
            route = f"{move.source or '?'} to {move.target or '?'}"
            yield Wait(f"{move.server}: {move.kind} from {route}, {move.status}")


def _unless_failed(treatment: Treatment, world: World) -> Treatment:
    """The treatment, or the finding about its step if this run has requested the step already."""
    if not isinstance(treatment, GuestStep) or treatment.key not in world.requests:
        return treatment
    move = isinstance(treatment, ColdMigrate | LiveMigrate)
    code = Code.INSTANCE_NOT_MOVED if move else Code.INSTANCE_NOT_STOPPED
    place = f"{world.service.host} {treatment.name} ({treatment.server})"
    said = world.requests[treatment.key] or "no reason was given"
    return finding(code, place=place, did=treatment.verb, said=said)
