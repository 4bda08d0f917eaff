"""The files of a rendering below a directory: what a write changes there, and the files of an earlier rendering."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpustack.base.errors import NovaConfigError, UsageError
from gpustack.base.files import file_error, make_directory, read_text, write_atomic
from gpustack.base.operations import RemoveFile, WriteFile
from gpustack.configure.rendered import RenderedFile
from gpustack.nova_options.markers import ended_as, has_ours, without_ours


def changes(files: Iterable[RenderedFile], root: Path) -> list[WriteFile]:
    """The files that change below ``root``.

    :raises NovaConfigError: if a file can't be read, or the markers of gpustack's block are damaged.
    """
    present = [(file, path, _content(path)) for file, path in _placed(files, root)]
    writes = [
        WriteFile(why="", path=str(path), content=file.onto(before, str(path)), before=before, mode=f"{file.mode:04o}")
        for file, path, before in present
    ]
    return [change for change in writes if change.content != change.before]


def stale(files: Iterable[RenderedFile], root: Path, patterns: Iterable[str]) -> Iterator[WriteFile | RemoveFile]:
    """The removal of files of an earlier rendering below ``root``, or of gpustack's part of a shared file.

    :param patterns: the :meth:`~pathlib.Path.glob` patterns of all files that a rendering can write.
    """
    rendered = {path for _, path in _placed(files, root)}
    for path in sorted(found for pattern in patterns for found in root.glob(pattern)):
        if path in rendered or not path.is_file() or not has_ours(_content(path, errors="replace") or ""):
            continue
        before = _content(path) or ""
        rest = without_ours(before, str(path))
        if not rest.strip():
            yield RemoveFile(why="", path=str(path), before=before)
        else:
            yield WriteFile(why="", path=str(path), content=rest.rstrip() + ended_as(before, "\n"), before=before)


def carry_out(operation: WriteFile | RemoveFile) -> None:
    """Write or remove a file on this machine; a file that exists keeps its mode, owner and place behind a link.

    The user of Nova's services reads it, also if the umask of an administrator is 077.
    """
    path = Path(operation.path)
    if isinstance(operation, RemoveFile):
        path.unlink()
        return
    make_directory(path.parent, 0o755)
    owner = None if operation.before is None else path.stat()
    mode = int(operation.mode, 8) if owner is None else owner.st_mode & 0o777
    write_atomic(path.resolve(), operation.content, mode=mode, exact=True, owner=owner)


def _placed(files: Iterable[RenderedFile], root: Path) -> list[tuple[RenderedFile, Path]]:
    """Each file with its path below ``root``; without the target's directory for a single target below ``/``."""
    files = list(files)
    targets = {file.target for file in files}
    if root == Path("/") and len(targets) > 1:
        remedy = "name one HOST and --service compute, or compare with a directory: --out DIR"
        raise UsageError("the files are of several hosts, so they can't be compared with this one's", remedy=remedy)
    single = len(targets) == 1 and root == Path("/")
    return [(file, root / ("" if single else file.target) / file.path.lstrip("/")) for file in files]


def _content(path: Path, *, errors: str = "strict") -> str | None:
    try:
        return read_text(path, errors=errors)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise file_error(NovaConfigError, "can't be read", path, error) from error
    except UnicodeDecodeError as error:
        remedy = "convert the file to UTF-8, or move it away: the rendered file has the same path"
        raise NovaConfigError("is not UTF-8", where=str(path), remedy=remedy) from error
