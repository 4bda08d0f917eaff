"""Instances of the cloud lab, through its API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import recipe
from .compute import Compute

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

SPAWN_SECONDS = 600.0
CONSOLE_SECONDS = 1500.0
DELETE_SECONDS = 300.0
CONSOLE_PAUSE = 15.0
"""Seconds between two reads of a console: each costs the emulated host some."""


def create(api: Connection, compute: Compute, name: str, *, flavor: str, image: str, host: str | None = None) -> Server:
    """A server as it is after its build, on this host if one is named: ACTIVE or ERROR."""
    flavor_id = api.compute.find_flavor(flavor, ignore_missing=False).id
    chosen = {"host": host} if host else {}
    server = api.compute.create_server(name=name, flavor_id=flavor_id, image_id=image, networks="none", **chosen)
    return built(api, compute, server)


def built(api: Connection, compute: Compute, server: Server) -> Server:
    """The server as it is after its build: ACTIVE or ERROR."""

    def answer() -> Server | None:
        current = api.compute.get_server(server.id)
        return None if current.status == "BUILD" else current

    return compute.wait(f"{server.name} built", answer, seconds=SPAWN_SECONDS)


def wait_for_console(api: Connection, compute: Compute, server: Server) -> None:
    """Wait until the guest has listed its PCI functions on its console."""

    def done() -> bool | None:
        output = str(api.compute.get_server_console_output(server.id)["output"])
        return recipe.GUEST_IS_DONE in output or None

    compute.wait(f"console of {server.name}", done, seconds=CONSOLE_SECONDS, pause=CONSOLE_PAUSE)


def delete(api: Connection, compute: Compute, server: Server) -> None:
    """Delete a server and wait until the API has forgotten it."""
    api.compute.delete_server(server.id)

    def gone() -> bool | None:
        return api.compute.find_server(server.id) is None or None

    compute.wait(f"{server.name} deleted", gone, seconds=DELETE_SECONDS)
