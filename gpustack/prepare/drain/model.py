"""The data of Nova's API about a host that will be rebooted: its service, its instances, their migrations."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Policy(enum.StrEnum):
    """How to treat a running instance whose host will be rebooted."""

    REFUSE = "refuse"
    LIVE_MIGRATE = "live-migrate"
    COLD_MIGRATE = "cold-migrate"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class InstanceChoices:
    """The operator's choices.

    :param guests: the policy for instances without a device of the host.
    :param device_guests: the policy for instances with one.
    :param live_migratable: the aliases whose devices support live migration.
    :param plain_ports: port types (Neutron's ``vnic_type``) that do not count as devices.
    :param not_running: the ids of instances that do not run, although Nova's data leave that open.
    """

    guests: Policy = Policy.REFUSE
    device_guests: Policy = Policy.REFUSE
    live_migratable: frozenset[str] = frozenset()
    plain_ports: frozenset[str] = frozenset()
    not_running: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ComputeService:
    """A nova-compute service.

    :param id: the service's id; empty if its cell does not answer, and only the name is known.
    :param host: the host as Nova names it (``[DEFAULT] host``).
    :param up: whether it has reported lately and is not forced down.
    :param reason: the reason that was given when it was disabled.
    :param seen: the time of the last report as Nova returns it; it changes with each report.
    """

    id: str
    host: str
    enabled: bool
    up: bool
    reason: str = ""
    forced_down: bool = False
    seen: str = ""


@dataclass(frozen=True, kw_only=True)
class Action:
    """An instance action of Nova.

    :param name: the action, such as ``stop``.
    :param request: the request id.
    :param user: the id of the user who requested it.
    """

    name: str
    request: str
    user: str = ""


@dataclass(frozen=True, kw_only=True)
class Server:
    """An instance.

    :param status: as in the API (``ACTIVE``, ``VERIFY_RESIZE``); ``UNKNOWN`` if its cell does not answer.
    :param task: the task state; None without a task.
    :param power: Nova's power state: 0 unknown, 1 running, 3 paused, 4 shut down, 6 crashed, 7 suspended.
    :param devices: the parts of its flavor that need devices of the host: aliases (``k4200``), ``VGPU``, custom
        resource classes, accelerator profiles.
    :param ports: the types of its ports on devices (``direct``).
    :param metadata: metadata of users and of gpustack (:mod:`.metadata`).
    :param actions: the instance actions, newest first; None if not read.
    """

    id: str
    name: str
    host: str
    status: str
    task: str | None = None
    power: int = 1
    locked: bool = False
    devices: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[Action, ...] | None = None

    @property
    def label(self) -> str:
        """The name and the id, for messages."""
        return f"{self.name} ({self.id})"


@dataclass(frozen=True, kw_only=True)
class ServerMigration:
    """A migration under way.

    :param server: the id of the instance.
    :param kind: the migration type.
    :param idle: whether the record is unfinished while Nova does nothing with the instance.
    """

    server: str
    kind: str
    status: str
    source: str
    target: str
    idle: bool = False


_OVER = frozenset({"confirmed", "reverted", "failed", "completed", "cancelled", "done", "error", "finished"})
"""Statuses without work under way; a ``finished`` migration waits for confirmation."""


def is_unfinished(status: str) -> bool:
    """Whether Nova still works on a migration with this status."""
    return status.lower() not in _OVER


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports on devices of a host's instances.

    :param kinds: the types of ports on devices, by instance id.
    :param none: why there is nothing to ask; empty otherwise.
    :param unknown: why Neutron could not be asked; empty otherwise.
    """

    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    none: str = ""
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class World:
    """The state of one host in Nova.

    :param service: its nova-compute; None if Nova has none.
    :param servers: the instances on the host.
    :param away: instances on other hosts with metadata that names this host.
    :param migrations: unfinished migrations to or from the host.
    :param user: the id of the authenticated user; empty if unknown.
    :param ports: the ports on devices of its instances.
    """

    service: ComputeService | None
    servers: tuple[Server, ...] = ()
    away: tuple[Server, ...] = ()
    migrations: tuple[ServerMigration, ...] = ()
    user: str = ""
    ports: Ports = field(default_factory=Ports)
