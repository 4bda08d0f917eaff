"""Whether a process of the lab listens where other machines reach it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
_LISTEN = "0A"
# As the kernel prints them: 127.0.0.0/8, ::1, and 127.0.0.0/8 within IPv6; the bytes of each word are reversed.
_IPV6 = "00000000000000000000000001000000"
_MAPPED = "0000000000000000FFFF0000"


def outside_loopback() -> list[str]:
    """The descendants of this process that listen on another address, with that address."""
    sockets = {
        inode: address for name in ("tcp", "tcp6") for inode, address in exposed((PROC / "net" / name).read_text())
    }
    found = set()
    for pid in _descendants(os.getpid()):
        inodes = (target.removeprefix("socket:[").removesuffix("]") for target in _targets(pid))
        found |= {f"process {pid}: {sockets[inode]}" for inode in inodes if inode in sockets}
    return sorted(found)


def _targets(pid: str) -> Iterator[str]:
    """What the descriptors of a process lead to; nothing when it has ended."""
    with contextlib.suppress(OSError):
        for path in (PROC / pid / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                yield str(path.readlink())


def exposed(table: str) -> Iterator[tuple[str, str]]:
    """Inode and address of each TCP socket in a table of /proc/net that listens outside of loopback."""
    for line in table.splitlines()[1:]:
        words = line.split()
        address = words[1].partition(":")[0]
        ipv4 = address.removeprefix(_MAPPED)
        loopback = address == _IPV6 or (len(ipv4) == 8 and ipv4.endswith("7F"))
        if words[3] == _LISTEN and not loopback:
            yield words[9], words[1]


def _descendants(root: int) -> set[str]:
    parents = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            parents[path.parent.name] = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
    found = {str(root)}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found
