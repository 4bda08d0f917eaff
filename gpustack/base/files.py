"""Locations of gpustack's own data, and atomic, private files."""

from __future__ import annotations

import contextlib
import errno
import functools
import getpass
import hashlib
import io
import os
import stat
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpustack.base.errors import GpustackError
from gpustack.base.text import quoted

if TYPE_CHECKING:
    import jinja2

E = TypeVar("E", bound=GpustackError)
Text = str | Iterable[str | bytes]
StatusCheck = Callable[[Path, os.stat_result], None]
_PACKAGE = Path(__file__).resolve().parents[1]
_COLLECTION = "ansible_collections/nova_gpustack/passthrough"
_NO_TEXT = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"BZh", b"LPKSHHRH")  # gzip, xz, zstd, bzip2, journald
_OPEN = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))  # devices and open files, which no other user chooses


def data_dir(name: str) -> Path:
    """A directory or file of the package data (``findings``, …)."""
    return _PACKAGE / "data" / name


@functools.cache
def data_table(name: str) -> Mapping[str, Any]:
    """A TOML file of the package data: ``nova.toml``, ``findings/host.toml``."""
    return tomllib.loads(data_dir(name).read_text(encoding="utf-8"))


def share_dir(name: str) -> Path:
    """The directory of ``templates`` or ``docs/runbook``, in an installed package or a checkout."""
    installed = _PACKAGE / "share" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


@functools.cache
def templates(name: str, *, autoescape: bool, **options: Any) -> jinja2.Environment:  # noqa: ANN401 - jinja2's own
    """The templates of a directory of ``templates``; a variable without a value is an error."""
    import jinja2

    loader = jinja2.FileSystemLoader(share_dir("templates") / name)
    return jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=autoescape, **options)  # noqa: S701


def collection_dir() -> Path:
    """The directory of the Ansible collection ``nova_gpustack.passthrough``: beside the package, as the wheel has it.

    In a checkout, ``tools/setup`` makes it in the environment's site-packages, with links.
    """
    beside = _PACKAGE.parent / _COLLECTION
    return beside if beside.is_dir() else Path(sysconfig.get_path("purelib")) / _COLLECTION


_REMEDIES = {
    errno.EEXIST: "name a file that does not exist yet",
    errno.EISDIR: "name a file: this is a directory",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ELOOP: "check the path: its symbolic links form a loop",
    errno.EROFS: "use a path on a writable file system",
    errno.EFBIG: "check the path: the file is larger than expected",
}


def state_dir() -> Path:
    """gpustack's directory for logs, journals and records of this user (XDG Base Directory Specification)."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))  # the specification ignores relative paths
    return (given if given.is_absolute() else Path.home() / ".local" / "state") / "gpustack"


def user_name() -> str:
    """The name of this user; the user's number where it has none, as in a container with ``--user 1234``."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError: since Python 3.13
        return str(os.getuid())


def file_remedy(error: OSError) -> str:
    """The remedy for a file system error."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    if error.errno == errno.ENOENT and path is not None and not os.path.lexists(path.parent):
        return f"check the path, or run: mkdir -p {quoted(path.parent)}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"free space on the file system{f': df -h {quoted(path.parent)}' if path else ' of the output'}"
    if error.errno in (errno.EACCES, errno.EPERM):
        shown = f": ls -ld {quoted(path.parent)} {quoted(path)}" if path else ""
        return f"run gpustack as a user who may access the file{shown}"
    return _REMEDIES.get(error.errno or 0, "check the path")


def file_error(kind: type[E], what: str, path: Path, error: OSError, *, state: str = "", remedy: str = "") -> E:
    """The error of a file that gpustack cannot read or write: its reason, and what to do.

    :param kind: the class of the error.
    :param state: what holds after the error.
    :param remedy: another remedy, after that of the reason.
    """
    error.filename = error.filename or str(path)  # an error of a write names no file
    reasons, remedies = (f"{what}: {error.strerror}", state), (file_remedy(error), remedy)
    return kind("; ".join(filter(None, reasons)), where=str(path), remedy="; or ".join(filter(None, remedies)))


@contextlib.contextmanager
def file_errors(kind: type[E], what: str, path: Path, *, state: str = "", remedy: str = "") -> Iterator[None]:
    """Turn errors of the file system into those of :func:`file_error`."""
    try:
        yield
    except OSError as error:
        raise file_error(kind, what, path, error, state=state, remedy=remedy) from error


MOST = 16 << 20
"""The permitted size of a file that an operator or a deployment tool wrote, in bytes."""


def read_text(
    path: Path, most: int = MOST, *, errors: str = "strict", follow: bool = True, check: StatusCheck | None = None
) -> str:
    """The text of an untrusted file, which may be a link to an endless one.

    :param most: the permitted size in bytes.
    :param errors: how to treat bytes that are not UTF-8 (:func:`bytes.decode`).
    :param follow: whether the file may be a symbolic link.
    :param check: refuses a file by its status; another file may have the path later.
    :raises OSError: when it can't be read, or is larger than ``most`` bytes.
    :raises UnicodeDecodeError: when it is not UTF-8.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags | (os.O_NONBLOCK if check else 0)), "rb") as stream:
        if check:
            check(path, os.fstat(stream.fileno()))
            os.set_blocking(stream.fileno(), True)
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content.decode("utf-8", errors)


def json_files(paths: Iterable[Path], kind: type[E], remedy: str) -> Sequence[Path]:
    """Files, each once, and those of directories: ``*.json``, without files that are being written.

    :raises GpustackError: of this kind, if a directory can't be read or has none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        with file_errors(kind, "can't read the directory", path):
            inside = sorted(f for f in path.iterdir() if f.match("[!.]*.json")) if path.is_dir() else [path]
        if not inside:
            raise kind("no file *.json in the directory", where=str(path), remedy=remedy)
        found.update(dict.fromkeys(inside))
    return list(found)


def own_name(place: Path, stem: str) -> Path:
    """A file; in a directory, a new one with a name of its own: ``facts-20261128T112731Z-c9e43687.json``."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return place / f"{stem}-{stamp}-{os.urandom(4).hex()}.json" if place.is_dir() else place


def digest(path: Path | None) -> str:
    """The SHA-256 of a text as it is now, such as a spec; empty without one.

    :raises OSError: when it can't be read.
    """
    return hashlib.sha256(read_text(path).encode()).hexdigest() if path else ""


def starts_with(path: Path, text: str, after: int = 0) -> bool:
    """Whether a file begins with a text, or has it after at most so many bytes; the rest is not read.

    :raises OSError: when it can't be read.
    """
    with path.open("rb") as stream:
        return text.encode() in stream.read(after + len(text.encode()))


def read_end(path: Path | None, most: int, keep: Callable[[bytes], bool] | None = None) -> bytes:
    """The last bytes of a file that may be endless or growing.

    :param path: the file; None for the standard input.
    :param most: the number of bytes that count.
    :param keep: which lines of a longer file count; None for all.
    :raises OSError: when it can't be read, is no text, or has no lines to choose from.
    """
    with contextlib.ExitStack() as stack:
        stream = sys.stdin.buffer if path is None else stack.enter_context(path.open("rb"))
        if isinstance(stream, io.BufferedReader) and stream.peek(8).startswith(_NO_TEXT):
            raise OSError(errno.EINVAL, "it is compressed, or a binary journal")
        if keep is None and stream.seekable():
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
            return stream.read(most)
        end, part = bytearray(), b"."
        while part:
            part = stream.readline(most) if keep else stream.read(most)
            if keep and len(part) == most:
                raise OSError(errno.EINVAL, "it has no lines")
            end += part
            if len(end) > (2 * most if part else most):
                if keep:
                    end = bytearray().join(line for line in bytes(end).splitlines(keepends=True) if keep(line))
                del end[:-most]
        return bytes(end)


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Create a directory and its missing parents, each with this mode, which the umask does not change.

    :raises OSError: when it can't be created.
    """
    if not path.is_dir():
        make_directory(path.parent, mode)
        with contextlib.suppress(FileExistsError):  # if it is no directory, opening it fails
            path.mkdir(mode=0o700)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        os.fchmod(descriptor, mode)
        os.close(descriptor)


def open_private(path: Path, access: int = os.O_WRONLY) -> int:
    """Open a file with mode 0600 to append, and return its descriptor: its path may be of another file later.

    An existing regular file keeps its content and gets this mode.

    :raises OSError: when it can't be created, or belongs to another user, as does a link or a pipe.
    """
    link = path.is_symlink()
    if (link or path.is_fifo()) and path.lstat().st_uid not in (os.geteuid(), 0) and path.parent not in _OPEN:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))
    descriptor = os.open(path, access | os.O_CREAT | os.O_APPEND | (0 if link else os.O_NOFOLLOW), 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):  # not for /dev/stderr and the like
        if found.st_uid != os.geteuid():  # root may change the mode, but the owner could still read it
            os.close(descriptor)
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        os.fchmod(descriptor, 0o600)
    return descriptor


def refuse_unwritable(path: Path) -> None:
    """Check that :func:`write_atomic` can write a file, before the work whose result it gets. Creates nothing.

    :raises OSError: when it is a directory, another user's in a sticky one, or its directory is not writable.
    """
    is_sticky = os.path.lexists(path) and path.parent.stat().st_mode & stat.S_ISVTX  # such as /tmp
    is_kept = is_sticky and os.geteuid() not in (0, path.lstat().st_uid, path.parent.stat().st_uid)
    if is_kept or path.is_dir() or not (os.access(path.parent, os.W_OK) or path.parent in _OPEN):
        reason = errno.EISDIR if path.is_dir() else errno.EACCES if path.parent.is_dir() else errno.ENOENT
        raise OSError(reason, os.strerror(reason), str(path))


def write_atomic(
    path: Path, text: Text, *, mode: int, exact: bool = False, new: bool = False, owner: os.stat_result | None = None
) -> None:
    """Replace ``path`` by ``text`` atomically.

    The new content is written to a temporary file in the same directory, synced, given ``mode`` and renamed. Readers
    see the old content or the new, and the mode is never wider than ``mode``. The directory is synced too, so the
    file survives a power failure after the return. A device, an open file or a pipe of this user is written to.

    :param text: the content, or its parts, which are written one by one.
    :param mode: permission bits. A text from other files has the bits that all of them have.
    :param exact: whether it has all of these bits, since a service of another user reads it; else the umask applies.
    :param new: whether ``path`` must not exist, also as a symbolic link.
    :param owner: the file that is replaced: the new one gets its owner and group as far as this user may set them.
    :raises OSError: when the directory is missing or not writable; ``path`` is then unchanged.
    """
    if not (exact or owner):
        os.umask(umask := os.umask(0o077))  # it is only known after it is set
        mode &= ~umask
    try:
        _write_atomic(path, [text] if isinstance(text, str) else text, mode, new, owner)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # without the name of the temporary file


def _write_atomic(path: Path, parts: Iterable[str | bytes], mode: int, new: bool, owner: os.stat_result | None) -> None:
    content = (part.encode() if isinstance(part, str) else part for part in parts)
    is_own_pipe = not path.is_symlink() and path.is_fifo() and path.stat().st_uid == os.geteuid()
    if not new and (is_own_pipe or (path.parent in _OPEN and path.exists())):
        with path.open("ab") as stream:  # keeps the earlier output of a redirection
            stream.writelines(content)
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(content)
            stream.flush()
            if owner is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(stream.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        if new:
            os.link(temporary, path, follow_symlinks=False)
            Path(temporary).unlink()
        else:
            Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
