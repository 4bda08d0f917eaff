"""A byte stream with look-ahead, and the errors of unreadable images."""

from typing import Callable

CHUNK = 1 << 18
TOTAL_LIMIT = 4 << 30  # uncompressed bytes of an archive


class InitramfsError(ValueError):
    """The image is damaged, truncated, or exceeds a limit."""


class MissingToolError(InitramfsError):
    """The program that decompresses this image is not installed."""


class Stream:
    """A byte stream from a function that returns the next piece (``b""`` at the end), with look-ahead."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._buffer = b""
        self._start = 0
        self.position = 0

    def peek(self, length: int) -> bytes:
        """The next bytes, at most ``length``, not consumed."""
        while len(self._buffer) - self._start < length:
            piece = self._more()
            if not piece:
                break
            self._buffer = self._buffer[self._start :] + piece
            self._start = 0
        return self._buffer[self._start : self._start + length]

    def read(self, length: int) -> bytes:
        """Consume exactly ``length`` bytes; the caller limits the length.

        :raises InitramfsError: if the data ends early, or exceeds ``TOTAL_LIMIT``.
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
        """Skip ``length`` bytes."""
        while length > 0:
            length -= len(self.read(min(length, CHUNK)))

    def skip_zeros(self) -> None:
        """Skip the zeros between archives."""
        while True:
            data = self.peek(CHUNK)
            remainder = data.lstrip(b"\0")
            self.read(len(data) - len(remainder))
            if remainder or not data:
                return
