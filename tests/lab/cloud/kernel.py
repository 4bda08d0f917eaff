"""The guest's kernel without its compression: unpacking it takes two thirds of the start of an emulated guest."""

from __future__ import annotations

import lzma
import struct
import subprocess
from pathlib import Path

from ..errors import LabError

# Linux, Documentation/arch/x86/boot.rst
_SECTOR = 512
_SETUP_SECTORS = 0x1F1
_PAYLOAD = 0x248
_ELF = b"\x7fELF"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SIZE = 4
"""The bytes behind the payload of zstd that have the length of the kernel."""


def unpack(packed: Path, unpacked: Path) -> None:
    """Write the kernel that a bzImage contains, which QEMU starts by the PVH protocol."""
    image = packed.read_bytes()
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = (image[_SETUP_SECTORS] + 1) * _SECTOR + offset
    payload = image[start : start + length]
    try:
        kernel = _of_zstd(payload) if payload.startswith(_ZSTD) else lzma.LZMADecompressor().decompress(payload)
    except (lzma.LZMAError, subprocess.CalledProcessError) as error:
        raise LabError(f"{packed}: a kernel compressed with xz or zstd is expected: {error}") from None
    if not kernel.startswith(_ELF):
        raise LabError(f"{packed}: the unpacked kernel is no ELF file")
    unpacked.write_bytes(kernel)


def _of_zstd(payload: bytes) -> bytes:
    return subprocess.run(["zstd", "-dcq"], input=payload[:-_SIZE], capture_output=True, check=True).stdout
