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
ACS_CAPABILITY = 0x000D


def extended_capability(read: Reader, number: int) -> Optional[int]:
    """The offset of an extended capability; ``None`` if the function does not have it.

    Reads only the headers of the capability list, because some devices fail on reads of undefined registers.

    :param read: reads ``(offset, length)`` of the function's configuration space.
    :raises ValueError: if the list can't be read to its end: all ones, a loop, or no permission.
    """
    offset = EXTENDED_CONFIG
    visited: Set[int] = set()
    while EXTENDED_CONFIG <= offset <= CONFIG_SIZE - 4:
        if offset in visited:
            raise ValueError("its capability list is a loop")
        visited.add(offset)
        piece = read(offset, 4)
        header = int.from_bytes(piece, "little")
        if len(piece) < 4:
            raise ValueError("its extended configuration space can't be read without root rights")
        if header == 0xFFFFFFFF:
            raise ValueError("its configuration space reads as all ones")
        if header & 0xFFFF == number:
            return offset
        offset = header >> 20 & 0xFFC
    return None


def serial_number(read: Reader) -> Optional[str]:
    """The Device Serial Number (extended capability 3) in the format of ``lspci``.

    ``None`` if there is no number, or if it is all zeros or all ones.
    """
    try:
        offset = extended_capability(read, SERIAL_NUMBER_CAPABILITY)
    except ValueError:
        return None
    number = read(offset + 4, 8) if offset is not None else b""
    if len(number) != 8 or number in (bytes(8), b"\xff" * 8):
        return None
    return "-".join(f"{byte:02x}" for byte in reversed(number))


def config_serial(host: HostRoot, path: str) -> Optional[str]:
    """The serial number in a ``config`` file.

    With extended configuration space, the file has 4096 bytes. Without CAP_SYS_ADMIN, the kernel returns only the first
    64, and the serial number is unknown.
    """
    status = host.status(path)
    return host.pieces(path, serial_number) if status is not None and status.st_size == CONFIG_SIZE else None


def access_control(host: HostRoot, path: str, vendor: str, product: str) -> Dict[str, Any]:
    """The Access Control Services of a port (PCI Express Base Specification, 7.7.11), from its ``config`` file.

    ``capability`` and ``control`` are registers; ``capability`` is 0 without ACS. Both are ``None`` if they could not
    be read; ``unknown`` has the reason.
    """
    registers: Dict[str, Any] = {"capability": 0, "control": 0, "unknown": None}

    def parse(read: Reader) -> Optional[str]:
        try:
            offset = extended_capability(read, ACS_CAPABILITY)
            if offset is None:
                return "read"
            wide = is_sunrise_point(vendor, product)
            size = 4 if wide else 2
            pieces = (read(offset + 4, size), read(offset + 4 + size, size))
        except ValueError as error:
            registers.update(capability=None, control=None, unknown=str(error))
            return "read"
        if any(len(piece) < size or piece == b"\xff" * size for piece in pieces):
            registers.update(capability=None, control=None, unknown="its ACS registers can't be read")
        else:
            capability, control = (int.from_bytes(piece, "little") for piece in pieces)
            registers.update(capability=capability, control=control)
        return "read"

    status = host.status(path)
    if status is not None and status.st_size == CONFIG_SIZE and host.pieces(path, parse) is None:
        registers.update(capability=None, control=None, unknown="its configuration space can't be read")
    return registers


def is_sunrise_point(vendor: str, product: str) -> bool:
    """Whether a root port has ACS registers of four bytes (kernel: ``pci_quirk_intel_spt_pch_acs_match``)."""
    return vendor == "8086" and any(first <= product <= last for first, last in _WIDE_REGISTERS)


_WIDE_REGISTERS = (("a110", "a11f"), ("a167", "a16a"), ("a290", "a29f"), ("a2e7", "a2ee"), ("9d10", "9d1b"))
