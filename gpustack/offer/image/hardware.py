"""The virtual machine that Nova builds for an image: machine type, firmware, Secure Boot, architecture, conflicts.

Sources: ``nova/virt/libvirt/driver.py`` (``_configure_guest_by_virt_type``, ``_check_secure_boot_support``),
``nova/virt/hardware.py`` (``_get_unique_flavor_image_meta``), ``nova/virt/libvirt/utils.py`` (``get_machine_type``).
"""

from collections.abc import Iterator

from gpustack.base.findings import Code
from gpustack.cloud.image import Image
from gpustack.offer.image.model import FIRMWARE, MACHINE_TYPE, SECURE_BOOT, FlavorNeeds, Problem
from gpustack.spec.extra_specs import AFFINITY, MAXPHYSADDR

_X86 = ("x86_64", "i686")
_UNIQUE = {
    "os:secure_boot": SECURE_BOOT,
    "hw:tpm_version": "hw_tpm_version",
    "hw:tpm_model": "hw_tpm_model",
    MAXPHYSADDR: "hw_maxphysaddr_mode",
    AFFINITY: "hw_pci_numa_affinity_policy",
}
"""Extra specs, and the properties with which Nova compares them: it refuses different values."""


def hardware_problems(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    """Yield the problems of the virtual machine."""
    architecture = image.architecture
    if architecture and needs.architectures and architecture not in needs.architectures:
        values = {"architecture": architecture, "hosts": " and ".join(sorted(needs.architectures))}
        yield Problem(code=Code.IMAGE_ARCHITECTURE, values=values)
    if is_x86(image, needs):
        machine, firmware = image.properties.get(MACHINE_TYPE), image.properties.get(FIRMWARE)
        if machine is None or not _is_q35(machine):
            state = f"{MACHINE_TYPE} is {machine}" if machine else f"{MACHINE_TYPE} is not set"
            yield Problem(code=Code.IMAGE_MACHINE_TYPE, values={"state": state})
        if firmware is None:
            yield Problem(code=Code.IMAGE_FIRMWARE_UNSET)
    yield from _secure_boot(image, needs)
    for key, name in _UNIQUE.items():
        flavor_value, image_value = needs.extra_specs.get(key), image.properties.get(name)
        if flavor_value and image_value and flavor_value != image_value:
            values = {"property": f"{name}={image_value}", "extra_spec": f"{key}={flavor_value}", "name": name}
            yield Problem(code=Code.IMAGE_CONFLICTS_WITH_FLAVOR, values=values)


def is_x86(image: Image, needs: FlavorNeeds) -> bool:
    """Whether instances run on x86 hosts, as far as known: the machine type virt is of Arm and RISC-V."""
    likely = "aarch64" if image.properties.get(MACHINE_TYPE, "").startswith("virt") else "x86_64"
    return (image.architecture or next(iter(sorted(needs.architectures)), likely)) in _X86


def secure_boot(image: Image, needs: FlavorNeeds) -> str | None:
    """The effective policy of Secure Boot: ``required``, ``optional``, ``disabled``, or None."""
    return needs.extra_specs.get("os:secure_boot") or image.properties.get(SECURE_BOOT)


def _secure_boot(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    if secure_boot(image, needs) != "required":
        return
    machine, firmware = image.properties.get(MACHINE_TYPE), image.properties.get(FIRMWARE)
    if firmware != "uefi" and is_x86(image, needs):
        state = f"{FIRMWARE}={firmware}" if firmware else f"{FIRMWARE} is not set"
        yield Problem(code=Code.SECURE_BOOT_WITHOUT_UEFI, values={"state": state})
    elif machine is not None and is_x86(image, needs) and not _is_q35(machine):
        yield Problem(code=Code.SECURE_BOOT_WITHOUT_UEFI, values={"state": f"{MACHINE_TYPE}={machine}"})


def _is_q35(machine: str) -> bool:
    return "q35" in machine
