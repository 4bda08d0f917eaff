"""Carries plans out: looks, does what is left to do, and looks again, until there is nothing left or time is up.

Nothing is remembered but what this run has asked for. Whatever state an earlier run left is simply what the first look
finds, which is how a run that broke is taken up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpustack.cloudapi import Refused
from gpustack.codes import Code
from gpustack.findings import finding
from gpustack.maintenance.api import ServiceApi
from gpustack.maintenance.capacity import Room, lacking
from gpustack.maintenance.drain import plan_empty
from gpustack.maintenance.instances import key
from gpustack.maintenance.metadata import AFTER, MOVED, STOPPED, disabled_here, reason_of_failure
from gpustack.maintenance.model import InstanceChoices, Ports, Server, World
from gpustack.maintenance.plan import ServicePlan
from gpustack.maintenance.restore import plan_resume
from gpustack.maintenance.service_lookup import find_service
from gpustack.maintenance.steps import (
    ColdMigrate,
    Confirm,
    DisableService,
    EnableService,
    Forget,
    GuestStep,
    LiveMigrate,
)
from gpustack.operations import Operation
from gpustack.text import printable

_PAUSE = 2.0
"""Seconds between two looks."""
_MOVED_ON = (400, 403, 404, 409)
"""The API refuses what does not fit the guest any more, or what it has (403): the next look tells."""


@dataclass(kw_only=True)
class Target:
    """The host that is meant.

    :param host: the inventory's name.
    :param own_name: what the host calls itself.
    :param wanted: the service's host as the operator named it; empty to find it by the two names.
    :param others: the names that the operator has for all other hosts.
    """

    host: str
    own_name: str | None = None
    wanted: str = ""
    others: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Runner:
    """Brings one host out of service and back.

    :param seconds: how long guests and nova-compute may take.
    :param log: is called with each step before it is done.
    :ivar done: the steps that were carried out.
    """

    api: ServiceApi
    target: Target
    seconds: float
    log: Callable[[str], None] = lambda text: None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    done: list[Operation] = field(default_factory=list)
    _requests: dict[str, str] = field(default_factory=dict)
    _followed: set[str] = field(default_factory=set)
    _last_ports: Ports | None = None

    # -- out of service --------------------------------------------------------------------------------------

    def look(self, choices: InstanceChoices, why: str) -> ServicePlan:
        """What is left to do until the host can be rebooted. Changes nothing."""
        world, refusal = self._world()
        if refusal is not None:
            return refusal
        if world.service is not None and world.servers:
            world = replace(world, ports=self._ports(world.service.host))
        return plan_empty(self.target.host, world, choices, why=why, now=datetime.now(UTC), requests=self._requests)

    def _ports(self, host: str) -> Ports:
        """The ports of a host; if Neutron does not answer, its last answer."""
        ports = self.api.ports(host)
        if ports.unknown and self._last_ports is not None:
            return self._last_ports
        self._last_ports = ports
        return ports

    def disable(self, choices: InstanceChoices, why: str) -> ServicePlan:
        """Disable the service, when nothing stands against emptying the host; → the plan that was found."""
        plan = self.look(choices, why)
        if not plan.refused:
            for step in plan.steps:
                if isinstance(step, DisableService):
                    self._carry_out(step)
        return plan

    def empty(self, choices: InstanceChoices, why: str, *, disabled: bool) -> ServicePlan:
        """Take the host out of service; → the last plan: empty, or what stands against it.

        :param disabled: whether this run disabled the service. It is enabled again when the host is refused
            before any guest was touched.
        """
        end = self.clock() + self.seconds
        while True:
            plan = self.look(choices, why)
            touched = any(isinstance(step, GuestStep) for step in self.done)
            if not touched and not plan.refused and not any(isinstance(step, Confirm) for step in plan.steps):
                plan = self._with_room(plan)
            if plan.refused and touched:
                # What was begun comes to its end: a move that nobody confirms would keep devices on both hosts.
                begun = replace(plan, steps=tuple(step for step in plan.steps if isinstance(step, Confirm)))
                if not begun.todo or not self._go_on(begun, end):
                    return plan
                continue
            if plan.refused:
                if disabled:
                    self._enable_again()
                return plan
            if not plan.todo:
                return plan
            disabled = disabled or any(isinstance(step, DisableService) for step in plan.steps)
            if not self._go_on(plan, end):
                return self._out_of_time(plan)

    def _with_room(self, plan: ServicePlan) -> ServicePlan:
        """With what is known against moving its guests, as long as none was touched."""
        moving = [step for step in plan.steps if isinstance(step, ColdMigrate | LiveMigrate)]
        rooms: dict[tuple[tuple[str, int], ...], Room | None] = {}
        wanted = []
        for step in moving:
            needs = self.api.needs(step.server)
            kind = tuple(sorted(needs.items()))
            if kind and kind not in rooms:
                rooms[kind] = self.api.room(needs)
            room = rooms.get(kind)
            if room is not None:
                wanted.append((step, needs, room))
        findings = lacking(self.target.host, wanted)
        return replace(plan, findings=plan.findings + findings) if findings else plan

    def _enable_again(self) -> None:
        world, refusal = self._world()
        if refusal is None and world.service is not None and disabled_here(world.service):
            service = world.service
            self._carry_out(EnableService(service=service.id, host=service.host, why="no guest was touched"))

    # -- back in service -------------------------------------------------------------------------------------

    def pending(self) -> ServicePlan:
        """What an earlier run has left to be done once the host is verified. Changes nothing."""
        self._look_back()
        world, refusal = self._world()
        return refusal or plan_resume(self.target.host, world, alive=True)

    def resume(self) -> ServicePlan:
        """Bring the host back; → the last plan: empty, or what stands against it.

        A guest that can't be started does not keep the service from being enabled: the host was verified.
        """
        end = self.clock() + self.seconds
        first: str | None = None
        findings = []
        self._look_back()
        while True:
            world, refusal = self._world()
            if refusal is not None:
                return refusal
            if first is None:
                first = world.service.seen if world.service else ""
            alive = world.service is not None and world.service.up and world.service.seen != first
            plan = plan_resume(self.target.host, world, alive=alive, requests=self._requests)
            findings += [finding for finding in plan.findings if finding not in findings]
            if not plan.todo:
                return replace(plan, findings=tuple(findings))
            if not self._go_on(plan, end):
                return self._out_of_time(replace(plan, findings=tuple(findings)))

    def failed(self, why: str) -> ServicePlan:
        """Say in Nova why a host whose run has failed is out of service; → what is left to be done there."""
        pending = self.pending()
        world, refusal = self._world()
        service = world.service
        if refusal is None and service is not None and disabled_here(service):
            text = reason_of_failure(service.host, why, datetime.now(UTC))
            why_stated = "who looks at the service sees it"
            self._carry_out(DisableService(service=service.id, host=service.host, reason=text, why=why_stated))
        return pending

    # -- both ------------------------------------------------------------------------------------------------

    def _world(self) -> tuple[World, ServicePlan | None]:
        """What there is, or a plan that refuses because the host can't be told."""
        target = self.target
        services = self.api.services()
        service, problems = find_service(target.host, target.own_name, target.wanted, services, target.others)
        if problems:
            return World(service=None), ServicePlan(host=target.host, title="in Nova", findings=problems)
        if service is None:
            return World(service=None), None
        if not service.id:
            down = (finding(Code.CELL_DOWN, place=service.host),)
            return World(service=None), ServicePlan(host=target.host, title="in Nova", findings=down)
        servers = self.api.servers(service.host)
        return World(
            service=service,
            servers=tuple(self._with_actions(server) for server in servers),
            away=tuple(self._with_actions(server) for server in self._away(service.host, servers)),
            migrations=self.api.migrations(service.host),
            user=self.api.user(),
        ), None

    def _away(self, host: str, present: Iterable[Server]) -> Iterable[Server]:
        """Guests elsewhere that carry a mark of this host: half moved ones, and those that a look back has found."""
        known = {server_away.id for server_away in present}
        away = {server_away.id: server_away for server_away in self.api.unconfirmed()}
        for missing in self._followed - known - away.keys():
            server = self.api.server(missing)
            if server is not None:
                away[missing] = server
        for server_away in away.values():
            if server_away.id not in known and host in (
                server_away.metadata.get(STOPPED),
                server_away.metadata.get(MOVED),
            ):
                self._followed.add(server_away.id)
                yield server_away

    def _look_back(self) -> None:
        """Find what earlier runs have moved away."""
        world, _ = self._world()
        if world.service is not None:
            self._followed.update(self.api.left(world.service.host))

    def _with_actions(self, server: Server) -> Server:
        """With what was asked of it, which only marks are judged by; and with what became of what this run asked."""
        if not {STOPPED, MOVED} & set(server.metadata):
            return server
        actions = self.api.actions(server.id)
        for request, failure in self._requests.items():
            if request.endswith(f":{server.id}") and not failure and server.task is None and actions:
                self._requests[request] = self.api.why_failed(server.id, actions[0].request)
        return replace(server, actions=actions)

    def _go_on(self, plan: ServicePlan, end: float) -> bool:
        """Do what can be done now; → whether there is time to look again."""
        busy = bool(plan.waits) or any(isinstance(step, Confirm) for step in plan.steps)
        for step in plan.steps:
            alone = isinstance(step, GuestStep) and step.alone
            if alone and busy:
                continue  # the next looks have it again
            busy = busy or alone
            self._carry_out(step)
        if self.clock() >= end:
            return False
        if plan.waits or any(isinstance(step, GuestStep) and not isinstance(step, Forget) for step in plan.steps):
            self.sleep(_PAUSE)
        return True

    def _out_of_time(self, plan: ServicePlan) -> ServicePlan:
        late = tuple(
            finding(Code.TIMED_OUT, place=self.target.host, waits=wait, seconds=int(self.seconds))
            for wait in plan.waits or ("the steps above",)
        )
        return replace(plan, steps=(), waits=(), findings=plan.findings + late)

    def _carry_out(self, step: Operation) -> None:
        self.log(printable(f"{self.target.host}: {step.describe()}"))
        if isinstance(step, DisableService):
            self.api.disable(step.service, step.reason)
        elif isinstance(step, EnableService):
            self.api.enable(step.service)
        else:
            assert isinstance(step, GuestStep)  # noqa: S101 - there are no others
            self._on_guest(step)
        self.done.append(step)

    def _on_guest(self, step: GuestStep) -> None:
        """One step on a guest; what the API refuses because the guest has changed is for the next look to judge."""
        self._requests[key(step)] = ""
        self._followed.add(step.server)
        try:
            if isinstance(step, Forget):
                for mark in step.keys:
                    self.api.unmark(step.server, mark)
                return
            if step.mark is not None:
                newest = self.api.actions(step.server)
                after = newest[0].request if newest else ""
                self.api.mark(step.server, {**step.mark, AFTER: after})
            self.api.act(step.server, step.kind)
        except Refused as error:
            if error.status not in _MOVED_ON:
                raise
            self._requests[key(step)] = error.what
