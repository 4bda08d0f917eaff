"""Images and instances of the cloud lab, through its API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import recipe
from ..guest import GUEST_ARGUMENTS
from ..image import Image
from .compute import Compute
from .kernel import unpack

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

SPAWN_SECONDS = 600.0
CONSOLE_SECONDS = 1500.0
DELETE_SECONDS = 300.0
CONSOLE_PAUSE = 15.0
"""Seconds between two reads of a console: each costs the emulated host some."""


def upload(api: Connection, image: Image, directory: Path) -> str:
    """The id of a bootable image in Glance: the lab's kernel and guest initramfs, and a small empty disk."""
    unpacked = directory / "vmlinux"
    unpack(image.kernel, unpacked)
    kernel = _create(api, "kernel", unpacked, "aki", "aki", {})
    initramfs = _create(api, "initramfs", image.guest_initramfs, "ari", "ari", {})
    disk = directory / "empty.raw"
    with disk.open("wb") as file:
        file.truncate(1 << 20)
    properties = {
        "kernel_id": kernel,
        "ramdisk_id": initramfs,
        "hw_machine_type": "pc",
        # The emulated display would have the ids of the lab's GPUs.
        "hw_video_model": "none",
        "os_command_line": f"{GUEST_ARGUMENTS} {recipe.GUEST_STAYS}",
    }
    return _create(api, "guest", disk, "raw", "bare", properties)


def _create(
    api: Connection, name: str, path: Path, disk_format: str, container_format: str, properties: dict[str, str]
) -> str:
    options: dict[str, Any] = {**properties, "disk_format": disk_format, "container_format": container_format}
    # openstacksdk does not close the file that it opens by name.
    with path.open("rb") as file:
        return str(api.image.create_image(name=name, data=file, wait=True, **options).id)


def create(api: Connection, compute: Compute, name: str, *, flavor: str, image: str) -> Server:
    """A server as it is after its build: ACTIVE or ERROR."""
    flavor_id = api.compute.find_flavor(flavor, ignore_missing=False).id
    server = api.compute.create_server(name=name, flavor_id=flavor_id, image_id=image, networks="none")

    def built() -> Server | None:
        current = api.compute.get_server(server.id)
        return None if current.status == "BUILD" else current

    return compute.wait(f"{name} built", built, seconds=SPAWN_SECONDS)


def active(api: Connection, compute: Compute, name: str, *, flavor: str, image: str) -> Server:
    """A server that must be ACTIVE."""
    server = create(api, compute, name, flavor=flavor, image=image)
    if server.status != "ACTIVE":
        raise compute.error(f"{name} is {server.status}: {server.fault}")
    return server


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
