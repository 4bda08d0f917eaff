"""Reading files below a root: nothing outside it, nothing without a limit, every failure noted."""

import errno
import os
import re
import stat
from typing import Callable, Dict, List, Optional, Pattern, Set, Tuple

from .limits import CONTROL, LINK_LIMIT, TABLE_LIMIT, VALUE_LIMIT, Reader


class HostRoot:
    """Reads files below one root directory and remembers what could not be read.

    Paths are given as seen from the root (``/proc/cmdline``). No method raises for what a path holds or lacks.

    :param root: the directory to read as ``/``.
    :raises NotADirectoryError: when it is no directory.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.realpath(os.fsencode(root))
        if not os.path.isdir(self.root):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), root)
        self.running = self.root == b"/"
        self.unread: List[Dict[str, str]] = []
        self._noted: Set[Tuple[str, str]] = set()
        self._directories: Dict[bytes, bytes] = {}
        # O_NOFOLLOW in a foreign root: its links were resolved before, by _walk.
        self._flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        if not self.running:
            self._flags |= os.O_NOFOLLOW

    def note(self, path: str, error: str) -> None:
        """Remember that a path could not be read, once for each reason."""
        if (path, error) not in self._noted:
            self._noted.add((path, error))
            self.unread.append({"path": path, "error": error})

    def forget(self, mark: int) -> None:
        """Drop the notes after the first ``mark``."""
        for entry in self.unread[mark:]:
            self._noted.discard((entry["path"], entry["error"]))
        del self.unread[mark:]

    def data(self, path: str, limit: int = TABLE_LIMIT) -> Optional[bytes]:
        """The bytes of a regular file; those beyond ``limit`` are left out, with a note."""
        try:
            content = self._read(path, limit)
        except OSError as error:
            self._failed(path, error)
            return None
        if len(content) > limit:
            self.note(path, f"larger than {limit} bytes; the rest was not read")
            return content[:limit]
        return content

    def head(self, path: str, length: int) -> Optional[bytes]:
        """What one read of at most ``length`` bytes gives: the start of a file, all of a sysfs attribute."""
        try:
            descriptor = self._open(path)
            try:
                return os.read(descriptor, length)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._failed(path, error)
            return None

    def text(self, path: str, limit: int = TABLE_LIMIT) -> Optional[str]:
        """The text of a regular file; bytes that are not UTF-8 become U+FFFD."""
        content = self.data(path, limit)
        return None if content is None else content.decode("utf-8", "replace")

    def value(self, path: str) -> Optional[str]:
        """The single line that a sysfs attribute holds, without surrounding blanks."""
        content = self.head(path, VALUE_LIMIT + 1)
        if content is None:
            return None
        text = content.decode("utf-8", "replace").strip(" \t\r\n\0")
        if len(content) > VALUE_LIMIT or CONTROL.search(text):
            self.note(path, "unexpected content")
            return None
        return text

    def word(self, path: str, pattern: Pattern[str]) -> Optional[str]:
        """A value that has to match ``pattern`` as a whole; an empty one is ``None``."""
        text = self.value(path)
        if not text:
            return None
        if not pattern.fullmatch(text):
            self.note(path, "unexpected content")
            return None
        return text

    def number(self, path: str) -> Optional[int]:
        """A decimal number."""
        text = self.word(path, _NUMBER)
        return None if text is None else int(text)

    def flag(self, path: str) -> Optional[bool]:
        """A boolean as the kernel prints it: ``1``/``0`` or ``Y``/``N``."""
        text = self.word(path, _FLAG)
        return None if text is None else text in "1Yy"

    def names(self, path: str) -> List[str]:
        """The sorted names in a directory; empty when it does not exist."""
        try:
            entries = os.listdir(self._real(path))
        except OSError as error:
            self._failed(path, error)
            return []
        names = []
        for raw in entries:
            try:
                name = raw.decode("utf-8")
            except UnicodeDecodeError:
                name = "\0"
            if CONTROL.search(name):
                self.note(path, "holds a name that is not plain text")
            else:
                names.append(name)
        return sorted(names)

    def link(self, path: str) -> Optional[str]:
        """Where a symbolic link points to, unresolved; ``None`` when it is none."""
        try:
            target = os.readlink(self._real(path, follow=False))
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: not a link
                self._failed(path, error)
            return None
        text = target.decode("utf-8", "replace")
        return None if CONTROL.search(text) else text

    def status(self, path: str) -> Optional[os.stat_result]:
        """The status of what a path leads to."""
        try:
            return self._locate(path)[1]
        except OSError as error:
            self._failed(path, error)
            return None

    def exists(self, path: str) -> bool:
        """Whether a path leads to something."""
        return self.status(path) is not None

    def real(self, path: str) -> str:
        """A path as seen from the root, with every link in it resolved; as it is when it leads nowhere."""
        try:
            resolved = os.path.realpath(os.fsencode(path)) if self.running else self._walk(b"", os.fsencode(path))
        except OSError as error:
            self._failed(path, error)
            return path
        return resolved.decode("utf-8", "replace")

    def pieces(self, path: str, parse: Callable[[Reader], Optional[str]]) -> Optional[str]:
        """What ``parse`` makes of a file, given a function ``(offset, length) -> bytes`` on it."""
        try:
            descriptor = self._open(path)
        except OSError as error:
            self._failed(path, error)
            return None
        try:
            return parse(lambda offset, length: os.pread(descriptor, length, offset))
        except OSError as error:
            self._failed(path, error)
            return None
        finally:
            os.close(descriptor)

    def _locate(self, path: str) -> Tuple[bytes, os.stat_result]:
        """Where a path leads to. Most paths end in no link: one call is enough for them."""
        real = self._real(path, follow=False)
        status = os.lstat(real)
        if stat.S_ISLNK(status.st_mode):
            real = self._real(path)
            status = os.stat(real)
        return real, status

    def _open(self, path: str) -> int:
        real, status = self._locate(path)
        mode = status.st_mode
        if not stat.S_ISREG(mode):  # a FIFO would block, a device node could act
            kind = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(kind, "is a directory" if stat.S_ISDIR(mode) else "not a regular file")
        return os.open(real, self._flags)

    def _read(self, path: str, limit: int) -> bytes:
        descriptor = self._open(path)
        try:
            chunks = []
            remaining = limit + 1
            while remaining > 0:
                chunk = os.read(descriptor, min(remaining, 1 << 20))
                if not chunk:
                    break
                chunks.append(chunk)
                remaining -= len(chunk)
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def _failed(self, path: str, error: OSError) -> None:
        if error.errno != errno.ENOENT:
            self.note(path, error.strerror or str(error))

    def _real(self, path: str, follow: bool = True) -> bytes:
        """The path on the running system; in a foreign root with every link resolved inside that root."""
        raw = path.encode("utf-8", "replace")
        if b"\0" in raw:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if self.running:
            return raw
        parent, _, name = raw.rpartition(b"/")
        base = self._directories.get(parent)
        if base is None:
            base = self._directories[parent] = self._walk(b"", parent)
        return self.root + (self._walk(base, name) if follow else base + b"/" + name)

    def _walk(self, current: bytes, path: bytes) -> bytes:
        todo = path.split(b"/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                current = current.rpartition(b"/")[0]
                continue
            try:
                target = os.readlink(self.root + current + b"/" + part)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                current += b"/" + part
                continue
            links += 1
            if links > LINK_LIMIT:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith(b"/"):
                current = b""
            todo.extend(target.split(b"/")[::-1])
        return current


_NUMBER = re.compile(r"-?[0-9]{1,18}")
_FLAG = re.compile(r"[01YyNn]")


def version_key(release: str) -> List[Tuple[int, int, str]]:
    """Sort key of a kernel release: ``6.1.0-9`` comes before ``6.1.0-37``."""
    parts = re.findall(r"([0-9]+)|([a-zA-Z]+)", release)
    return [(1, int(digits), "") if digits else (0, 0, word) for digits, word in parts]
