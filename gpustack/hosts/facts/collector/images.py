"""The installed kernels, their initramfs images and modules."""

import re
import stat
from typing import Dict, Iterable, List, Optional, Tuple

from .aliases import normalised
from .installed import installed_images
from .limits import RELEASE
from .reader import HostRoot


def initramfs_of(host: HostRoot, candidates: Iterable[str]) -> Tuple[Optional[str], Optional[int]]:
    """The first initramfs image that exists, and its mtime in ns."""
    for path in candidates:
        status = host.status(path)
        if status is not None and stat.S_ISREG(status.st_mode):
            return path, status.st_mtime_ns
    return None, None


def kernel_images(host: HostRoot, loader: Optional[str] = None) -> Dict[str, Tuple[str, List[str]]]:
    """The kernel images by release, each with the candidate paths of its initramfs.

    ``/boot/vmlinuz-RELEASE`` and ``vmlinux-RELEASE`` (Debian, Ubuntu, Red Hat, SUSE), the same below
    ``/boot/ostree/*`` (image mode), ``/boot/vmlinuz-PKGBASE`` (Arch Linux, where ``pkgbase`` in the module directory
    names the package), and ``ENTRY-TOKEN/RELEASE/linux`` on a boot partition (kernel-install(8)). Rescue images are
    left out. systemd-boot boots images on the boot partition: if there are any, only those are returned.
    """
    images: Dict[str, Tuple[str, List[str]]] = {}
    packages = {}
    for release in host.names("/lib/modules"):
        package = host.word(f"/lib/modules/{release}/pkgbase", RELEASE)
        if package and RELEASE.fullmatch(release):
            packages[package] = release
    ostree = ["/boot/ostree/" + name for name in host.names("/boot/ostree")]
    for directory in ["/boot", *ostree]:
        for name in host.names(directory):
            match = re.fullmatch(r"vmlinu[xz]-(.+)", name)
            if not match or _NO_KERNEL.search(name) or not RELEASE.fullmatch(match.group(1)):
                continue
            version = match.group(1)
            names = (
                f"initrd.img-{version}",
                f"initramfs-{version}.img",
                f"initrd-{version}",
                f"initramfs-{version}",
                f"initrd-{version}.img",
            )
            paths = [f"{directory}/{initramfs}" for initramfs in names]
            images[packages.get(version, version)] = (f"{directory}/{name}", paths)
    copied = installed_images(host)
    return copied if copied and loader == "systemd-boot" else {**copied, **images}


_NO_KERNEL = re.compile(r"-0-rescue|\.(?:old|bak|gz|sig|hmac|signed|dpkg-\w+|rpm\w+)$")
_VARIANT = re.compile(rb"/([A-Za-z0-9_-]*vfio[_-]pci[A-Za-z0-9_-]*)\.ko\b")


def kernel_modules(host: HostRoot, release: str, wanted: Iterable[str]) -> Dict[str, str]:
    """The ``wanted`` modules and vfio drivers of a kernel: ``module`` (modules.dep), ``builtin`` (modules.builtin)."""
    kinds = {}
    for listing, kind in (("modules.dep", "module"), ("modules.builtin", "builtin")):
        content = host.data(f"/lib/modules/{release}/{listing}") or b""
        for name in wanted:
            if any(f"/{spelt}.ko".encode() in content for spelt in (name, name.replace("_", "-"))):
                kinds[name] = kind
        for match in set(_VARIANT.findall(content)):
            kinds[normalised(match.decode("ascii"))] = kind
    return kinds
