"""An image: its parts one after the other, each plain or compressed."""

import os
import stat
from typing import Any, BinaryIO, Dict, Iterator, Sequence, Tuple

from .archive import MAGIC, Contents
from .compression import Format, Library, Tool, format_of
from .stream import CHUNK, InitramfsError, Stream

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
    """Take in one part of the image after the other, with the zeros between them."""
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
    """Take in a compressed part; returns how many entries it has, and where the next part starts."""
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
    """Take in the archives of a decompressed part, which must hold nothing else."""
    count = 0
    while stream.peek(6) in MAGIC:
        count += contents.archive(stream)
        stream.skip_zeros()
    if stream.peek(1):
        raise InitramfsError(f"its {compression.name} data holds something else than cpio archives")
    if not stream.position:
        raise InitramfsError(f"its {compression.name} data is empty")
    return count
