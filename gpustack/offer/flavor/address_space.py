"""The GPUs of an x86 instance whose BARs its firmware can place: the laws of OVMF (UEFI) and SeaBIOS (BIOS).

``make lab TEST=bars`` measures both. OVMF has an eighth of the address space for 64-bit BARs, SeaBIOS all of it beyond
the RAM. In both, GPUs without room are dropped, one after another. Each GPU is behind a PCIe root port, whose window
is aligned to the largest BAR.

Source: edk2, ``OvmfPkg/Library/PlatformInitLib/MemDetect.c``; SeaBIOS, ``src/fw/pciinit.c``.
"""

from collections.abc import Sequence
from enum import Enum

DEFAULT_BITS = 40
"""Physical address bits of an instance by QEMU's default (``target/i386/cpu.h``)."""
OTHER_PORTS = 16
"""Root ports of an instance for its other devices, as libvirt makes them on q35, generously counted."""
GIB = 1 << 30
_MOST_OVMF_BITS = 46
_OVMF_CLASSIC_WINDOW = 32 * GIB
"""OVMF's window if it does not trust the address width, or if the RAM reaches into the eighth."""
_INTEL_BITS = (36, 39)
"""The widths below 41 bits that OVMF trusts on an Intel processor: 40 is QEMU's default, not a real width."""
_PORT_SHARE = 8
"""OVMF reserves at least 2**-8 of the eighth for each root port: 512 MiB with 40 bits."""
_HOLE = 2 * GIB
"""The addresses below 4 GiB that q35 leaves to devices: RAM continues above 4 GiB."""

Bars = Sequence[int]
"""The sizes of one GPU's 64-bit prefetchable BARs, in bytes."""


class Firmware(Enum):
    """The firmware of an instance; the value is its name in messages."""

    OVMF = "UEFI"
    SEABIOS = "BIOS"


def placed(
    firmware: Firmware,
    gpus: Sequence[Bars],
    *,
    ram: int,
    bits: int = DEFAULT_BITS,
    vendor: str | None = None,
    other_ports: int = OTHER_PORTS,
) -> int:
    """Return the number of GPUs that get all of their BARs.

    :param ram: in bytes.
    :param bits: the address width of the virtual processor.
    :param vendor: the processor's vendor by CPUID, such as ``GenuineIntel``.
    """
    if firmware is Firmware.SEABIOS:
        return _count(gpus, start=ram + _HOLE, limit=1 << bits, spare=0)
    window, dynamic = _ovmf_window(ram, bits, vendor)
    port = window >> _PORT_SHARE if dynamic else 0
    return _count(gpus, start=0, limit=window - (len(gpus) + other_ports) * port, spare=port)


def _ovmf_window(ram: int, bits: int, vendor: str | None) -> tuple[int, bool]:
    """Return OVMF's window, and whether it is the eighth."""
    trusted = bits > DEFAULT_BITS or vendor != "GenuineIntel" or bits in _INTEL_BITS
    space = 1 << min(bits, _MOST_OVMF_BITS)
    eighth = space >> 3
    end_of_ram = _aligned(ram + _HOLE, _OVMF_CLASSIC_WINDOW)
    if trusted and eighth > _OVMF_CLASSIC_WINDOW and end_of_ram + eighth < space:
        return eighth, True
    return _OVMF_CLASSIC_WINDOW, False


def _count(gpus: Sequence[Bars], *, start: int, limit: int, spare: int) -> int:
    """Count the GPUs that fit between two addresses, the largest first; each leaves ``spare``, its port's reserve."""
    count = 0
    for bars in sorted(gpus, key=lambda bars: (max(bars, default=0), sum(bars)), reverse=True):
        end = _aligned(start, max(bars)) + sum(bars) if bars else start
        if end <= limit + spare or not bars:
            count, start, limit = count + 1, end, limit + spare
    return count


def _aligned(address: int, alignment: int) -> int:
    return -(-address // alignment) * alignment
