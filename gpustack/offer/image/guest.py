"""The operating system in an image: Windows, signed modules, and kernels without graphics drivers.

Sources: ``nova/virt/libvirt/driver.py`` (``_set_features``, ``_set_clock``), ``nova/compute/api.py``
(``_inherit_properties_from_image``: ``os_type`` as Glance has it), Debian's ``linux-image-cloud-amd64``
(``CONFIG_DRM is not set``).
"""

import re
from collections.abc import Iterator

from gpustack.base.findings import Code, Severity
from gpustack.cloud.image import WINDOWS, Image
from gpustack.offer.image.hardware import secure_boot
from gpustack.offer.image.model import DRIVER, HIDE, SIGNED, FlavorNeeds, Problem

NVIDIA, _WITH_KERNEL_DRIVERS = "10de", {"1002": "AMD", "8086": "Intel"}
_HIDING_NEEDED_BEFORE = 465
_DEBIAN_CLOUD = re.compile(r"generic-?cloud", re.IGNORECASE)


def guest_problems(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    """Yield the problems of the operating system."""
    yield from _driver(image, needs)
    yield from _of_vgpus(image, needs)
    if needs.windows or image.resembles_windows:
        if image.os_type != WINDOWS:
            state = f"os_type is {image.os_type}" if image.os_type else "os_type is not set"
            yield Problem(code=Code.IMAGE_OS_TYPE, values={"state": state})
        accepts = (_branch(image) or 0) >= _HIDING_NEEDED_BEFORE  # the driver that the image declares
        if needs.hidden_from and not (needs.hides_hypervisor or image.is_true(HIDE) or accepts):
            yield Problem(code=Code.HYPERVISOR_VISIBLE, values={"models": " and ".join(needs.hidden_from)})
        return
    yield from _unsigned(image, needs)
    makers = sorted(name for vendor, name in _WITH_KERNEL_DRIVERS.items() if vendor in needs.vendors)
    if makers and _may_lack_drm(image):
        yield Problem(code=Code.KERNEL_WITHOUT_DRM, values={"makers": " and ".join(makers)})


def _driver(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    """Compare the branch of the declared driver with those of the cards."""
    driver, declared = image.properties.get(DRIVER, ""), _branch(image)
    if declared is None:
        return
    for card, branch in needs.last_branches.items():
        if declared > branch:
            values = {"driver": driver, "card": card, "branch": str(branch)}
            yield Problem(code=Code.GUEST_DRIVER_TOO_NEW, values=values)
    for card, branch in needs.first_branches.items():
        if declared < branch:
            values = {"driver": driver, "card": card, "branch": str(branch)}
            yield Problem(code=Code.IMAGE_DRIVER_TOO_OLD, values=values)


def _of_vgpus(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    """The licensed guest driver: it must not be newer than the host's."""
    if needs.vgpus:
        newest = max((int(text.partition(".")[0]) for text in needs.host_drivers), default=None)
        is_newer = newest is not None and (_branch(image) or 0) > newest
        values = {
            "models": ", ".join(needs.vgpus),
            "release": " or ".join(needs.host_drivers) or "unknown",
            "driver": image.properties.get(DRIVER) or "no driver",
        }
        severity = Severity.WARNING if is_newer else None
        yield Problem(code=Code.VGPU_IMAGE_DRIVER, severity=severity, values=values)


def _branch(image: Image) -> int | None:
    """The branch of the NVIDIA driver that the image declares: 580 for ``580.105.08``."""
    branch = image.properties.get(DRIVER, "").partition(".")[0].strip().removeprefix("R")
    return int(branch) if branch.isdecimal() else None


def _unsigned(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    """With Secure Boot, the kernel refuses modules that no key of the guest's firmware or shim has signed."""
    signed = image.is_true(SIGNED)
    if NVIDIA not in needs.vendors or signed or secure_boot(image, needs) not in ("required", "optional"):
        return
    if signed is None:
        yield Problem(code=Code.SECURE_BOOT_UNSIGNED, values={"state": "may be unsigned"})
    else:
        yield Problem(
            code=Code.SECURE_BOOT_UNSIGNED,
            severity=Severity.ERROR,
            values={"state": f"are unsigned ({SIGNED}={image.properties[SIGNED]})"},
        )


def _may_lack_drm(image: Image) -> bool:
    """Whether the name suggests Debian's cloud kernel. Images of other distributions are called alike."""
    distribution = image.properties.get("os_distro", "").lower()
    is_debian = distribution == "debian" or (not distribution and "debian" in image.name.lower())
    return is_debian and _DEBIAN_CLOUD.search(image.name) is not None
