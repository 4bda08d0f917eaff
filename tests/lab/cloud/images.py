"""The guest of the cloud lab as an image in Glance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import recipe
from ..guest import GUEST_ARGUMENTS
from ..image import Image
from .kernel import unpack

if TYPE_CHECKING:
    from openstack.connection import Connection

NAME = "guest"


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
        # The guest has no ACPI: a migration would wait a minute for its shutdown.
        "os_shutdown_timeout": "1",
        "os_command_line": f"{GUEST_ARGUMENTS} {recipe.GUEST_STAYS}",
    }
    return _create(api, NAME, disk, "raw", "bare", properties)


def _create(
    api: Connection, name: str, path: Path, disk_format: str, container_format: str, properties: dict[str, str]
) -> str:
    # openstacksdk does not close the file that it opens by name; its annotation of `data` has no files.
    with path.open("rb") as file:
        options: dict[str, Any] = {**properties, "disk_format": disk_format, "data": file}
        image = api.image.create_image(name=name, container_format=container_format, wait=True, **options)
        return str(image.id)
