"""BARs, configuration space and serial number of a PCI function."""

import re
from typing import Any, Dict, List, Optional, Set

from .limits import Reader
from .reader import HostRoot

# Resource flags (kernel: include/linux/ioport.h).
IORESOURCE_IO = 0x100
IORESOURCE_MEM = 0x200
IORESOURCE_PREFETCH = 0x2000
IORESOURCE_MEM_64 = 0x100000
_RESOURCE = re.compile(r"0x([0-9a-fA-F]{1,16}) 0x([0-9a-fA-F]{1,16}) 0x([0-9a-fA-F]{1,16})")


def bars(resource: str) -> List[Dict[str, Any]]:
    """The base address registers of a ``resource`` file (its first six lines: start, end, flags).

    A BAR without an assigned address keeps its size and starts at 0.
    """
    registers = []
    for index, line in enumerate(resource.splitlines()[:6]):
        match = _RESOURCE.fullmatch(line.strip())
        if not match:
            continue
        start, end, flags = (int(field, 16) for field in match.groups())
        if not flags & (IORESOURCE_IO | IORESOURCE_MEM) or end < start or end == 0:
            continue
        registers.append(
            {
                "index": index,
                "start": start,
                "size": end - start + 1,
                "prefetchable": bool(flags & IORESOURCE_PREFETCH),
                "bits": 64 if flags & IORESOURCE_MEM_64 else 32,
                "io": bool(flags & IORESOURCE_IO),
            }
        )
    return registers


HEADER_SIZE = 64


def responds(host: HostRoot, path: str) -> Optional[bool]:
    """Whether a device responds; ``None`` if its header could not be read.

    The configuration space of a device that does not respond reads as all ones, while sysfs caches its ids. A virtual
    function has all ones in its ids only, not in the complete header.
    """
    header = host.head(path, HEADER_SIZE)
    return header != b"\xff" * HEADER_SIZE if header is not None and len(header) == HEADER_SIZE else None


EXTENDED_CONFIG = 0x100
CONFIG_SIZE = 4096
SERIAL_NUMBER_CAPABILITY = 0x0003


def serial_number(read: Reader) -> Optional[str]:
    """The Device Serial Number (extended capability 3) in the format of ``lspci``.

    Reads only the headers of the capability list and the number, because some devices fail on reads of undefined
    registers. ``None`` if there is no number, or if it is all zeros or all ones.

    :param read: reads ``(offset, length)`` of the function's configuration space.
    """
    offset = EXTENDED_CONFIG
    visited: Set[int] = set()
    while EXTENDED_CONFIG <= offset <= CONFIG_SIZE - 4 and offset not in visited:
        visited.add(offset)
        header = int.from_bytes(read(offset, 4), "little")
        if header == 0xFFFFFFFF:
            return None
        if header & 0xFFFF == SERIAL_NUMBER_CAPABILITY:
            number = read(offset + 4, 8)
            if len(number) != 8 or number in (bytes(8), b"\xff" * 8):
                return None
            return "-".join(f"{byte:02x}" for byte in reversed(number))
        offset = header >> 20 & 0xFFC
    return None


def config_serial(host: HostRoot, path: str) -> Optional[str]:
    """The serial number in a ``config`` file.

    With extended configuration space, the file has 4096 bytes. Without CAP_SYS_ADMIN, the kernel returns only the first
    64, and the serial number is unknown.
    """
    status = host.status(path)
    return host.pieces(path, serial_number) if status is not None and status.st_size == CONFIG_SIZE else None
