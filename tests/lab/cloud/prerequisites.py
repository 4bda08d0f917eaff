"""What a machine must have before anything of the cloud lab starts."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpustack_demo.embedded import database

from ..errors import LabError

GIBIBYTE = 1 << 30
MEMORY = 10 * GIBIBYTE
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
REMEDY = "run: tests/lab/setup cloud"
_LIMIT = Path("/sys/fs/cgroup/memory.max")
_USED = Path("/sys/fs/cgroup/memory.current")
_CACHES = Path("/sys/fs/cgroup/memory.stat")


def check() -> None:
    """Raise LabError when this machine lacks memory or packages."""
    free = free_memory()
    if free < MEMORY:
        raise LabError(
            f"this machine has {free / GIBIBYTE:.1f} GiB of free memory; the cloud lab needs {MEMORY // GIBIBYTE} GiB"
        )
    missing = [] if database.find("mariadb") else ["MariaDB"]
    missing += [] if RABBITMQ.exists() and shutil.which("epmd") else ["RabbitMQ"]
    if missing:
        raise LabError(f"{' and '.join(missing)} not installed; {REMEDY}")


def free_memory() -> int:
    """The bytes that new processes can get, within the control group's limit."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next(int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:")
    try:
        limit = int(_LIMIT.read_text())  # "max" without a limit
        used = int(_USED.read_text())
        caches = sum(
            int(line.split()[1]) for line in _CACHES.read_text().splitlines() if line.startswith("inactive_file")
        )
    except (OSError, ValueError):
        return free
    return min(free, limit - used + caches)
