"""Booting and moving servers on an embedded Nova, each step waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpustack.errors import CloudError
from gpustack_demo.embedded.nova import IMAGE

if TYPE_CHECKING:
    from openstack.compute.v2.flavor import Flavor
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

SECONDS = 60.0
_PAUSE = 0.1
"""Seconds between two looks at a server."""


def gpu_flavor(
    cloud: Connection, name: str, alias: str, count: int = 1, extra_specs: Mapping[str, str] = MappingProxyType({})
) -> Flavor:
    """A small flavor that asks for ``count`` devices of ``alias``."""
    flavor = cloud.compute.create_flavor(name=name, ram=512, vcpus=2, disk=1)
    cloud.compute.create_flavor_extra_specs(flavor, {"pci_passthrough:alias": f"{alias}:{count}", **extra_specs})
    return flavor


def boot(cloud: Connection, name: str, flavor: Flavor, *, host: str | None = None, seconds: float = SECONDS) -> Server:
    """Boot a server without network and wait until it is ACTIVE or ERROR: look at its ``status``.

    :param host: the only host it may go to.
    """
    placement = {"host": host} if host else {}
    server = cloud.compute.create_server(name=name, flavor_id=flavor.id, image_id=IMAGE, networks="none", **placement)
    return settled(cloud, server, seconds=seconds)


def settled(cloud: Connection, server: Server, *, seconds: float = SECONDS) -> Server:
    """Wait until nothing is being done to ``server`` any more; → how it is then."""
    return until(
        cloud, server, lambda current: current.task_state is None and current.status not in _MOVING, seconds=seconds
    )


_MOVING = frozenset({"BUILD", "RESIZE", "MIGRATING", "REVERT_RESIZE", "REBUILD"})


def until(cloud: Connection, server: Server, done: Callable[[Server], bool], *, seconds: float = SECONDS) -> Server:
    """Wait until ``done(server)``.

    :raises CloudError: when it does not come.
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

    :raises CloudError: when it has none (any more).
    """
    for service in cloud.compute.services(host=host, binary="nova-compute"):
        return str(service.id)
    raise CloudError("there is no nova-compute service of this host", where=host)


def force_down(cloud: Connection, host: str, down: bool = True) -> None:
    """Tell Nova that the nova-compute of ``host`` is down, or that it is not."""
    cloud.compute.update_service_forced_down(service_id(cloud, host), host, "nova-compute", forced=down)
