"""Parse the cpio archives of an image, and collect modules and wanted files."""

import fnmatch
import re
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from .stream import InitramfsError, Stream

CONTENT_LIMIT = 64 * 1024  # bytes collected of one file
KEPT_LIMIT = 16 << 20  # bytes collected of all files
NAME_LIMIT = 4096  # PATH_MAX: the kernel skips longer names (init/initramfs.c)
ENTRY_LIMIT = 1000 * 1000
MODULE_LIMIT = 50 * 1000
MAGIC = (b"070701", b"070702")  # newc; with checksums, which the kernel doesn't check either
HEADER = re.compile(rb"07070[12]([0-9A-Fa-f]{104})")
HEADER_LENGTH = 110


class CpioEntry(NamedTuple):
    """One entry of an archive; ``link`` (inode, major, minor) is equal for hard links; ``None`` without hard links."""

    name: str
    mode: int
    size: int
    link: Optional[Tuple[int, int, int]]


def entries(stream: Stream) -> Iterator[CpioEntry]:
    """The entries of one archive; the caller must read or skip the content (``size``) and padding of each."""
    while True:
        header = HEADER.match(stream.read(HEADER_LENGTH))
        if not header:
            raise InitramfsError(f"no cpio header {stream.position - HEADER_LENGTH} bytes into an archive")
        digits = header.group(1)
        fields = [int(digits[position : position + 8], 16) for position in range(0, 104, 8)]
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
    """The collected content of all archives; a later file replaces an earlier one of the same name."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in wanted) or r"(?!)")
        self._kept = self._count = 0
        self._waiting: Dict[Tuple[int, int, int], List[str]] = {}
        self.modules: Set[str] = set()
        self.releases: Set[str] = set()
        self.files: Dict[str, Dict[str, Any]] = {}
        self.links: Dict[str, str] = {}

    def archive(self, stream: Stream) -> int:
        """Read one archive; return its number of entries."""
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
        marker, inside = entry.name.partition("lib/modules/")[1:]
        release, slash, path = inside.partition("/")
        if not marker or not slash or not _RELEASE.fullmatch(release):
            return
        module = None if stat.S_ISDIR(entry.mode) else _MODULE_FILE.fullmatch(path.rpartition("/")[2])
        self.releases.add(release)
        if module:
            self.modules.add(module.group(1).replace("-", "_"))
        if len(self.modules) + len(self.releases) > MODULE_LIMIT:
            raise InitramfsError(f"more than {MODULE_LIMIT} kernel modules")

    def _keep(self, entry: CpioEntry, stream: Stream) -> int:
        """Collect a wanted file or link; return the number of bytes that were read."""
        names = [entry.name] if self._wanted.match(entry.name) and not _CONTROL.search(entry.name) else []
        if entry.link is not None:
            # Of hard links, only the last one has the content; the others are empty.
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
                self.files["/" + name] = {"text": text, "mode": f"{stat.S_IMODE(entry.mode):04o}", "size": entry.size}
        return length
