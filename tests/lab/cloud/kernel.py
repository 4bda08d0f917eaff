"""The guest's kernel without its compression: unpacking it takes two thirds of the start of an emulated guest."""

from __future__ import annotations

import lzma
import struct
from pathlib import Path

from ..errors import LabError

# Linux, Documentation/arch/x86/boot.rst
_SECTOR = 512
_SETUP_SECTORS = 0x1F1
_PAYLOAD = 0x248
_ELF = b"\x7fELF"


def unpack(packed: Path, unpacked: Path) -> None:
    """Write the kernel that a bzImage contains, which QEMU starts by the PVH protocol."""
    image = packed.read_bytes()
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = (image[_SETUP_SECTORS] + 1) * _SECTOR + offset
    try:
        kernel = lzma.LZMADecompressor().decompress(image[start : start + length])
    except lzma.LZMAError as error:
        raise LabError(f"{packed}: a kernel compressed with xz is expected: {error}") from None
    if not kernel.startswith(_ELF):
        raise LabError(f"{packed}: the unpacked kernel is no ELF file")
    unpacked.write_bytes(kernel)
