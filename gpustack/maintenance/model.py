"""What Nova's API tells of a host that is to be rebooted: its service, its guests, the moves that touch it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Policy(enum.StrEnum):
    """What becomes of a guest whose host is rebooted."""

    REFUSE = "refuse"
    LIVE_MIGRATE = "live-migrate"
    COLD_MIGRATE = "cold-migrate"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class InstanceChoices:
    """The operator's choices.

    :param guests: for guests without a device of the host.
    :param device_guests: for guests with one.
    :param live_migratable: the aliases whose devices can migrate live.
    :param plain_ports: the types of ports (Neutron's ``vnic_type``) that count as no device.
    """

    guests: Policy = Policy.REFUSE
    device_guests: Policy = Policy.REFUSE
    live_migratable: frozenset[str] = frozenset()
    plain_ports: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ComputeService:
    """A nova-compute service.

    :param id: empty when its cell does not answer: nothing but its name is known then.
    :param host: the host as Nova calls it (``[DEFAULT] host``).
    :param up: whether it has reported lately, and nobody has forced it down.
    :param reason: why it is disabled, as whoever disabled it wrote.
    :param seen: when it last reported, in Nova's words; a new report changes it.
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
    """Something that was asked of a guest (an instance action of Nova).

    :param user: the id of whoever asked.
    """

    name: str
    request: str
    user: str = ""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A guest.

    :param status: as the API has it (``ACTIVE``, ``VERIFY_RESIZE``), ``UNKNOWN`` when its cell does not answer.
    :param task: what Nova is doing with it, None for nothing.
    :param power: Nova's number of the power state: 1 running, 3 paused, 4 shut down, 7 suspended.
    :param devices: what of its flavor ties it to devices of the host: the aliases (``k4200``), or ``VGPU``.
    :param ports: the types of its ports that are a device's, not the hypervisor's (``direct``).
    :param metadata: what users wrote on it, and :mod:`.marks`.
    :param actions: what was asked of it, newest first; None when nobody looked.
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
        """The name and the id, as messages have it."""
        return f"{self.name} ({self.id})"


@dataclass(frozen=True, kw_only=True)
class ServerMigration:
    """A move under way.

    :param idle: whether Nova is doing nothing with its guest, though its record says otherwise: it was left behind.
    """

    server: str
    kind: str
    status: str
    source: str
    target: str
    idle: bool = False


@dataclass(frozen=True, kw_only=True)
class Ports:
    """What Neutron tells of a host.

    :param kinds: the types of ports that are a device's, by the guest's id.
    :param none: why there is nothing to ask; empty when there is.
    :param unknown: why Neutron could not be asked; empty when it was.
    """

    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    none: str = ""
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class World:
    """What Nova tells of one host.

    :param service: its nova-compute; None when Nova has none of it.
    :param servers: the guests that are there.
    :param away: guests on other hosts that carry a mark of this one.
    :param migrations: moves to or from it that are not over.
    :param user: the id of the user who asks; empty when it can't be known.
    :param ports: what Neutron tells of it.
    """

    service: ComputeService | None
    servers: tuple[Server, ...] = ()
    away: tuple[Server, ...] = ()
    migrations: tuple[ServerMigration, ...] = ()
    user: str = ""
    ports: Ports = field(default_factory=Ports)
