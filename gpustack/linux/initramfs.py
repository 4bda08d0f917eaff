#!/usr/bin/env python3
"""Read what an initramfs image really contains: kernel modules, their configuration, early scripts.

One file, standard library only, Python 3.6 or later, so that it runs on a host's own Python::

    python3 initramfs.py /boot/initrd.img-6.1.0-37-amd64

An image is one or more cpio archives in the "newc" format, one after the other, each plain or compressed (Linux
kernel: ``Documentation/driver-api/early-userspace/buffer-format.rst``): microcode comes first and plain, then the
rest. gzip, bzip2, xz and lzma are read by the standard library, zstd too where it has it (Python 3.14); otherwise
zstd, lz4 and lzo need the host's own ``zstd``, ``lz4`` or ``lzop``.

Nothing is unpacked to disk. An image is not trusted: sizes are checked before anything is read, contents are
streamed, and all that is kept stays below fixed limits.
"""

import bz2
import fnmatch
import importlib
import json
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import zlib
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

CHUNK = 1 << 18
CONTENT_LIMIT = 64 * 1024  # of one file that is kept
KEPT_LIMIT = 16 << 20  # of all contents that are kept
NAME_LIMIT = 4096  # PATH_MAX: the kernel skips longer names (init/initramfs.c)
ENTRY_LIMIT = 1000 * 1000
MODULE_LIMIT = 50 * 1000
TOTAL_LIMIT = 4 << 30  # of an archive, uncompressed
DICTIONARY_LIMIT = 128 << 20  # memory for xz and lzma; xz -9 takes 65 MiB

# fnmatch patterns for paths without their leading slash; * matches slashes too. initramfs-tools' ORDER files name the
# scripts that run; conf/modules the modules that it loads; dracut keeps kernel arguments in etc/cmdline.d.
WANTED = (
    "etc/modprobe.d/*",
    "etc/modules-load.d/*",
    "etc/modules",
    "conf/modules",
    "etc/cmdline.d/*",
    "scripts/*/ORDER",
    "*gpustack*",
)


class InitramfsError(ValueError):
    """An image that can't be read: damaged, truncated or out of bounds."""


class MissingToolError(InitramfsError):
    """The program that decompresses this image is not installed."""


# --- Bytes, plain or compressed --------------------------------------------------------------------------------


class Stream:
    """Bytes that a function supplies piece by piece (``b""`` at the end), with some look-ahead."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._buffer = b""
        self._start = 0
        self.position = 0

    def peek(self, length: int) -> bytes:
        """The next bytes, at most ``length``, unconsumed."""
        while len(self._buffer) - self._start < length:
            piece = self._more()
            if not piece:
                break
            self._buffer = self._buffer[self._start :] + piece
            self._start = 0
        return self._buffer[self._start : self._start + length]

    def read(self, length: int) -> bytes:
        """Exactly ``length`` bytes; callers bound the length.

        :raises InitramfsError: when the data ends before, or there is too much of it.
        """
        data = self.peek(length)
        if len(data) < length:
            raise InitramfsError(f"the image is truncated: an archive ends after {self.position} bytes")
        self._start += length
        self.position += length
        if self.position > TOTAL_LIMIT:
            raise InitramfsError(f"an archive unpacks to more than {TOTAL_LIMIT} bytes")
        return data

    def skip(self, length: int) -> None:
        """Pass over ``length`` bytes."""
        while length > 0:
            length -= len(self.read(min(length, CHUNK)))

    def skip_zeros(self) -> None:
        """Pass over the zeros that fill the gap to the next archive."""
        while True:
            data = self.peek(CHUNK)
            left = data.lstrip(b"\0")
            self.read(len(data) - len(left))
            if left or not data:
                return


class _Zlib:
    """zlib's decompressor with the interface of lzma's and bz2's."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)  # 31: a gzip header

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def _zstd() -> Any:  # noqa: ANN401 lzma's interface, in Python 3.14 and later
    return importlib.import_module("compression.zstd").ZstdDecompressor()


class Format(NamedTuple):
    """How a compression is recognised, and what undoes it."""

    name: str
    magic: bytes
    decompressor: Optional[Callable[[], Any]] = None
    tool: str = ""


# The magic numbers of lib/decompress.c; lz4 has a legacy and a frame format, of which the kernel reads the first.
FORMATS = (
    Format("gzip", b"\x1f\x8b", _Zlib),
    Format("bzip2", b"BZh", bz2.BZ2Decompressor),
    Format("xz", b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, DICTIONARY_LIMIT)),
    Format("lzma", b"\x5d\x00\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, DICTIONARY_LIMIT)),
    Format("zstd", b"\x28\xb5\x2f\xfd", _zstd, "zstd"),
    Format("lz4", b"\x02\x21\x4c\x18", None, "lz4"),
    Format("lz4", b"\x04\x22\x4d\x18", None, "lz4"),
    Format("lzo", b"\x89LZO\0\r\n\x1a\n", None, "lzop"),
)


class Library:
    """Decompresses one part of a file with the standard library; ``end`` is then where the next part starts."""

    def __init__(self, file: BinaryIO, start: int, found: Format) -> None:
        assert found.decompressor is not None  # noqa: S101 the caller's choice
        self._file = file
        self._format = found
        self._inner = found.decompressor()
        self._fed = start
        file.seek(start)

    @property
    def end(self) -> int:
        """The offset after the compressed data."""
        return self._fed - len(self._inner.unused_data)

    def more(self) -> bytes:
        """The next piece."""
        while True:
            if self._inner.eof and not self._restart():
                return b""
            data = b""
            if self._inner.needs_input:
                data = self._file.read(CHUNK)
                self._fed += len(data)
                if not data:
                    raise InitramfsError(f"the image is truncated: its {self._format.name} data ends early")
            try:
                piece = self._inner.decompress(data, CHUNK)
            except Exception as error:  # each library has an error class of its own
                raise InitramfsError(f"its {self._format.name} data is damaged: {error}") from error
            if piece:
                return bytes(piece)

    def _restart(self) -> bool:
        """Go on with a second member right behind the first, as parallel compressors write them."""
        self._file.seek(self.end)
        again = self._file.read(len(self._format.magic)) == self._format.magic
        if again:
            self._fed = self.end
            assert self._format.decompressor is not None  # noqa: S101
            self._inner = self._format.decompressor()
        self._file.seek(self._fed)
        return again


class Tool:
    """Decompresses the rest of a file with a program of the host."""

    def __init__(self, file: BinaryIO, start: int, found: Format) -> None:
        program = shutil.which(found.tool)
        if program is None:
            raise MissingToolError(f"it is compressed with {found.name}, and the program {found.tool} is not installed")
        file.seek(start)  # unbuffered: the program reads on from here
        self._process = subprocess.Popen(
            [program, "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._name = found.tool
        self._ended = False
        self.end = os.fstat(file.fileno()).st_size

    def more(self) -> bytes:
        """The next piece."""
        assert self._process.stdout is not None  # noqa: S101
        piece = self._process.stdout.read(CHUNK)
        self._ended = not piece
        return piece

    def failure(self) -> str:
        """What to say of the program when its output ended too early; empty when it is not to blame."""
        status = self._process.wait() if self._ended else 0
        return f"{self._name} can't decompress it (exit status {status}); " if status else ""

    def close(self) -> None:
        """End the program, whether it is done or not."""
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()


# --- Archives --------------------------------------------------------------------------------------------------

MAGIC = (b"070701", b"070702")  # newc; with checksums, which the kernel doesn't check either
HEADER = re.compile(rb"07070[12]([0-9A-Fa-f]{104})")
HEADER_LENGTH = 110


class CpioEntry(NamedTuple):
    """One entry of an archive; ``link`` identifies the file among its hard links, ``None`` when it has none."""

    name: str
    mode: int
    size: int
    link: Optional[Tuple[int, int, int]]


def entries(stream: Stream) -> Iterator[CpioEntry]:
    """The entries of one archive; the caller reads or skips the ``size`` bytes and the padding of each."""
    while True:
        header = HEADER.match(stream.read(HEADER_LENGTH))
        if not header:
            raise InitramfsError(f"no cpio header {stream.position - HEADER_LENGTH} bytes into an archive")
        digits = header.group(1)
        fields = [int(digits[place : place + 8], 16) for place in range(0, 104, 8)]
        inode, mode, links, size, major, minor, name_length = (fields[n] for n in (0, 1, 4, 6, 7, 8, 11))
        if not 0 < name_length <= NAME_LIMIT:
            raise InitramfsError(f"a name of {name_length} bytes, more than {NAME_LIMIT}")
        raw = stream.read(name_length)
        stream.skip(-(HEADER_LENGTH + name_length) % 4)
        name = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
        if name == "TRAILER!!!":
            stream.skip(size + -size % 4)
            return
        while name.startswith(("./", "/")):
            name = name[2:] if name.startswith("./") else name[1:]
        yield CpioEntry(name, mode, size, (inode, major, minor) if links > 1 and stat.S_ISREG(mode) else None)


_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}")
_MODULE_FILE = re.compile(r"([A-Za-z0-9_.+-]{1,64}?)\.ko(?:\.(?:gz|xz|zst|bz2))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Contents:
    """What is kept of the archives, in the order of the image: a later file replaces an earlier one of its name."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in wanted) or r"(?!)")
        self._kept = self._count = 0
        self._waiting: Dict[Tuple[int, int, int], List[str]] = {}
        self.modules: Set[str] = set()
        self.releases: Set[str] = set()
        self.files: Dict[str, Dict[str, Any]] = {}
        self.links: Dict[str, str] = {}

    def archive(self, stream: Stream) -> int:
        """Take in one archive; returns how many entries it has."""
        count = 0
        self._waiting = {}
        for entry in entries(stream):
            count += 1
            self._count += 1
            if self._count > ENTRY_LIMIT:
                raise InitramfsError(f"more than {ENTRY_LIMIT} entries")
            self._note_module(entry)
            used = self._keep(entry, stream)
            stream.skip(entry.size - used + -entry.size % 4)
        return count

    def _note_module(self, entry: CpioEntry) -> None:
        _, found, inside = entry.name.partition("lib/modules/")
        release, slash, path = inside.partition("/")
        if not found or not slash or not _RELEASE.fullmatch(release):
            return
        module = None if stat.S_ISDIR(entry.mode) else _MODULE_FILE.fullmatch(path.rpartition("/")[2])
        self.releases.add(release)
        if module:
            self.modules.add(module.group(1).replace("-", "_"))
        if len(self.modules) + len(self.releases) > MODULE_LIMIT:
            raise InitramfsError(f"more than {MODULE_LIMIT} kernel modules")

    def _keep(self, entry: CpioEntry, stream: Stream) -> int:
        """Keep a wanted file or link; returns how many bytes of it were read."""
        names = [entry.name] if self._wanted.match(entry.name) and not _CONTROL.search(entry.name) else []
        if entry.link is not None:
            # Hard links: the contents come with the last of them, the others are empty.
            if names and not entry.size:
                self._waiting.setdefault(entry.link, []).extend(names)
            elif entry.size:
                names += self._waiting.pop(entry.link, [])
        if not names or not (stat.S_ISREG(entry.mode) or stat.S_ISLNK(entry.mode)):
            return 0
        length = min(entry.size, CONTENT_LIMIT)
        self._kept += length + sum(len(name) for name in names)
        if self._kept > KEPT_LIMIT:
            raise InitramfsError(f"more than {KEPT_LIMIT} bytes of configuration")
        text = stream.read(length).decode("utf-8", "replace")
        for name in names:
            if stat.S_ISLNK(entry.mode):
                self.links["/" + name] = text
            else:
                self.files["/" + name] = {
                    "text": text,
                    "mode": f"{stat.S_IMODE(entry.mode):04o}",
                    "size": entry.size,
                }
        return length


def _format(magic: bytes) -> Optional[Format]:
    """The compression that a part begins with."""
    return next((found for found in FORMATS if magic.startswith(found.magic)), None)


def _compressed(contents: Contents, file: BinaryIO, start: int, found: Format) -> Tuple[int, int]:
    """Take in a compressed part; returns how many entries it has, and where the next part starts."""
    if found.decompressor is not None:
        try:
            library = Library(file, start, found)
        except ImportError:  # zstd before Python 3.14
            pass
        else:
            return _compressed_archives(contents, Stream(library.more), found), library.end
    tool = Tool(file, start, found)
    try:
        return _compressed_archives(contents, Stream(tool.more), found), tool.end
    except InitramfsError as error:
        raise InitramfsError(tool.failure() + str(error)) from error
    finally:
        tool.close()


def _compressed_archives(contents: Contents, stream: Stream, found: Format) -> int:
    """Take in the archives of a decompressed part, which must hold nothing else."""
    count = 0
    while stream.peek(6) in MAGIC:
        count += contents.archive(stream)
        stream.skip_zeros()
    if stream.peek(1):
        raise InitramfsError(f"its {found.name} data holds something else than cpio archives")
    if not stream.position:
        raise InitramfsError(f"its {found.name} data is empty")
    return count


def read_initramfs(path: str, wanted: Sequence[str] = WANTED) -> Dict[str, Any]:
    """What an initramfs image contains.

    :param path: the image, a regular file.
    :param wanted: ``fnmatch`` patterns of the paths (without the leading slash) whose contents are returned.
    :returns: ``archives`` (compression and number of entries of each part), ``releases`` (kernels that it has module
        directories for), ``modules`` (names of the kernel modules, ``-`` written as ``_``), ``files`` (path to text,
        mode and size in bytes; the text ends after 64 KiB) and ``links`` (path to target).
    :raises InitramfsError: when it is damaged, truncated or out of bounds, with the reason.
    :raises MissingToolError: when it takes a program that is not installed, with its name.
    :raises OSError: when the file can't be opened or read.
    """
    contents = Contents(wanted)
    archives: List[Dict[str, Any]] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InitramfsError("it is not a regular file")
        position = 0
        while True:
            file.seek(position)
            plain = Stream(lambda: file.read(CHUNK))  # type: ignore[arg-type, return-value, unused-ignore]
            plain.skip_zeros()
            position += plain.position
            magic = plain.peek(16)
            if not magic:
                break
            found = _format(magic)
            if found is not None:
                count, position = _compressed(contents, file, position, found)
            elif magic[:6] in MAGIC:
                skipped = plain.position
                count = contents.archive(plain)
                position += plain.position - skipped
            else:
                raise InitramfsError(f"neither a cpio archive nor a known compression at byte {position}")
            archives.append({"compression": found.name if found else "none", "entries": count})
    if not archives:
        raise InitramfsError("it is empty")
    return {
        "archives": archives,
        "releases": sorted(contents.releases),
        "modules": sorted(contents.modules),
        "files": contents.files,
        "links": contents.links,
    }


def main(paths: List[str]) -> int:
    """Print JSON: each path's contents, or ``{"error": reason}``; the exit status is 1 when one could not be read."""
    if not paths or paths[0].startswith("-"):
        sys.stderr.write("usage: initramfs.py IMAGE [IMAGE ...]\n")
        return 2
    found: Dict[str, Any] = {}
    for path in paths:
        try:
            found[path] = read_initramfs(path)
        except (OSError, InitramfsError) as error:
            found[path] = {"error": getattr(error, "strerror", None) or str(error)}
    json.dump(found, sys.stdout, sort_keys=True)
    sys.stdout.write("\n")
    return int(any("error" in entry for entry in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
