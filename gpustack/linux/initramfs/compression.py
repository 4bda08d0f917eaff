"""Decompress parts of an image with the standard library, or with a program of the host."""

import bz2
import importlib
import lzma
import os
import shutil
import subprocess
import zlib
from typing import Any, BinaryIO, Callable, NamedTuple, Optional

from .stream import CHUNK, InitramfsError, MissingToolError

DICTIONARY_LIMIT = 128 << 20  # memory for xz and lzma; xz -9 takes 65 MiB


class _Zlib:
    """zlib's decompressor with the interface of those of lzma and bz2."""

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


class Format(NamedTuple):
    """A compression format: its magic number, and its decompressor or tool."""

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
    # lzma's interface, in Python 3.14 and later
    Format("zstd", b"\x28\xb5\x2f\xfd", lambda: importlib.import_module("compression.zstd").ZstdDecompressor(), "zstd"),
    Format("lz4", b"\x02\x21\x4c\x18", None, "lz4"),
    Format("lz4", b"\x04\x22\x4d\x18", None, "lz4"),
    Format("lzo", b"\x89LZO\0\r\n\x1a\n", None, "lzop"),
)


class Library:
    """Decompresses one part of a file with the standard library; ``end`` is the offset of the next part."""

    def __init__(self, file: BinaryIO, start: int, compression: Format) -> None:
        self._file = file
        self._format = compression
        self._inner = compression.decompressor()  # type: ignore[misc]  # the caller has looked
        self._fed = start
        file.seek(start)

    @property
    def end(self) -> int:
        """The offset after the compressed data."""
        return self._fed - len(self._inner.unused_data)

    def more(self) -> bytes:
        """The next piece of decompressed data; ``b""`` at the end."""
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
            except Exception as error:  # each library has its own error class
                raise InitramfsError(f"its {self._format.name} data is damaged: {error}") from error
            if piece:
                return bytes(piece)

    def _restart(self) -> bool:
        """Continue with a second member directly after the first; parallel compressors write several."""
        self._file.seek(self.end)
        has_member = self._file.read(len(self._format.magic)) == self._format.magic
        if has_member:
            self._fed = self.end
            self._inner = self._format.decompressor()  # type: ignore[misc]
        self._file.seek(self._fed)
        return has_member


class Tool:
    """Decompresses the rest of a file with a program of the host."""

    def __init__(self, file: BinaryIO, start: int, compression: Format) -> None:
        program = shutil.which(compression.tool)
        if program is None:
            what = f"it is compressed with {compression.name}, and the program {compression.tool} is not installed"
            raise MissingToolError(what)
        file.seek(start)  # unbuffered: the program reads on from here
        self._process = subprocess.Popen(
            [program, "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._name = compression.tool
        self._ended = False
        self.end = os.fstat(file.fileno()).st_size

    def more(self) -> bytes:
        """The next piece of decompressed data; ``b""`` at the end."""
        piece = self._process.stdout.read(CHUNK)  # type: ignore[union-attr]
        self._ended = not piece
        return piece

    def failure(self) -> str:
        """The start of an error message if the program failed; empty if it did not."""
        status = self._process.wait() if self._ended else 0
        return f"{self._name} can't decompress it (exit status {status}); " if status else ""

    def close(self) -> None:
        """Kill the program if it still runs, and reap it."""
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.kill()
        self._process.wait()


def format_of(magic: bytes) -> Optional[Format]:
    """The compression format of a part by its magic number; ``None`` if unknown."""
    return next((compression for compression in FORMATS if magic.startswith(compression.magic)), None)
