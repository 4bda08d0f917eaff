"""Decide what to do with one instance of a host that will be rebooted.

An instance that does not run loses nothing. One that runs is moved or stopped according to its policy, if its state
permits it. If Nova's data leave open whether it runs, it blocks the reboot until the operator decides. Other states
block the reboot, because they are somebody's work in progress: rescued, locked, half moved, in ERROR while running,
paused (except for live migration).
"""

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Operation
from gpustack.cloud.marks import MarkKind, Since, mark_of, metadata_of
from gpustack.cloud.servers import Server
from gpustack.prepare.drain.model import InstanceChoices, Policy, World
from gpustack.prepare.drain.steps import ColdMigrate, Confirm, LiveMigrate, Stop

_RUNNING, _PAUSED, _SHUT_DOWN, _CRASHED, _SUSPENDED = 1, 3, 4, 6, 7
_IN_MEMORY = (_RUNNING, _PAUSED)
_OFF = (_SHUT_DOWN, _CRASHED, _SUSPENDED)
_AT_REST = {
    "SHUTOFF": "it is stopped",
    "SUSPENDED": "it is suspended, its memory is on the disk",
    "SHELVED": "it is shelved",
    "SHELVED_OFFLOADED": "it is shelved",
    "SOFT_DELETED": "it is deleted",
    "DELETED": "it is deleted",
}
_STEPS: dict[Policy, type[Stop] | type[ColdMigrate] | type[LiveMigrate]] = {
    Policy.STOP: Stop,
    Policy.COLD_MIGRATE: ColdMigrate,
    Policy.LIVE_MIGRATE: LiveMigrate,
}


class Wait(str):
    """A condition to wait for."""

    __slots__ = ()


class Note(str):
    """Why an instance or a host is left as it is."""

    __slots__ = ()


Treatment = Operation | Finding | Wait | Note | None
"""A step to carry out, the finding that blocks the reboot, a wait or a note; None if there is nothing to do."""


def judge(server: Server, world: World, choices: InstanceChoices) -> Treatment:
    """Decide what to do with an instance of the host."""
    if (current := under_way(server, world)) is not None:
        return current
    if server.status in _AT_REST or (server.status == "ERROR" and server.power not in _IN_MEMORY):
        return _at_rest(server, world.service.host, choices)
    return _running(server, world, choices)


def _at_rest(server: Server, host: str, choices: InstanceChoices) -> Treatment:
    # An instance in ERROR has the power state 0 if its domain was not found, but also if nova-compute stopped while it
    # started the domain. Statuses at rest are written after the domain has ended.
    certain = server.power in _OFF if server.status == "ERROR" else server.power not in _IN_MEMORY
    if certain:
        return Note(f"{server.label}: {_AT_REST.get(server.status, 'it is in ERROR, and does not run')}")
    if server.id in choices.not_running:
        return Note(f"{server.label}: it is {server.status}, and gpustack_not_running names it")
    place = f"{host} {server.label}"
    return finding(Code.INSTANCE_MAY_RUN, place=place, status=server.status, power=server.power)


def under_way(server: Server, world: World) -> Treatment:
    """Wait for the task of an instance, or confirm its cold migration by gpustack; None if there is neither."""
    if server.task:
        return Wait(f"{server.label}: {server.task}")
    mark = mark_of(server, MarkKind.MOVED, world.user)
    if server.status != "VERIFY_RESIZE" or mark is None or mark.since is not Since.OURS:
        return None
    step = Confirm(server=server.id, name=server.name, why="gpustack migrated it")
    return Wait(f"{server.label}: its migration is being confirmed") if step.key in world.requests else step


def _running(server: Server, world: World, choices: InstanceChoices) -> Treatment:
    place = f"{world.service.host} {server.label}"
    # The devices and device ports that the instance has on its host.
    kinds = world.ports.kinds.get(server.id, ())
    ports = (f"a port of type {kind}" for kind in kinds if kind not in choices.plain_ports)
    held = (*server.demands, *ports)
    policy = choices.device_guests if held else choices.guests
    devices = ", ".join(held)
    if policy is Policy.REFUSE:
        if held:
            return finding(Code.DEVICE_INSTANCE_ON_HOST, place=place, devices=devices)
        return finding(Code.INSTANCE_ON_HOST, place=place)
    if server.locked:
        return finding(Code.INSTANCE_LOCKED, place=place)
    allowed = ("ACTIVE", "PAUSED") if policy is Policy.LIVE_MIGRATE else ("ACTIVE",)
    if server.status not in allowed:
        return finding(Code.INSTANCE_STATE_UNFIT, place=place, status=server.status, policy=policy)
    has_vgpus = not choices.vgpus.isdisjoint(held)
    reason = choices.obstacle if has_vgpus else ""
    reason = reason or ("" if set(held) <= choices.live_migratable else "not known to support live migration")
    if policy is Policy.LIVE_MIGRATE and reason:
        return finding(Code.DEVICE_NOT_MIGRATABLE, place=place, devices=devices, reason=reason)
    if not world.service.up:
        return finding(Code.COMPUTE_DOWN, place=place, policy=policy)
    return _step(server, world.service.host, policy, devices, choices.doubt if has_vgpus else "")


def _step(server: Server, host: str, policy: Policy, devices: str, doubt: str) -> Operation:
    mark = metadata_of(MarkKind.STOPPED if policy is Policy.STOP else MarkKind.MOVED, host)
    why = "; ".join(filter(None, (f"it has {devices}" if devices else "", doubt)))
    alone = bool(devices) and policy is not Policy.STOP
    return _STEPS[policy](server=server.id, name=server.name, mark=mark, alone=alone, why=why)
