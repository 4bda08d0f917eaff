"""Drivers that claim memory ranges of a function, from ``/proc/iomem``."""

import bisect
import re
from typing import Any, Dict, Iterable, List

from .limits import ADDRESS, CONTROL
from .reader import HostRoot


class Claims:
    """The named memory ranges of ``/proc/iomem``.

    A boot framebuffer (``BOOTFB``, ``efifb``, ``simpledrm``) in a card's memory prevents vfio-pci from reserving the
    region. The name of a range is that of its owner. Unprivileged readers see zeros for all addresses.
    """

    def __init__(self, iomem: str) -> None:
        ranges = []
        for line in iomem.splitlines():
            match = _IOMEM.fullmatch(line)
            if match and not CONTROL.search(match.group(3)):
                ranges.append((int(match.group(1), 16), int(match.group(2), 16), match.group(3)))
        self.hidden = bool(ranges) and all(end == 0 for _start, end, _name in ranges)
        # Ranges named after functions and buses are no claims: the kernel lists each BAR under its function's address.
        self._ranges = sorted(r for r in ranges if not _BOOK_KEEPING.match(r[2]))
        self._starts = [start for start, _end, _name in self._ranges]

    def within(self, bars: Iterable[Dict[str, Any]]) -> List[str]:
        """The names of the ranges inside the memory BARs of one function."""
        names: List[str] = []
        for window in bars:
            if window["io"] or not window["start"]:
                continue
            last = window["start"] + window["size"] - 1
            first = bisect.bisect_left(self._starts, window["start"])
            for index in range(first, bisect.bisect_right(self._starts, last)):
                end, name = self._ranges[index][1:]
                if end <= last and name not in names:
                    names.append(name)
        return names


_IOMEM = re.compile(r" *([0-9a-f]{1,16})-([0-9a-f]{1,16}) : (.*?)\s*")
_BOOK_KEEPING = re.compile(ADDRESS.pattern + r"|PCI (?:Bus|ECAM|MMCONFIG|CardBus)\b")


def claims(host: HostRoot) -> Claims:
    """The claims of ``/proc/iomem``, with a note when the kernel hides the addresses."""
    result = Claims(host.text("/proc/iomem") or "")
    if result.hidden:
        host.note("/proc/iomem", "the kernel hides addresses from unprivileged users")
    return result
