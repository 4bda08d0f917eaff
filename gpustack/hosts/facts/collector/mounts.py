"""Paths of files on the boot partition, and the file system and block device of a path."""

import re
from typing import Optional, Tuple

from .reader import HostRoot

BOOT_PARTITIONS = ("/boot", "/efi", "/boot/efi")


def boot_path(host: HostRoot, path: str) -> str:
    """Convert a boot loader's path to a path on the running host.

    The loader's paths are relative to the file system of the file: ``/vmlinuz-6.1`` on a boot partition,
    ``/@/boot/vmlinuz-6.1`` in a btrfs subvolume, ``($root)/boot/vmlinuz-6.1``.
    """
    plain = re.sub(r"^\([^)]*\)", "", path)
    inside = plain.find("/boot/")
    if inside >= 0:
        return plain[inside:]
    if not plain.startswith("/"):
        plain = "/" + plain
    for partition in BOOT_PARTITIONS:
        if host.exists(partition + plain):
            return partition + plain
    return plain


def mounted(host: HostRoot, path: str) -> Tuple[Optional[str], Optional[str]]:
    """The types of a path's file system and of its block device (``disk``, ``lvm``, ``raid``, ``crypt``, ``mapped``).

    See ``Documentation/filesystems/proc.rst``, 3.5, and ``Documentation/ABI/testing/sysfs-block-dm``.
    """
    table = host.text("/proc/self/mountinfo") or ""
    real = host.real(path)
    best = None
    for line in table.splitlines():
        mount, separator, right = line.partition(" - ")
        fields, kind = mount.split(), right.split()
        if not separator or len(fields) < 5 or not kind:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best[0])):  # a later mount hides an earlier one
            best = (point, kind[0], fields[2])
    if best is None:
        return None, None
    block = "/sys/dev/block/" + best[2]
    if not host.exists(block):
        return best[1], None
    if host.exists(block + "/md"):
        return best[1], "raid"
    mapped = host.value(block + "/dm/uuid")
    if mapped is None:
        return best[1], "mapped" if host.exists(block + "/dm") else "disk"
    for start, device in (("LVM-", "lvm"), ("CRYPT-", "crypt"), ("mpath-", "disk"), ("part", "disk")):
        if mapped.startswith(start):
            return best[1], device
    return best[1], "mapped"
