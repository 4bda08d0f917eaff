"""Carry plans out: read, do what can be done, and read again, until nothing is left or the time is up.

A run remembers only its own requests. It reads the state that an earlier run left, and so continues an interrupted run.
Before, the service of the host is found, and the room for its guests.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import same, short
from gpustack.base.operations import Operation
from gpustack.base.text import counted, listed, printable
from gpustack.cloud.closed import MAINTENANCE, reasons_of
from gpustack.cloud.compute import Service
from gpustack.cloud.marks import hosts_named, metadata_after
from gpustack.cloud.network import Ports
from gpustack.cloud.placement import Amounts, Room
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.servers import Server
from gpustack.cloud.session import Refused
from gpustack.nova_options import mediated
from gpustack.prepare.drain import drain, restore
from gpustack.prepare.drain.model import InstanceChoices, Policy, World
from gpustack.prepare.drain.plan import ServicePlan
from gpustack.prepare.drain.steps import (
    ColdMigrate,
    Confirm,
    DisableService,
    EnableService,
    Forget,
    GuestStep,
    LiveMigrate,
)

_PAUSE = 2.0
"""Seconds between two reads."""
_MOVED_ON = (400, 403, 404, 409)
"""Statuses of refusals after the instance has changed (403: it was locked); the next read shows its state."""


@dataclass(kw_only=True)
class Target:
    """The host to work on.

    :param host: the inventory's name.
    :param own_name: the host's own name, which nova-compute uses by default; None if unknown.
    :param wanted: the service's host as the operator named it; empty to find it by the two names.
    :param others: the operator's names of all other hosts.
    :param libvirt: the version of the host's libvirt; None if unknown.
    """

    host: str
    own_name: str | None = None
    wanted: str = ""
    others: tuple[str, ...] = ()
    libvirt: str | None = None


@dataclass(kw_only=True)
class Runner:
    """Takes one host out of service and restores it.

    :param seconds: the time limit for instances and nova-compute.
    :param log: is called with each step before it is carried out, and once with each condition that the run waits for.
    :param recorded: records a step on an instance, with the state before, around its requests.
    :ivar done: the steps that were carried out.
    """

    api: ServiceCloud
    target: Target
    seconds: float
    log: Callable[[str], None] = lambda text: None
    recorded: Callable[[GuestStep, str], AbstractContextManager[None]] = lambda step, before: nullcontext()
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    done: list[Operation] = field(default_factory=list)
    _requests: dict[str, str] = field(default_factory=dict)
    _states: dict[str, str] = field(default_factory=dict)
    _followed: set[str] = field(default_factory=set)
    _awaited: set[str] = field(default_factory=set)
    _last_ports: Ports | None = None

    # -- out of service --------------------------------------------------------------------------------------

    def look(self, choices: InstanceChoices, why: str) -> ServicePlan:
        """Return the remaining steps until the host can be rebooted. Changes nothing."""
        world = self._world(drain.TITLE)
        if isinstance(world, ServicePlan):
            return world
        if world.servers:
            host = world.service.host
            world = replace(world, ports=self._ports(host))
            if choices.device_guests is Policy.LIVE_MIGRATE and any(
                not choices.vgpus.isdisjoint(server.demands) for server in world.servers
            ):
                choices = self._with_versions(choices, host)
        return drain.plan_empty(self.target.host, world, choices, why=why, now=datetime.now(UTC))

    def _with_versions(self, choices: InstanceChoices, host: str) -> InstanceChoices:
        """Add what the versions of libvirt and QEMU mean for a live migration with mediated devices."""
        known = self.api.qemu_versions()
        others = [version for name, version in known.items() if name != host]
        own = {"libvirt": self.target.libvirt, "qemu": known.get(host)}
        old = [
            f"{program} {version} of {host} is older than {mediated.required(program)}"
            for program, version in own.items()
            if version and mediated.is_too_old(program, version)
        ]
        if others and all(mediated.is_too_old("qemu", version) for version in others):
            old.append(f"no other host has qemu {mediated.required('qemu')}")
        unknown = [f"{program} of {host}" for program, version in own.items() if not version]
        needs = f"needs libvirt {mediated.required('libvirt')} and qemu {mediated.required('qemu')} on both hosts"
        doubt = f"{needs}; unknown: {', '.join([*unknown, 'libvirt of the other hosts'])}"
        return replace(choices, obstacle="; ".join(old), doubt=doubt)

    def _ports(self, host: str) -> Ports:
        """The ports of a host; if Neutron does not answer, its last answer."""
        ports = self.api.ports(host)
        if ports.unknown and self._last_ports is not None:
            return self._last_ports
        self._last_ports = ports
        return ports

    def disable(self, choices: InstanceChoices, why: str) -> ServicePlan:
        """Disable the service if nothing blocks emptying the host; return the plan that was made before."""
        plan = self.look(choices, why)
        if not plan.refused:
            for step in plan.steps:
                if isinstance(step, DisableService):
                    self._carry_out(step)
        return plan

    def empty(self, choices: InstanceChoices, why: str, *, disabled: bool) -> ServicePlan:
        """Take the host out of service; return the last plan, which is empty or has the findings that block it.

        :param disabled: whether this run disabled the service. It is enabled again if the host is refused before any
            instance was touched.
        """
        end = self.clock() + self.seconds
        while True:
            plan = self.look(choices, why)
            touched = any(isinstance(step, GuestStep) for step in self.done)
            if not touched and not plan.refused and not any(isinstance(step, Confirm) for step in plan.steps):
                plan = self._with_room(plan)
            if plan.refused and touched:
                # Finish what was started: an unconfirmed migration keeps devices on both hosts.
                begun = replace(plan, steps=tuple(step for step in plan.steps if isinstance(step, Confirm)))
                if not begun.todo or not self._go_on(begun, end):
                    return plan
                continue
            if plan.refused:
                if disabled and (service := self._closed_service()):
                    self._carry_out(EnableService(service=service.id, host=service.host, why="no guest was touched"))
                return plan
            if not plan.todo:
                return plan
            disabled = disabled or any(isinstance(step, DisableService) for step in plan.steps)
            if not self._go_on(plan, end):
                return self._out_of_time(plan)

    def _with_room(self, plan: ServicePlan) -> ServicePlan:
        """Add the capacity findings to the plan, before any instance is touched."""
        moving = [step for step in plan.steps if isinstance(step, ColdMigrate | LiveMigrate)]
        rooms: dict[tuple[tuple[str, int], ...], Room | None] = {}
        wanted = []
        for step in moving:
            needs = self.api.needs(step.server)
            kind = tuple(sorted(needs.items()))
            if kind and kind not in rooms:
                rooms[kind] = self.api.room(needs)
            if (room := rooms.get(kind)) is not None:
                wanted.append((step, needs, room))
        findings = lacking(self.target.host, wanted)
        return replace(plan, findings=plan.findings + findings) if findings else plan

    # -- back in service -------------------------------------------------------------------------------------

    def pending(self) -> ServicePlan:
        """Return the steps that an earlier run left for after the verification of the host. Changes nothing."""
        self._look_back()
        world = self._world(restore.TITLE)
        return world if isinstance(world, ServicePlan) else restore.plan_resume(self.target.host, world, alive=True)

    def resume(self) -> ServicePlan:
        """Restore the host; return the last plan, which has the findings of all reads.

        If an instance cannot be started, the service is still enabled, because the host was verified.
        """
        end = self.clock() + self.seconds
        first: str | None = None
        findings = []
        self._look_back()
        while True:
            world = self._world(restore.TITLE)
            if isinstance(world, ServicePlan):
                return world
            if first is None:
                first = world.service.seen
            alive = world.service.up and world.service.seen != first
            plan = restore.plan_resume(self.target.host, world, alive=alive)
            findings += [finding for finding in plan.findings if finding not in findings]
            if not plan.todo:
                return replace(plan, findings=tuple(findings))
            if not self._go_on(plan, end):
                return self._out_of_time(replace(plan, findings=tuple(findings)))

    def failed(self, why: str) -> ServicePlan:
        """Write to Nova why the host of a failed run is out of service; return the remaining steps."""
        pending = self.pending()
        if service := self._closed_service():
            text = drain.reason(f"failed: {why}", datetime.now(UTC))
            why_stated = "who looks at the service sees it"
            self._carry_out(DisableService(service=service.id, host=service.host, reason=text, why=why_stated))
        return pending

    # -- both ------------------------------------------------------------------------------------------------

    def _world(self, title: str) -> World | ServicePlan:
        """Return the host's state; a plan without steps if its service does not exist or cannot be read.

        :param title: that of the plan for a host without a service.
        """
        host = self.target.host
        service, problems = find_service(self.target, self.api.services())
        if problems:
            return ServicePlan(host=host, title="in Nova", findings=problems)
        if service is None:
            return ServicePlan(host=host, title=title, notes=("Nova has no nova-compute of this host",))
        servers = self.api.servers(service.host)
        return World(
            service=service,
            servers=tuple(self._with_actions(server) for server in servers),
            away=tuple(self._with_actions(server) for server in self._away(service.host, servers)),
            migrations=self.api.migrations(service.host),
            user=self.api.user(),
            requests=self._requests,
        )

    def _closed_service(self) -> Service | None:
        """Return the host's service if it is closed for maintenance."""
        service, _ = find_service(self.target, self.api.services())
        return service if service is not None and MAINTENANCE in reasons_of(service).own else None

    def _away(self, host: str, present: Iterable[Server]) -> Iterable[Server]:
        """Yield instances on other hosts with metadata of this host.

        These are half-moved ones, and those that :meth:`_look_back` found.
        """
        known = {server_away.id for server_away in present}
        away = {server_away.id: server_away for server_away in self.api.unconfirmed()}
        for missing in self._followed - known - away.keys():
            if (server := self.api.server(missing)) is not None:
                away[missing] = server
        for server_away in away.values():
            if server_away.id not in known and host in hosts_named(server_away):
                self._followed.add(server_away.id)
                yield server_away

    def _look_back(self) -> None:
        """Find instances that earlier runs moved away."""
        service, _ = find_service(self.target, self.api.services())
        if service is not None:
            self._followed.update(self.api.left(service.host))

    def _with_actions(self, server: Server) -> Server:
        """Add the instance actions, only for instances with metadata; record failures of this run's requests."""
        self._states[server.id] = f"{server.status} on {server.host}"
        if not hosts_named(server):
            return server
        actions = self.api.actions(server.id)
        for request, failure in self._requests.items():
            if request.endswith(f":{server.id}") and not failure and not server.task and actions:
                self._requests[request] = self.api.why_failed(server.id, actions[0].request)
        return replace(server, actions=actions)

    def _go_on(self, plan: ServicePlan, end: float) -> bool:
        """Carry out the steps that are possible now; return whether there is time to read again."""
        busy = bool(plan.waits) or any(isinstance(step, Confirm) for step in plan.steps)
        for step in plan.steps:
            alone = isinstance(step, GuestStep) and step.alone
            if alone and busy:
                continue  # later reads plan it again
            busy = busy or alone
            self._carry_out(step)
        for wait in plan.waits:
            if wait not in self._awaited:
                self.log(printable(f"{self.target.host}: wait: {wait}"))
                self._awaited.add(wait)
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
            self.api.close(step.host, step.reason)
        elif isinstance(step, EnableService):
            self.api.reopen(step.host)
        else:
            assert isinstance(step, GuestStep)  # noqa: S101 - there are no others
            self._on_guest(step)
        self.done.append(step)

    def _on_guest(self, step: GuestStep) -> None:
        """Carry out one step on an instance. A refusal because it changed is left to the next read."""
        self._requests[step.key] = ""
        self._followed.add(step.server)
        try:
            with self.recorded(step, self._states.get(step.server, "")):
                if isinstance(step, Forget):
                    for mark in step.keys:
                        self.api.unmark(step.server, mark)
                    return
                if step.mark is not None:
                    newest = self.api.actions(step.server)
                    after = newest[0].request if newest else ""
                    self.api.mark(step.server, {**step.mark, **metadata_after(after)})
                self.api.act(step.server, step.kind)
        except Refused as error:
            if error.status not in _MOVED_ON:
                raise
            self._requests[step.key] = error.what


_OF_HOSTS = ("MEMORY_MB", "VCPU")
"""Resource classes that hosts do not share. Disk may be a shared pool, where a moved instance frees what it takes."""


def lacking(host: str, wanted: Sequence[tuple[GuestStep, Amounts, Room]]) -> tuple[Finding, ...]:
    """Return findings if an instance fits nowhere, or if the instances together need more than is free.

    Placement never allocates more than it has: if it has no room, Nova's scheduler refuses too. If it has room, the
    scheduler may still refuse because of devices, NUMA nodes or filters.

    :param host: the host as Nova names it.
    :param wanted: for each move, the instance's needs and the hosts where it fits.
    """
    if nowhere := [(move, needs) for move, needs, room in wanted if not room.free]:
        reason = "no other open host has that free"
        return tuple(_finding(f"{host} {move.name} ({move.server})", needs, reason) for move, needs in nowhere)
    if not all(room.whole for _, _, room in wanted):
        return ()
    together: Counter[str] = Counter()
    free: dict[str, Amounts] = {}
    for _, needs, room in wanted:
        together.update({name: amount for name, amount in needs.items() if name in _OF_HOSTS})
        free.update(room.free)
    total = {name: sum(free_amounts.get(name, 0) for free_amounts in free.values()) for name in together}
    if not (short := {name: amount for name, amount in together.items() if amount > total[name]}):
        return ()
    remaining = {name: total[name] for name in short}
    guests = f"{host} {counted(len(wanted), 'guest')}"
    return (_finding(guests, short, f"all others that are open have {_show_amounts(remaining)} free"),)


def _finding(place: str, needs: Amounts, room: str) -> Finding:
    return finding(Code.NO_CAPACITY, place=place, needs=_show_amounts(needs), room=room)


def _show_amounts(amounts: Amounts) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))


_SHOWN = 8


def find_service(target: Target, services: Sequence[Service]) -> tuple[Service | None, tuple[Finding, ...]]:
    """Return the service of a host; None if Nova has none, or if it is ambiguous.

    The host's own name alone never decides, because a host can report any name. It must have the inventory's short
    name, and no other host may claim the service.

    :returns: the service, and the findings that block its use.
    """
    host, own_name, wanted, others = target.host, target.own_name, target.wanted, target.others
    if wanted:
        chosen = [service for service in services if service.host == wanted]
        if len(chosen) != 1:
            known = listed(sorted(service.host for service in services), _SHOWN) or "none"
            return None, (finding(Code.COMPUTE_HOST_UNKNOWN, place=host, wanted=wanted, known=known),)
        return _usable(host, chosen[0], [other for other in others if same(other, wanted)])
    matching = [service for service in services if same(service.host, host) or same(service.host, own_name or host)]
    if len(matching) == 1:
        (service,) = matching
        if short(service.host) == short(host):
            return _usable(host, service, [other for other in others if _claims(other, service.host, host)])
        own = finding(Code.COMPUTE_HOST_BY_OWN_NAME, place=host, own_name=own_name, service=service.host)
        return None, (own,)
    heads = {short(name) for name in (host, own_name) if name}
    if not (alike := [service.host for service in matching or services if short(service.host) in heads]):
        return None, ()
    called = own_name if own_name and own_name != host else "the same"
    return None, (
        finding(Code.COMPUTE_HOST_AMBIGUOUS, place=host, own_name=called, alike=listed(sorted(alike), _SHOWN)),
    )


def _usable(host: str, service: Service, claimants: Sequence[str]) -> tuple[Service | None, tuple[Finding, ...]]:
    """The service, unless others claim it or its cell does not answer."""
    if claimants:
        others = listed(sorted(claimants), _SHOWN)
        return None, (finding(Code.COMPUTE_HOST_OF_OTHERS, place=host, service=service.host, others=others),)
    return (service, ()) if service.id else (None, (finding(Code.CELL_DOWN, place=service.host),))


def _claims(other: str, service: str, host: str) -> bool:
    """Whether another host may have a service; the full names are compared if the service has the inventory's name."""
    return same(other, service) if same(host, service) else short(other) == short(service)
