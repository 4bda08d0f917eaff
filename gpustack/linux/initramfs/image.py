"""Read an image: a sequence of plain or compressed parts."""

import os
import stat
from typing import Any, BinaryIO, Dict, Iterator, Sequence, Tuple

from .archive import MAGIC, Contents
from .compression import Format, Library, Tool, format_of
from .stream import CHUNK, InitramfsError, Stream

# fnmatch patterns for paths without their leading slash; * matches slashes too. In initramfs-tools, ORDER files list
# the scripts to run and conf/modules the modules to load; dracut stores kernel arguments in etc/cmdline.d.
WANTED = (
    "etc/modprobe.d/*",
    "etc/modules-load.d/*",
    "etc/modules",
    "conf/modules",
    "etc/cmdline.d/*",
    "scripts/*/ORDER",
    "*gpustack*",
)


def read_initramfs(path: str, wanted: Sequence[str] = WANTED) -> Dict[str, Any]:
    """Return the content of an initramfs image.

    :param path: the image, a regular file.
    :param wanted: ``fnmatch`` patterns of the files to return, without the leading slash.
    :returns: ``archives`` (compression and number of entries of each part), ``releases`` (kernel releases with a module
        directory), ``modules`` (module names with ``_`` instead of ``-``), ``files`` (text, mode and size in bytes by
        path; the text is cut after 64 KiB) and ``links`` (target by path).
    :raises InitramfsError: if the image is damaged, truncated, or exceeds a limit.
    :raises MissingToolError: if a program for decompression is not installed.
    :raises OSError: if the file can't be opened or read.
    """
    contents = Contents(wanted)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InitramfsError("it is not a regular file")
        archives = list(_parts(contents, file))
    if not archives:
        raise InitramfsError("it is empty")
    return {
        "archives": archives,
        "releases": sorted(contents.releases),
        "modules": sorted(contents.modules),
        "files": contents.files,
        "links": contents.links,
    }


def _parts(contents: Contents, file: BinaryIO) -> Iterator[Dict[str, Any]]:
    """Read all parts of the image, and skip the zeros between them."""
    position = 0
    while True:
        file.seek(position)
        plain = Stream(lambda: file.read(CHUNK))
        plain.skip_zeros()
        position += plain.position
        magic = plain.peek(16)
        if not magic:
            return
        compression = format_of(magic)
        if compression is not None:
            count, position = _compressed(contents, file, position, compression)
        elif magic[:6] in MAGIC:
            skipped = plain.position
            count = contents.archive(plain)
            position += plain.position - skipped
        else:
            raise InitramfsError(f"neither a cpio archive nor a known compression at byte {position}")
        yield {"compression": compression.name if compression else "none", "entries": count}


def _compressed(contents: Contents, file: BinaryIO, start: int, compression: Format) -> Tuple[int, int]:
    """Read a compressed part; return its number of entries, and the offset of the next part."""
    if compression.decompressor is not None:
        try:
            library = Library(file, start, compression)
        except ImportError:  # zstd before Python 3.14
            pass
        else:
            return _compressed_archives(contents, Stream(library.more), compression), library.end
    tool = Tool(file, start, compression)
    try:
        return _compressed_archives(contents, Stream(tool.more), compression), tool.end
    except InitramfsError as error:
        raise InitramfsError(tool.failure() + str(error)) from error
    finally:
        tool.close()


def _compressed_archives(contents: Contents, stream: Stream, compression: Format) -> int:
    """Read the archives of a decompressed part, which must contain nothing else."""
    count = 0
    while stream.peek(6) in MAGIC:
        count += contents.archive(stream)
        stream.skip_zeros()
    if stream.peek(1):
        raise InitramfsError(f"its {compression.name} data holds something else than cpio archives")
    if not stream.position:
        raise InitramfsError(f"its {compression.name} data is empty")
    return count
