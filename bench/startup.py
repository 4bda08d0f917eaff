"""Compare starts with those of ``openstack``: ``--version``, ``--help``, and the time to the first request.

The commands alternate, so that other load on the machine affects all alike; the medians are compared.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import limits

ROUNDS = 15
PEERS = {
    "version": ("gpustack --version", "openstack --version"),
    "help": ("gpustack --help", "openstack --version"),
    "flavor_plan": ("gpustack flavor plan", "openstack flavor list"),
    "gpu_list": ("gpustack gpu list", "openstack flavor list"),
}
"""By limit: a command, and the command that it is a ratio to."""


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


class Listener:
    """A stand-in for Keystone that takes one connection and answers nothing: the time until it is asked is measured."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(60)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v3"

    def seconds_until_asked(self, command: list[str]) -> float:
        """The seconds from the start of a command to its first request; the command is then killed."""
        names = ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME", "OS_USER_DOMAIN_NAME", "OS_PROJECT_DOMAIN_NAME")
        variables = {**os.environ, **dict.fromkeys(names, "bench"), "OS_AUTH_URL": self.url}
        start = time.perf_counter()
        with subprocess.Popen(
            command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            connection, _ = self._socket.accept()
            end = time.perf_counter()
            os.killpg(process.pid, signal.SIGKILL)
            connection.close()
        return end - start


SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2"}
flavors: {g1: {gpus: {k4200: 1}, vcpus: 8, ram: 32GiB, disk: 40GiB}}
"""


def main() -> None:
    """Compare the ratios with their limits."""
    gpustack, openstack = program("gpustack", "nova-gpustack"), program("openstack", "python-openstackclient")
    listener = Listener()
    with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as directory:
        spec = Path(directory) / "gpustack.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        commands: dict[str, Callable[[], float]] = {
            "openstack --version": lambda: seconds([openstack, "--version"]),
            "openstack flavor list": lambda: listener.seconds_until_asked([openstack, "flavor", "list"]),
            "gpustack --version": lambda: seconds([gpustack, "--version"]),
            "gpustack --help": lambda: seconds([gpustack, "--help"]),
            "gpustack flavor plan": lambda: listener.seconds_until_asked([gpustack, "flavor", "plan", str(spec)]),
            "gpustack gpu list": lambda: listener.seconds_until_asked([gpustack, "gpu", "list"]),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(ROUNDS + 1):  # the first is a warm-up: byte code and caches
            for name, timed in commands.items():
                duration = timed()
                if number:
                    times[name].append(duration)
    medians = {name: statistics.median(found) for name, found in times.items()}
    limits.end(
        *(limits.check(f"startup.{name}", medians[command] / medians[peer]) for name, (command, peer) in PEERS.items())
    )


if __name__ == "__main__":
    main()
