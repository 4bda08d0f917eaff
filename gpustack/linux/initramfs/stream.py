"""Bytes of an image, supplied piece by piece."""

from typing import Callable

CHUNK = 1 << 18
TOTAL_LIMIT = 4 << 30  # of an archive, uncompressed


class InitramfsError(ValueError):
    """An image that can't be read: damaged, truncated or out of bounds."""


class MissingToolError(InitramfsError):
    """The program that decompresses this image is not installed."""


class Stream:
    """Bytes that a function supplies piece by piece (``b""`` at the end), with some look-ahead."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._buffer = b""
        self._start = 0
        self.position = 0

    def peek(self, length: int) -> bytes:
        """The next bytes, at most ``length``, unconsumed."""
        while len(self._buffer) - self._start < length:
            piece = self._more()
            if not piece:
                break
            self._buffer = self._buffer[self._start :] + piece
            self._start = 0
        return self._buffer[self._start : self._start + length]

    def read(self, length: int) -> bytes:
        """Exactly ``length`` bytes; callers bound the length.

        :raises InitramfsError: when the data ends before, or there is too much of it.
        """
        data = self.peek(length)
        if len(data) < length:
            raise InitramfsError(f"the image is truncated: an archive ends after {self.position} bytes")
        self._start += length
        self.position += length
        if self.position > TOTAL_LIMIT:
            raise InitramfsError(f"an archive unpacks to more than {TOTAL_LIMIT} bytes")
        return data

    def skip(self, length: int) -> None:
        """Pass over ``length`` bytes."""
        while length > 0:
            length -= len(self.read(min(length, CHUNK)))

    def skip_zeros(self) -> None:
        """Pass over the zeros that fill the gap to the next archive."""
        while True:
            data = self.peek(CHUNK)
            remainder = data.lstrip(b"\0")
            self.read(len(data) - len(remainder))
            if remainder or not data:
                return
