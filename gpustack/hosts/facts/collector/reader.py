"""Read files below a root, with limited sizes; failures are recorded, not raised."""

import errno
import os
import re
import stat
from typing import Callable, Dict, List, Optional, Pattern, Set, Tuple, TypeVar

from .limits import CONTROL, LINK_LIMIT, TABLE_LIMIT, VALUE_LIMIT, Reader

Found = TypeVar("Found", bytes, str)


class HostRoot:
    """Reads files below one root directory and records unreadable ones in ``unread``.

    Paths are as seen from the root (``/proc/cmdline``). If a path is missing or unreadable, the public methods return
    ``None`` or an empty value.

    :param root: the directory to read as ``/``.
    :raises NotADirectoryError: if ``root`` is not a directory.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.realpath(os.fsencode(root))
        if not os.path.isdir(self.root):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), root)
        self.running = self.root == b"/"
        self.unread: List[Dict[str, str]] = []
        self._noted: Set[Tuple[str, str]] = set()
        self._directories: Dict[bytes, bytes] = {}
        # O_NOFOLLOW in another root: _walk has resolved its links before.
        self._flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        if not self.running:
            self._flags |= os.O_NOFOLLOW

    def note(self, path: str, error: str) -> None:
        """Record that a path could not be read, once per reason."""
        if (path, error) not in self._noted:
            self._noted.add((path, error))
            self.unread.append({"path": path, "error": error})

    def forget(self, mark: int) -> None:
        """Drop the notes after the first ``mark``."""
        for entry in self.unread[mark:]:
            self._noted.discard((entry["path"], entry["error"]))
        del self.unread[mark:]

    def data(self, path: str, limit: int = TABLE_LIMIT) -> Optional[bytes]:
        """The first ``limit`` bytes of a regular file; a longer file is noted."""
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
        """The result of one ``read`` of at most ``length`` bytes: a file's start, or a complete sysfs attribute."""
        return self._opened(path, lambda descriptor: os.read(descriptor, length))

    def text(self, path: str, limit: int = TABLE_LIMIT) -> Optional[str]:
        """The text of a regular file; bytes that are not UTF-8 become U+FFFD."""
        content = self.data(path, limit)
        return None if content is None else content.decode("utf-8", "replace")

    def value(self, path: str) -> Optional[str]:
        """The single line of a sysfs attribute, stripped; ``None``, with a note, if it has control characters."""
        content = self.head(path, VALUE_LIMIT + 1)
        if content is None:
            return None
        text = content.decode("utf-8", "replace").strip(" \t\r\n\0")
        if len(content) > VALUE_LIMIT or CONTROL.search(text):
            self.note(path, "unexpected content")
            return None
        return text

    def word(self, path: str, pattern: Pattern[str]) -> Optional[str]:
        """A value that must match ``pattern`` completely; ``None`` if it is empty or, with a note, does not match."""
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
        """A boolean in the kernel's notation: ``1``/``0`` or ``Y``/``N``."""
        text = self.word(path, _FLAG)
        return None if text is None else text in "1Yy"

    def names(self, path: str) -> List[str]:
        """The sorted names in a directory; empty if it does not exist."""
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
        """The unresolved target of a symbolic link; ``None`` if the path is not a link."""
        try:
            target = os.readlink(self._real(path, follow=False))
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: not a link
                self._failed(path, error)
            return None
        text = target.decode("utf-8", "replace")
        return None if CONTROL.search(text) else text

    def status(self, path: str) -> Optional[os.stat_result]:
        """``stat`` of a path, following links; ``None`` if it does not exist."""
        try:
            return self._locate(path)[1]
        except OSError as error:
            self._failed(path, error)
            return None

    def exists(self, path: str) -> bool:
        """Whether a path exists, following links."""
        return self.status(path) is not None

    def real(self, path: str) -> str:
        """A path as seen from the root, with all links resolved; ``path`` itself if that fails."""
        try:
            resolved = os.path.realpath(os.fsencode(path)) if self.running else self._walk(b"", os.fsencode(path))
        except OSError as error:
            self._failed(path, error)
            return path
        return resolved.decode("utf-8", "replace")

    def pieces(self, path: str, parse: Callable[[Reader], Optional[str]]) -> Optional[str]:
        """The result of ``parse``, called with a function ``(offset, length) -> bytes`` that reads the file."""
        return self._opened(path, lambda descriptor: parse(lambda offset, length: os.pread(descriptor, length, offset)))

    def device(self, path: str, offset: int, length: int) -> Optional[bytes]:
        """Bytes of a block device, or of a file at its path in another root; ``None`` if it could not be read."""
        return self._opened(path, lambda descriptor: os.pread(descriptor, length, offset), device=self.running)

    def _opened(self, path: str, read: Callable[[int], Optional[Found]], *, device: bool = False) -> Optional[Found]:
        try:
            descriptor = self._open(path, device=device)
            try:
                return read(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._failed(path, error)
            return None

    def _locate(self, path: str) -> Tuple[bytes, os.stat_result]:
        """The real path and its status. Most paths do not end in a link, so one call is enough."""
        real = self._real(path, follow=False)
        status = os.lstat(real)
        if stat.S_ISLNK(status.st_mode):
            real = self._real(path)
            status = os.stat(real)
        return real, status

    def _open(self, path: str, device: bool = False) -> int:
        real, status = self._locate(path)
        mode = status.st_mode
        if not (stat.S_ISREG(mode) or (device and stat.S_ISBLK(mode))):  # a FIFO would block, a device node could act
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
        """The path on the running system; in another root, with all links resolved inside that root."""
        raw = path.encode("utf-8", "replace")
        if b"\0" in raw:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if self.running:
            return raw
        parent, _slash, name = raw.rpartition(b"/")
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
    """Sort key of a kernel release: ``6.1.0-9`` sorts before ``6.1.0-37``."""
    parts = re.findall(r"([0-9]+)|([a-zA-Z]+)", release)
    return [(1, int(digits), "") if digits else (0, 0, word) for digits, word in parts]
