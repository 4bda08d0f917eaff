"""An instance and its GPU as Nova, Placement and the hypervisors of all hosts know it, and its moves between hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import recipe
from ..errors import LabError
from ..machine import Machine
from ..topology import GPU_ID
from . import images, instances
from .compute import Compute
from .kept import FLAVOR, HOSTS, Cloud

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

MOVE_SECONDS = 900.0
FREE_SECONDS = 600.0
_HOSTDEV = re.compile(
    r"<source>\s*<address domain='0x(\w+)' bus='0x(\w+)' slot='0x(\w+)' function='0x(\w+)'/>\s*</source>"
)


@dataclass(frozen=True, kw_only=True)
class Where:
    """The hosts that have something of an instance, with the addresses of the functions that they keep for it."""

    rows: dict[str, list[str]]
    """Nova's rows in pci_devices."""
    domains: dict[str, list[str]]
    """libvirt's running domains."""
    defined: list[str]
    """Hosts with a domain, running or not."""
    allocations: list[str]
    """Resource providers with an allocation for it in Placement."""


@dataclass(frozen=True, kw_only=True)
class Mover:
    """Steps of the tests, on a cloud with two hosts."""

    cloud: Cloud
    api: Connection
    report: Callable[[str], None]

    def compute(self, name: str) -> Compute:
        """A host by its name."""
        return next(compute for compute in self.cloud.computes if compute.host.name == name)

    def boot(self, name: str, host: str) -> Server:
        """An instance with a GPU on this host, ACTIVE."""
        server = self.create(name, host)
        if server.status != "ACTIVE":
            raise self.compute(host).error(f"{name} is {server.status}: {server.fault}")
        return server

    def create(self, name: str, host: str) -> Server:
        """An instance on this host after its build: ACTIVE or ERROR."""
        image = self.api.image.find_image(images.NAME, ignore_missing=False).id
        return instances.create(self.api, self.compute(host), name, flavor=FLAVOR, image=image, host=host)

    def migrate(self, server: Server, host: str) -> None:
        """Begin a cold migration to this host."""
        self.api.compute.migrate_server(server.id, host=host)

    def enable(self, host: str, *, enabled: bool) -> None:
        """Enable or disable the host's nova-compute for the scheduler."""
        service = next(iter(self.api.compute.services(host=host, binary="nova-compute")))
        change = self.api.compute.enable_service if enabled else self.api.compute.disable_service
        change(service)

    def force_down(self, host: str, *, down: bool) -> None:
        """Inform Nova that the host is fenced, or that it is back."""
        self.api.compute.update_service_forced_down(None, host, "nova-compute", forced=down)

    def wait_for(self, server: Server, status: str, *, seconds: float = MOVE_SECONDS) -> Server:
        """Wait until the server has a status and no task."""

        def reached() -> Server | None:
            current = self.api.compute.get_server(server.id)
            return current if current.status == status and current.task_state is None else None

        return self._any().wait(f"{server.name} {status}", reached, seconds=seconds)

    def wait_for_migration(self, server: Server, status: str) -> None:
        """Wait until the instance's last migration has this status."""
        self._any().wait(
            f"migration of {server.name} {status}",
            lambda: (self.migrations(server)[-1:] == [status]) or None,
            seconds=MOVE_SECONDS,
        )

    def wait_for_task(self, server: Server, task: str) -> None:
        """Wait until the instance's row has this task."""
        self._any().wait(
            f"{server.name} {task}",
            lambda: (self.task(server) == task) or None,
            seconds=MOVE_SECONDS,
            pause=0.1,
        )

    def task(self, server: Server) -> str | None:
        """The instance's task in the database."""
        ((task,),) = self.cloud.plane.sql(f"SELECT task_state FROM nova_cell1.instances WHERE uuid = '{server.id}'")
        return None if task is None else str(task)

    def migrations(self, server: Server) -> list[str]:
        """The states of the instance's migrations, oldest first."""
        rows = self.cloud.plane.sql(
            f"SELECT status FROM nova_cell1.migrations WHERE instance_uuid = '{server.id}' ORDER BY id"
        )
        return [str(status) for (status,) in rows]

    def where(self, server: Server, hosts: Collection[str] = tuple(HOSTS)) -> Where:
        """What Nova's databases, Placement's and the hosts that run have of the instance now."""
        rows = self.cloud.plane.sql(
            "SELECT nodes.host, address FROM nova_cell1.pci_devices AS devices JOIN nova_cell1.compute_nodes AS nodes"
            f" ON nodes.id = compute_node_id WHERE devices.deleted = 0 AND instance_uuid = '{server.id}'"
            " ORDER BY address"
        )
        held: dict[str, list[str]] = {}
        for host, address in rows:
            held.setdefault(str(host), []).append(str(address))
        allocations = self.cloud.plane.sql(
            "SELECT DISTINCT name FROM placement.allocations AS held JOIN placement.resource_providers AS providers"
            f" ON providers.id = resource_provider_id WHERE consumer_id = '{server.id}' ORDER BY name"
        )
        machines = [compute.host for compute in self.cloud.computes if compute.host.name in hosts]
        return Where(
            rows=held,
            domains={
                host.name: found for host in machines if (found := running_functions(host, server.id)) is not None
            },
            defined=[host.name for host in machines if server.id in domains(host)],
            allocations=[str(name) for (name,) in allocations],
        )

    def assert_at(self, server: Server, host: str) -> None:
        """Everything of the instance is on this host, with one function for one row; nothing on another."""
        found = self.where(server)
        address = found.rows.get(host, [""])[0]
        expected = Where(rows={host: [address]}, domains={host: [address]}, defined=[host], allocations=[host])
        assert found == expected

    def assert_gone(self, server: Server) -> None:
        """Nothing of the instance is left."""
        assert self.where(server) == Where(rows={}, domains={}, defined=[], allocations=[])

    def delete(self, *servers: Server) -> None:
        """Delete servers; every GPU of all hosts is then free in Nova, and no domain is left."""
        for server in servers:
            instances.delete(self.api, self._any(), server)
        self.assert_free()

    def assert_free(self) -> None:
        """Every GPU of every host is free in Nova, bound to vfio-pci, and no domain is left."""
        for compute in self.cloud.computes:
            compute.wait(f"GPUs of {compute.host.name} free", compute.free, seconds=FREE_SECONDS)
            assert domains(compute.host) == []

    def _any(self) -> Compute:
        return self.cloud.computes[0]


def assert_gpu_on_console(mover: Mover, host: str, *servers: Server) -> None:
    """Each instance has started, and its guest has listed exactly one GPU."""
    for server in servers:
        instances.wait_for_console(mover.api, mover.compute(host), server)
        output = str(mover.api.compute.get_server_console_output(server.id)["output"])
        assert listed(output).count(GPU_ID) == 1, output


def listed(console: str) -> list[str]:
    """The ids of the functions that the guest has listed when it started last."""
    text = console.rpartition(recipe.GUEST_SPEAKS)[2].partition(recipe.GUEST_IS_DONE)[0]
    return re.findall(r"^\S+ [0-9a-f]{4}: ([0-9a-f]{4}:[0-9a-f]{4})", text, flags=re.MULTILINE)


def domains(host: Machine) -> list[str]:
    """The uuids of all domains of the host."""
    return host.ssh(["virsh", "list", "--all", "--uuid"]).split()


def running_functions(host: Machine, uuid: str) -> list[str] | None:
    """The addresses of the functions that the instance's running domain has; None without one."""
    if uuid not in host.ssh(["virsh", "list", "--uuid"]).split():
        return None
    found = _HOSTDEV.findall(host.ssh(["virsh", "dumpxml", uuid]))
    if not found:
        raise LabError(f"domain {uuid} on {host.name} has no PCI device")
    return [f"{domain}:{bus}:{slot}.{function}" for domain, bus, slot, function in found]
