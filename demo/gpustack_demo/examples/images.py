"""Initramfs images: "newc" cpio archives, an uncompressed one with the microcode before the compressed main one.

The format is the kernel's (``Documentation/driver-api/early-userspace/buffer-format.rst``).
"""

from __future__ import annotations

import gzip
import stat
from collections.abc import Mapping
from pathlib import PurePosixPath

_HEADER = 110
_DIRECTORY = stat.S_IFDIR | 0o755


def write_image(members: Mapping[str, tuple[int, bytes]], *, early: bytes = b"") -> bytes:
    """An image of ``members`` (path → permission bits and content), after the unchanged ``early``."""
    directories = sorted({str(p) for name in members for p in PurePosixPath(name).parents if str(p) != "."})
    entries = [(name, _DIRECTORY, b"") for name in directories]
    entries += [(name, stat.S_IFREG | mode, content) for name, (mode, content) in sorted(members.items())]
    return early + gzip.compress(archive(entries), compresslevel=1, mtime=0)


def archive(entries: list[tuple[str, int, bytes]]) -> bytes:
    out = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out) + bytes(-len(out) % 512)


def read_image(image: bytes) -> dict[str, tuple[int, bytes]]:
    """The regular files of an image that :func:`write_image` wrote (path → permission bits and content)."""
    start = 0
    files: dict[str, tuple[int, bytes]] = {}
    while start < len(image):
        if image[start] == 0:
            start += 1
        elif image.startswith(b"070701", start):
            start = _read_archive(image, start, files)
        else:
            _read_archive(gzip.decompress(image[start:]), 0, files)
            break
    return files


def _read_archive(data: bytes, start: int, files: dict[str, tuple[int, bytes]]) -> int:
    """Read one archive into ``files``; return its end position."""
    while True:
        fields = [int(data[start + 6 + 8 * n : start + 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name_at = start + _HEADER
        name = data[name_at : name_at + name_size - 1].decode()
        content_at = name_at + name_size + -(name_at + name_size) % 4
        start = content_at + size + -(content_at + size) % 4
        if name == "TRAILER!!!":
            return start
        if stat.S_ISREG(mode):
            files[name] = (stat.S_IMODE(mode), data[content_at : content_at + size])
