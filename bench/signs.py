#!/usr/bin/env python3
"""The reader of kernel logs against the one before it, on a healthy log of 4 MiB, as ratios of one run.

    python bench/signs.py [COMMIT]

COMMIT has the earlier reader (gpustack/offer/guest/inside/messages.py with its own patterns); it must be in the
repository's history. The log is this file's boot of a host with 200 functions, repeated.
"""

from __future__ import annotations

import subprocess
import sys
import time
import types
from collections.abc import Callable

import limits

from gpustack.hosts.facts import bundle
from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import bundle as guest_bundle

BEFORE = "8edc5ea3"
SIZE = 4 << 20


def earlier(commit: str, path: str) -> str:
    return subprocess.run(["git", "show", f"{commit}:{path}"], check=True, capture_output=True, text=True).stdout


def healthy() -> list[str]:
    """A boot log without trouble."""
    texts = [
        "pci 0000:{n:02x}:00.0: [8086:1521] type 00 class 0x020000 PCIe Endpoint",
        "pci 0000:{n:02x}:00.0: BAR 0 [mem 0xc5c00000-0xc5cfffff]: assigned",
        "pcieport 0000:{n:02x}:03.0: PME: Signaling with IRQ 26",
        "usb 1-{n}: New USB device found, idVendor=0557, idProduct=9241, bcdDevice= 5.04",
        "systemd[1]: Started session-{n}.scope - Session {n} of User operator.",
        'audit: type=1400 audit(1764000000.{n:03}:2): apparmor="STATUS" operation="profile_load"',
        "EXT4-fs (sda{n}): mounted filesystem with ordered data mode. Quota mode: none.",
        "igb 0000:{n:02x}:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX/TX",
    ]
    lines, size, number = [], 0, 0
    while size < SIZE:
        line = f"[{number // 10:5}.{number % 10}00000] " + texts[number % len(texts)].format(n=number // 8 % 200)
        lines.append(line)
        size += len(line) + 1
        number += 1
    return lines


def seconds(read: Callable[[], object]) -> float:
    """The shortest of three runs."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        read()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    commit = sys.argv[1] if len(sys.argv) > 1 else BEFORE
    module = types.ModuleType("earlier")
    exec(compile(earlier(commit, "gpustack/offer/guest/inside/messages.py"), "messages.py", "exec"), module.__dict__)  # noqa: S102
    log = healthy()
    old, new = seconds(lambda: module.events(log)), seconds(lambda: table().events(log))
    patterns = len(module._OF_LINE) + len(module._OF_NVIDIA)
    print(f"lines: {len(log)}; signs: {len(table().rows) + len(table().numbers)} and {patterns} before")
    print(f"bundle of the guest check: {len(guest_bundle.program())} bytes; of the collector: {len(bundle.program())}")
    limits.end(limits.check("signs.time", new / old))


if __name__ == "__main__":
    main()
