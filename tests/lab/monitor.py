"""QEMU's control socket: what no host can do to itself, such as a pulled cable or a moment that is kept."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from .errors import LabError


def command(path: Path, name: str, /, **arguments: Any) -> Any:
    """One command of QEMU's machine protocol; answers what it returns."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(300)
        connection.connect(str(path))
        stream = connection.makefile("rwb")
        json.loads(stream.readline())  # the greeting
        for request in ({"execute": "qmp_capabilities"}, {"execute": name, "arguments": arguments}):
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
            answer = _answer(stream)
        if "error" in answer:
            raise LabError(f"QEMU refuses {name}: {answer['error']['desc']}")
        return answer["return"]


def _answer(stream: Any) -> dict[str, Any]:
    """The next line that is no event."""
    while line := stream.readline():
        message: dict[str, Any] = json.loads(line)
        if "event" not in message:
            return message
    raise LabError("QEMU has closed its control socket")
