"""A guest writes its console log: without an end, with characters that steer a terminal, with reports of its own."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpustack.base import files
from support.attacks import attacked, commands, run, variants

COMMANDS = sorted(commands("console", "kernel log"))
XID = b"[    1.0] NVRM: Xid (PCI:0000:81:00): 79, pid=1, GPU has fallen off the bus.\n"
REPORT = b'[    2.0] gpustack-guest: {"gpustack_guest": 1, "gpus": [{"address": "\\u001b[2J\\u202e"}]}\n'
START = b"[    0.000000] Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org)\n"
NONE = "messages from the start"
LINES = {
    "terminal": b"\x1b]0;owned\x07\x1b[2J\xe2\x80\xae\x9b31m" + XID,
    "report": REPORT * 3,
    "not UTF-8": bytes(range(128, 256)) * 10 + b"\n" + XID,
    "one line": b"[    1.0] NVRM: " + b"x" * (1 << 20),
    "deep": b'gpustack-guest: {"gpustack_guest": 1, "gpus": ' + b"[" * 5000 + b"\n",
    "number": b'gpustack-guest: {"gpustack_guest": ' + b"9" * 5000 + b"}\n",
}


def everywhere(content: bytes, directory: Path) -> list[str]:
    path = directory / "console"
    path.write_bytes(content)
    return [run(command, argument, path, directory)[1] for command, argument in COMMANDS]


def only_the_end_counts(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    assert NONE not in everywhere(START, directory)[0]
    assert NONE not in everywhere(START + (b"x" * 4000 + b"\n") * 2200, directory)[0]  # lines that say nothing
    assert NONE in everywhere(START + XID * 110_000, directory)[0]


def only_the_end_is_read(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "log").write_bytes(b"first" + bytes(1000) + b"last")
    assert files.read_end(directory / "log", 4) == b"last"


class Pipe:
    """A pipe with more than fits into memory, if the reader keeps it or asks for all of it."""

    pieces = 64

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        assert 0 < size <= 1 << 16
        self.pieces -= 1
        return b"x" * size if self.pieces else b""


def pipe(_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Pipe()))
    tracemalloc.start()
    try:
        assert len(files.read_end(None, 1 << 16)) == 1 << 16
        assert tracemalloc.get_traced_memory()[1] < 8 << 16
    finally:
        tracemalloc.stop()


def endless(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "zero").symlink_to("/dev/zero")
    for command, argument in COMMANDS:
        run(command, argument, directory / "zero", directory)


def whole(path: Path, _most: int) -> bytes:
    """What the door would read without its limit, as far as a test can."""
    with path.open("rb") as stream:
        return stream.read(8 << 20)


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        **variants(everywhere, LINES),
        "end": only_the_end_is_read,
        "beginning": only_the_end_counts,
        "endless": endless,
        "pipe": pipe,
    },
    {"gpustack.base.files:read_end": {"gpustack.base.files:read_end": whole}},
)
