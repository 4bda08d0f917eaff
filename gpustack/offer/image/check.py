"""Compare images with the requirements of flavors: one finding for each cause, with all flavors that it concerns.

Sources for sizes: ``nova/compute/api.py`` (``_validate_flavor_image_nostatus``), ``nova/virt/libvirt/imagebackend.py``
(``FlavorDiskSmallerThanImage``). The room was measured: Debian 13 with compiler, headers and NVIDIA's open driver.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.base.columns import Column, codes
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import listed
from gpustack.cloud.image import Image
from gpustack.offer.image.guest import NVIDIA, guest_problems
from gpustack.offer.image.hardware import hardware_problems
from gpustack.offer.image.model import DRIVER, FIRMWARE, MACHINE_TYPE, FlavorNeeds, Pair, Problem

_SHOWN_FLAVORS = 4
_GIB = 1 << 30
ROOM = 3 * _GIB // 2
"""The disk that a build of the driver takes, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """An image with its flavors and its findings."""

    pair: Pair
    findings: tuple[Finding, ...]


def check(pairs: Sequence[Pair]) -> tuple[Checked, ...]:
    """Check each image for its flavors."""
    names = Counter(pair.image.name for pair in pairs)
    return tuple(
        Checked(pair=pair, findings=tuple(_findings(pair, unique=names[pair.image.name] == 1))) for pair in pairs
    )


def unmatched(names: Sequence[str]) -> list[Finding]:
    """Report names that mean no image of the cloud."""
    return [finding(Code.IMAGE_ABSENT, place=name) for name in names]


def _findings(pair: Pair, *, unique: bool) -> Iterator[Finding]:
    image = pair.image
    place = image.name if unique and image.name else f"{image.name or 'without a name'} ({image.id})"
    if image.status != "active":
        yield finding(Code.IMAGE_ABSENT, place=place)
        return
    flavors = by_key(
        ((problem.code, problem.severity, tuple(problem.values.items())), needs.name)
        for needs in pair.flavors
        for problem in (*hardware_problems(image, needs), *guest_problems(image, needs), *room_problems(image, needs))
    )
    for (code, severity, values), names in flavors.items():
        shown = listed(names, _SHOWN_FLAVORS)
        yield finding(code, place=place, severity=severity, **dict(values), flavors=shown, image=image.id)


COLUMNS: tuple[Column[Checked], ...] = (
    Column("image", lambda checked: checked.pair.image.name, "Image"),
    Column("id", lambda checked: checked.pair.image.id, "ID"),
    Column(
        "flavors",
        lambda checked: [needs.name for needs in checked.pair.flavors],
        "Flavors",
        lambda checked: listed([needs.name for needs in checked.pair.flavors], _SHOWN_FLAVORS),
    ),
    Column("os_type", lambda checked: checked.pair.image.os_type, "OS"),
    Column("machine_type", lambda checked: checked.pair.image.properties.get(MACHINE_TYPE), "Machine"),
    Column("firmware", lambda checked: checked.pair.image.properties.get(FIRMWARE), "Firmware"),
    Column(
        "findings",
        lambda checked: [finding.to_dict() for finding in checked.findings],
        "Findings",
        lambda checked: codes(checked.findings, "ok" if checked.pair.flavors else "no flavor"),
    ),
)
"""The columns of `gpustack image check`."""


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
    return NVIDIA in needs.vendors and DRIVER not in image.properties and not (needs.windows or image.resembles_windows)


def _gib(size: int) -> str:
    """Bytes in GiB, rounded up to one decimal."""
    tenths = -(-size * 10 // _GIB)
    return f"{tenths / 10:g}"
