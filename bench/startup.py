"""Compare ``gpustack --version`` and ``--help`` with ``openstack --version``: at most a quarter of its time.

The commands alternate, so that other load on the machine affects all alike; the medians are compared.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
LIMIT = 0.25


def program(name: str, distribution: str) -> str:
    """A program of this environment, installed if it is missing."""
    here = str(Path(sys.executable).parent)
    if not shutil.which(name, path=here):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", distribution], check=True)
    found = shutil.which(name, path=here)
    assert found, f"{distribution} brings no {name}"
    return found


def seconds(command: list[str]) -> float:
    """The duration of one start in seconds."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Print the ratios; return 1 if one is above the limit."""
    gpustack, openstack = program("gpustack", "nova-gpustack"), program("openstack", "python-openstackclient")
    commands = {
        "openstack --version": [openstack, "--version"],
        "gpustack --version": [gpustack, "--version"],
        "gpustack --help": [gpustack, "--help"],
    }
    for command in commands.values():
        seconds(command)  # warm-up: byte code and caches
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(found) for name, found in times.items()}
    reference = medians.pop("openstack --version")
    print(f"openstack --version: {reference * 1000:.0f} ms")
    for name, median in medians.items():
        ratio = median / reference
        print(f"{name}: {median * 1000:.0f} ms, ratio {ratio:.2f} (at most {LIMIT})")
    return int(any(median / reference > LIMIT for median in medians.values()))


if __name__ == "__main__":
    sys.exit(main())
