"""Plan how to take a host out of service: disable nova-compute, move or stop the instances that run."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from gpustack.base.errors import PlanError
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Operation
from gpustack.cloud.closed import MAINTENANCE, reasons_of
from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.cloud.servers import Server
from gpustack.prepare.drain.instances import Treatment, confirm, half_moved, judge, key
from gpustack.prepare.drain.model import InstanceChoices, World
from gpustack.prepare.drain.plan import Draft, ServicePlan
from gpustack.prepare.drain.steps import ColdMigrate, DisableService, GuestStep, LiveMigrate

TITLE = "before its reboot"
NOTHING: Mapping[str, str] = {}


def reason(why: str, now: datetime) -> str:
    """The text of the maintenance that closes a host."""
    return f"since {now:%Y-%m-%dT%H:%M:%SZ}: {' '.join(why.split())}"


def plan_empty(
    host: str,
    world: World,
    choices: InstanceChoices,
    *,
    why: str,
    now: datetime,
    requests: Mapping[str, str] = NOTHING,
) -> ServicePlan:
    """Plan the remaining steps until a host can be rebooted; the plan is empty if there are none.

    :param host: the inventory's name.
    :param why: the reason for the reboot.
    :param now: the time to write into the reason of the disabled service.
    :param requests: the steps that this run has requested (:func:`gpustack.prepare.drain.instances.key`), each with the
        reason of its failure; empty if there is none.
    """
    service = world.service
    if service is None:
        return ServicePlan(host=host, title=TITLE, notes=("Nova has no nova-compute of this host",))
    sorted_out = _Sorted(service.host, requests)
    sorted_out.disable(service, why, now)
    sorted_out.ports(world.ports)
    for unported in world.servers:
        server = replace(unported, ports=world.ports.kinds.get(unported.id, ()))
        sorted_out.take(judge(server, service.host, choices, user=world.user, up=service.up, requests=requests))
    for server in world.away:
        sorted_out.take(_away(server, world.user, requests))
    sorted_out.moves(world)
    return sorted_out.plan(host, TITLE)


def _away(server: Server, user: str, requests: Mapping[str, str]) -> Treatment:
    """Treat an instance that was moved away: its move must be over, because this host takes part in it."""
    if half_moved(server, user):
        return confirm(server, requests)
    return Treatment(wait=f"{server.label}: {server.task}" if server.task else "")


class _Sorted(Draft):
    def disable(self, service: Service, why: str, now: datetime) -> None:
        reasons = reasons_of(service)
        if MAINTENANCE not in reasons.own:
            text = reason(why, now)
            try:
                reasons.plus(MAINTENANCE, text).to_text()
            except PlanError as error:
                self.findings.append(finding(Code.REASONS_TOO_LONG, place=service.host, what=error.what))
            step = DisableService(service=service.id, host=service.host, reason=text, why="no new guests come then")
            self.steps.append(step)
        if reasons:
            self.notes.append(f"host is closed already: {reasons}")

    def ports(self, ports: Ports) -> None:
        if ports.none:
            self.notes.append(f"ports of guests: {ports.none}")
        if ports.unknown:
            self.findings.append(finding(Code.PORTS_UNKNOWN, place=self.service_host, said=ports.unknown))

    def take(self, verdict: Treatment) -> None:
        if verdict.step is not None and key(verdict.step) in self.requests:
            self.findings.append(_failed(verdict.step, self.service_host, self.requests[key(verdict.step)]))
        else:
            super().take(verdict)

    def moves(self, world: World) -> None:
        """Add migrations whose instance is not, or not yet, on the host."""
        busy = {server.id for server in (*world.servers, *world.away) if server.task}
        for move in world.migrations:
            if move.idle:
                self.findings.append(
                    finding(Code.MIGRATION_LEFT_BEHIND, place=f"{self.service_host} {move.server}", status=move.status)
                )
            elif move.server not in busy:
                route = f"{move.source or '?'} to {move.target or '?'}"
                self.waits.append(f"{move.server}: {move.kind} from {route}, {move.status}")


def _failed(step: Operation, host: str, reason: str) -> Finding:
    assert isinstance(step, GuestStep)  # noqa: S101 - judge() gives no others
    move = isinstance(step, ColdMigrate | LiveMigrate)
    code = Code.INSTANCE_NOT_MOVED if move else Code.INSTANCE_NOT_STOPPED
    return finding(
        code, place=f"{host} {step.name} ({step.server})", did=step.verb, said=reason or "no reason was given"
    )
