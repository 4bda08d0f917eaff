"""Boot and move servers on an embedded Nova, and wait for each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpustack.base.errors import CloudError
from gpustack_demo.embedded.nova import IMAGE

if TYPE_CHECKING:
    from openstack.compute.v2.flavor import Flavor
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

SECONDS = 120.0
_PAUSE = 0.1
"""Seconds between two queries of a server."""


def gpu_flavor(
    cloud: Connection, name: str, alias: str, count: int = 1, extra_specs: Mapping[str, str] = MappingProxyType({})
) -> Flavor:
    """A small flavor that requests ``count`` devices of ``alias``."""
    flavor = cloud.compute.create_flavor(name=name, ram=512, vcpus=2, disk=1)
    cloud.compute.create_flavor_extra_specs(flavor, {"pci_passthrough:alias": f"{alias}:{count}", **extra_specs})
    return flavor


def boot(
    cloud: Connection,
    name: str,
    flavor: Flavor,
    *,
    host: str | None = None,
    availability_zone: str | None = None,
    image: str = IMAGE,
    group: str | None = None,
    seconds: float = SECONDS,
) -> Server:
    """Boot a server without network and wait until its ``status`` is ACTIVE or ERROR.

    :param host: the only permitted host.
    :param image: the id of its image.
    :param group: the id of its server group.
    """
    hints = {"group": group} if group else None
    wanted = {"host": host, "availability_zone": availability_zone, "scheduler_hints": hints}
    placement = {name: value for name, value in wanted.items() if value}
    server = cloud.compute.create_server(name=name, flavor_id=flavor.id, image_id=image, networks="none", **placement)
    return settled(cloud, server, seconds=seconds)


def settled(cloud: Connection, server: Server, *, seconds: float = SECONDS) -> Server:
    """Wait until ``server`` has no task any more; return its final state."""
    return until(
        cloud, server, lambda current: current.task_state is None and current.status not in _MOVING, seconds=seconds
    )


_MOVING = frozenset({"BUILD", "RESIZE", "MIGRATING", "REVERT_RESIZE", "REBUILD"})


def until(cloud: Connection, server: Server, done: Callable[[Server], bool], *, seconds: float = SECONDS) -> Server:
    """Wait until ``done(server)``.

    :raises CloudError: when the time is over.
    """
    deadline = time.monotonic() + seconds
    while True:
        current = cloud.compute.get_server(server.id)
        if done(current):
            return current
        if time.monotonic() > deadline:
            state = f"{current.status}, task {current.task_state}"
            raise CloudError(
                f"server {current.name} did not settle within {seconds:.0f} s: {state}", where=current.compute_host
            )
        time.sleep(_PAUSE)


def delete(cloud: Connection, server: Server, *, seconds: float = SECONDS) -> None:
    """Delete ``server`` and wait until it is gone."""
    cloud.compute.delete_server(server.id, ignore_missing=True)
    cloud.compute.wait_for_delete(server, interval=0.2, wait=seconds)


def service_id(cloud: Connection, host: str) -> str:
    """The id of the nova-compute service of ``host``.

    :raises CloudError: when there is none.
    """
    for service in cloud.compute.services(host=host, binary="nova-compute"):
        return str(service.id)
    raise CloudError("there is no nova-compute service of this host", where=host)


def force_down(cloud: Connection, host: str, down: bool = True) -> None:
    """Set or clear ``forced_down`` of the nova-compute of ``host``."""
    cloud.compute.update_service_forced_down(service_id(cloud, host), host, "nova-compute", forced=down)
