"""Sizes: whether Nova accepts the image for the flavor, and whether a driver can be built on the root disk.

Sources: ``nova/compute/api.py`` (``_validate_flavor_image_nostatus``), ``nova/virt/libvirt/imagebackend.py``
(``FlavorDiskSmallerThanImage``). The room was measured: Debian 13 with compiler, headers and NVIDIA's open driver.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpustack.base.codes import Code
from gpustack.base.findings import Severity
from gpustack.cloud.image import Image
from gpustack.offer.image.guest import NVIDIA
from gpustack.offer.image.model import DRIVER, FlavorNeeds, Problem

_GIB = 1 << 30
ROOM = 3 * _GIB // 2
"""The disk that a build of the driver takes, in bytes."""


def room_problems(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    """Yield the problems of sizes. A flavor without a root disk leaves the size to the volume."""
    if needs.ram is not None and needs.ram < image.min_ram:
        values = {"needed": f"{image.min_ram} MiB of RAM (min_ram)", "available": f"{needs.ram} MiB"}
        yield Problem(code=Code.IMAGE_TOO_LARGE, values=values)
    least = max(image.min_disk * _GIB, image.virtual_size, image.size)
    if needs.disk and needs.disk * _GIB < least:
        values = {"needed": f"{_gib(least)} GiB of root disk", "available": f"{needs.disk} GiB"}
        yield Problem(code=Code.IMAGE_TOO_LARGE, values=values)
    elif _builds_driver(image, needs) and image.virtual_size:
        disk = needs.disk * _GIB or least
        if disk - image.virtual_size < ROOM:
            yield Problem(
                code=Code.IMAGE_WITHOUT_ROOM,
                severity=None if needs.disk else Severity.INFO,
                values={
                    "disk": f"a root disk of {needs.disk} GiB" if needs.disk else f"a volume of {_gib(disk)} GiB",
                    "image_size": _gib(image.virtual_size),
                    "room": _gib(ROOM),
                    "least": str(-(-(image.virtual_size + ROOM) // _GIB)),
                },
            )


def _builds_driver(image: Image, needs: FlavorNeeds) -> bool:
    """Whether a driver may be built in the guest. Windows drivers are not built, and the kernel has those of others."""
    windows = needs.windows or image.resembles_windows
    return NVIDIA in needs.vendors and DRIVER not in image.properties and not windows


def _gib(size: int) -> str:
    """Bytes in GiB, rounded up to one decimal."""
    tenths = -(-size * 10 // _GIB)
    return f"{tenths / 10:g}"
