"""Read the content of an initramfs image: kernel modules, their configuration, early scripts.

Standard library only, Python 3.6 or later, relative imports only: an Ansible module runs it with the host's Python.

An image is a sequence of cpio archives in "newc" format, each plain or compressed (Linux kernel:
``Documentation/driver-api/early-userspace/buffer-format.rst``). Plain microcode archives come first. The standard
library reads gzip, bzip2, xz and lzma, and since Python 3.14 zstd. Otherwise zstd, lz4 and lzo require the host's
``zstd``, ``lz4`` or ``lzop``.

Nothing is unpacked to disk. Images are untrusted: sizes are checked before reading, contents are streamed, and the
collected data has fixed limits.
"""

from .image import read_initramfs
from .stream import InitramfsError, MissingToolError

__all__ = ["InitramfsError", "MissingToolError", "read_initramfs"]
