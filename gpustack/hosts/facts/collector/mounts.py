"""Paths of files on the boot partition, and the file system and block device of a path."""

import re
from typing import Any, Dict, List, Optional

from .limits import CONTROL
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


def mount_of(host: HostRoot, path: str) -> Dict[str, Any]:
    """The mount that a path is on: mount point, file system, options, source, and the type of its block device.

    The type is ``disk``, ``lvm``, ``raid``, ``crypt`` or ``mapped``. See ``Documentation/filesystems/proc.rst``, 3.5,
    and ``Documentation/ABI/testing/sysfs-block-dm``. Without a mount, all values are ``None``.
    """
    table = host.text("/proc/self/mountinfo") or ""
    real = host.real(path)
    best: Dict[str, Any] = {"point": None, "filesystem": None, "options": [], "source": None, "device": None}
    number = None
    for line in table.splitlines():
        mount, separator, right = line.partition(" - ")
        fields, kind = mount.split(), right.split()
        if not separator or len(fields) < 6 or not kind:
            continue
        point = _decoded(fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (best["point"] is None or len(point) >= len(best["point"])):  # a later mount hides an earlier one
            options = [_decoded(option) for part in (fields[5], *kind[2:3]) for option in part.split(",")]
            best.update(point=point, filesystem=kind[0], options=sorted(set(options)))
            best["source"] = _decoded(kind[1]) if len(kind) > 1 else None
            number = fields[2]
    if number is not None:
        best["device"] = _device(host, "/sys/dev/block/" + number)
    if any(CONTROL.search(value) for value in [*best["options"], best["point"] or "", best["source"] or ""]):
        host.note("/proc/self/mountinfo", "unexpected content")
        best.update(point=None, options=[], source=None)
    return best


def _decoded(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), text)


def _device(host: HostRoot, block: str) -> Optional[str]:
    if not host.exists(block):
        return None
    if host.exists(block + "/md"):
        return "raid"
    mapped = host.value(block + "/dm/uuid")
    if mapped is None:
        return "mapped" if host.exists(block + "/dm") else "disk"
    for start, device in (("LVM-", "lvm"), ("CRYPT-", "crypt"), ("mpath-", "disk"), ("part", "disk")):
        if mapped.startswith(start):
            return device
    return "mapped"


def mounts(host: HostRoot) -> List[Dict[str, Any]]:
    """The mounts that decide whether changed files reach the next boot: ``/``, ``/etc``, ``/usr``, boot partitions.

    An overlay is followed by the mount of its upper directory, where changes are stored.
    """
    found = []
    for path in ("/", "/etc", "/usr", *BOOT_PARTITIONS):
        if path in BOOT_PARTITIONS[1:] and not host.exists(path):
            continue
        mount = mount_of(host, path)
        found.append({"path": path, **mount})
        upper = next((o[len("upperdir=") :] for o in mount["options"] if o.startswith("upperdir=")), None)
        if mount["filesystem"] == "overlay" and upper is not None and upper.startswith("/"):
            found.append({"path": path + " (upper directory)", **mount_of(host, upper)})
    return found
