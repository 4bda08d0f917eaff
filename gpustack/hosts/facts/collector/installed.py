"""Kernel images that kernel-install(8) copied to a boot partition, and their source images."""

from typing import Dict, List, Optional, Tuple

from .limits import RELEASE
from .machine import os_release
from .mounts import BOOT_PARTITIONS
from .reader import HostRoot


def installed_images(host: HostRoot) -> Dict[str, Tuple[str, List[str]]]:
    """The images ``ENTRY-TOKEN/RELEASE/linux`` by release, each with the candidate paths of its initramfs."""
    images: Dict[str, Tuple[str, List[str]]] = {}
    for base in (f"{partition}/{token}" for partition in BOOT_PARTITIONS for token in entry_tokens(host)):
        for release in host.names(base):
            image = f"{base}/{release}/linux"
            is_kernel = RELEASE.fullmatch(release) and not release.startswith("0-rescue")
            if is_kernel and release not in images and host.exists(image):
                images[release] = (image, [f"{base}/{release}/{name}" for name in ("initrd", f"initrd.img-{release}")])
    return images


def entry_tokens(host: HostRoot) -> List[str]:
    """The possible names of the host's directory on the boot partition (kernel-install(8), entry token)."""
    identity = os_release(host)
    tokens = [host.word(path, RELEASE) for path in ("/etc/kernel/entry-token", "/etc/machine-id")]
    candidates = [*tokens, identity.get("IMAGE_ID"), identity.get("ID"), "Default"]
    return [token for token in dict.fromkeys(candidates) if token and RELEASE.fullmatch(token)]


def kernel_source(host: HostRoot, release: str) -> Optional[str]:
    """The image of the kernel's package, from which kernel-install(8) copies."""
    paths = (f"/lib/modules/{release}/vmlinuz", f"/boot/vmlinuz-{release}")
    return next((path for path in paths if host.exists(path)), None)


def unified_images(host: HostRoot) -> List[str]:
    """Unified kernel images: type 2 entries of the Boot Loader Specification (``*.uki`` too: loader.conf(5) of 262)."""
    places = [partition + "/EFI/Linux" for partition in BOOT_PARTITIONS]
    return [f"{path}/{name}" for path in places for name in host.names(path) if name.lower()[-4:] in (".efi", ".uki")]
