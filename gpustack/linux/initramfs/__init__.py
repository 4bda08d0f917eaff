"""Read what an initramfs image really contains: kernel modules, their configuration, early scripts.

Standard library only, Python 3.6 or later, and relative imports: on a host it runs within an Ansible module, on the
host's own Python.

An image is one or more cpio archives in the "newc" format, one after the other, each plain or compressed (Linux
kernel: ``Documentation/driver-api/early-userspace/buffer-format.rst``): microcode comes first and plain, then the
rest. gzip, bzip2, xz and lzma are read by the standard library, zstd too where it has it (Python 3.14); otherwise
zstd, lz4 and lzo need the host's own ``zstd``, ``lz4`` or ``lzop``.

Nothing is unpacked to disk. An image is not trusted: sizes are checked before anything is read, contents are
streamed, and all that is kept stays below fixed limits.
"""

from .image import read_initramfs
from .stream import InitramfsError, MissingToolError

__all__ = ["InitramfsError", "MissingToolError", "read_initramfs"]
