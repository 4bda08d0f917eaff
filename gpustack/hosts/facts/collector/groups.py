"""IOMMU groups: their numbers, reserved regions and devices, and no-IOMMU groups."""

import re
from typing import Any, Dict, Iterable, List, Set

from .limits import TEXT_LIMIT
from .reader import HostRoot

GROUPS = "/sys/kernel/iommu_groups"
_REGION = re.compile(r"0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16}) ([a-z-]{1,32})")


def numbers(host: HostRoot) -> List[int]:
    """The numbers of all groups."""
    return sorted(int(name) for name in host.names(GROUPS) if name.isdecimal())


def without_iommu(host: HostRoot) -> Set[int]:
    """The groups that vfio created for devices without an IOMMU (``drivers/vfio``, ``vfio_noiommu_group_alloc``).

    Their devices have an ``iommu_group`` link as well; only the name of the group differs.
    """
    return {number for number in numbers(host) if host.value(f"{GROUPS}/{number}/name") == "vfio-noiommu"}


def groups(host: HostRoot, functions: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The groups of ``functions``: reserved regions, and the names of all their devices.

    The kernel lists a region as start, end and type (``Documentation/ABI/testing/sysfs-kernel-iommu_groups``).
    """
    wanted = {entry["iommu_group"] for entry in functions} - {None}
    records = []
    for number in sorted(wanted):
        lines = (host.text(f"{GROUPS}/{number}/reserved_regions", TEXT_LIMIT) or "").splitlines()
        regions = [match.groups() for match in map(_REGION.fullmatch, lines) if match]
        records.append(
            {
                "number": number,
                "reserved": [
                    {"start": int(start, 16), "end": int(end, 16), "type": kind} for start, end, kind in regions
                ],
                "devices": host.names(f"{GROUPS}/{number}/devices"),
            }
        )
    return records
