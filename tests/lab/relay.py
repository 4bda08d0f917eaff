"""Connects standard input, a socket, with a port of this machine's loopback: QEMU starts it for a host's connection.

Run as a program: relay.py PORT. It ends when one side has closed.
"""

from __future__ import annotations

import select
import socket
import sys

_BYTES = 1 << 16


def main() -> None:
    """Copy in both directions until one side closes."""
    host = socket.socket(fileno=0)
    service = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    peers = {host: service, service: host}
    while True:
        for side in select.select(list(peers), [], [])[0]:
            data = side.recv(_BYTES)
            if not data:
                return
            peers[side].sendall(data)


if __name__ == "__main__":
    main()
