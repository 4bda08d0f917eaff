"""A host that will be rebooted: its service, its instances, their migrations; and the operator's choices."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.cloud.servers import Migration, Server


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
    :param vgpus: the resource classes of mediated devices.
    :param obstacle: why those of the host can't be live-migrated; empty if nothing is known against it.
    :param doubt: what is unknown about that.
    :param not_running: the ids of instances that do not run, although Nova's data leave that open.
    """

    guests: Policy = Policy.REFUSE
    device_guests: Policy = Policy.REFUSE
    live_migratable: frozenset[str] = frozenset()
    plain_ports: frozenset[str] = frozenset()
    vgpus: frozenset[str] = frozenset({"VGPU"})
    obstacle: str = ""
    doubt: str = ""
    not_running: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class World:
    """The state of one host in Nova.

    :param service: its nova-compute.
    :param servers: the instances on the host.
    :param away: instances on other hosts with metadata that names this host.
    :param migrations: unfinished migrations to or from the host.
    :param user: the id of the authenticated user; empty if unknown.
    :param ports: the ports on devices of its instances.
    :param requests: the steps that this run has requested (:attr:`gpustack.prepare.drain.steps.GuestStep.key`), each
        with the reason of its failure; empty if there is none.
    """

    service: Service
    servers: tuple[Server, ...] = ()
    away: tuple[Server, ...] = ()
    migrations: tuple[Migration, ...] = ()
    user: str = ""
    ports: Ports = field(default_factory=Ports)
    requests: Mapping[str, str] = field(default_factory=dict)
