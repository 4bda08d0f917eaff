"""A stand-in for a hostile database server: it implements just enough of MySQL's protocol to request a file."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_SECONDS = 120.0
_OK = b"\x00\x00\x00\x02\x00\x00\x00"
# 10, version, thread, 8 bytes of salt, capabilities without TLS, charset, status, more capabilities, rest of the salt
_GREETING = (
    b"\x0a8.0.36\x00\x01\x00\x00\x00saltsalt\x00\xff\xf7\x2d\x02\x00\xff\x81\x15"
    + bytes(10)
    + b"saltsaltsalt\x00mysql_native_password\x00"
)


@dataclass
class Rogue:
    """A server that answers the third statement, the first after those of the driver, with ``answer``."""

    answer: bytes
    port: int = 0
    received: list[bytes] = field(default_factory=list)
    """All packets after its answer."""

    def serve(self, listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.settimeout(_SECONDS)
            try:
                self._talk(connection)
            except (OSError, EOFError):
                return

    def _talk(self, connection: socket.socket) -> None:
        connection.sendall(_packet(_GREETING, 0))
        _read(connection)
        connection.sendall(_packet(_OK, 2))
        for _set_names_and_autocommit in range(2):
            _read(connection)
            connection.sendall(_packet(_OK, 1))
        _read(connection)
        connection.sendall(_packet(self.answer, 1))
        while not self.received or self.received[-1]:  # a file ends with an empty packet
            self.received.append(_read(connection))


def file_request(path: str) -> bytes:
    """The answer that requests one of the client's files (``LOCAL INFILE``)."""
    return b"\xfb" + path.encode()


@contextmanager
def rogue_server(answer: bytes) -> Iterator[Rogue]:
    """A rogue server on loopback that accepts one connection."""
    rogue = Rogue(answer=answer)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_SECONDS)
        rogue.port = listener.getsockname()[1]
        thread = threading.Thread(target=rogue.serve, args=(listener,), daemon=True)
        thread.start()
        yield rogue
        thread.join(_SECONDS)


def _packet(body: bytes, number: int) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def _read(connection: socket.socket) -> bytes:
    head = _exactly(connection, 4)
    return _exactly(connection, int.from_bytes(head[:3], "little"))


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received
