"""Measure the effect of repeated ``gpustack cleanup plan`` on the request times of a Nova with the same database.

    .venv/bin/python bench/cleanup_beside_nova.py [ROUNDS [mariadb|postgresql]]

Rounds with and without the plan alternate; in each, guests are listed, booted and deleted through the API. Limit: the
median request takes at most twice as long during a plan that never pauses.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import limits
from openstack.connection import Connection

from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.database import DatabaseServer
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus

CONFIG = """
[pci]
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
alias = {"vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI", "name": "gpu"}
"""
LOOKS = 20


def plans(nova_conf: Path, go: Event, counter: object) -> None:
    """Plan repeatedly while ``go`` is set, and count the plans."""
    sources = Sources.from_nova_conf([nova_conf])
    while go.wait():
        plan.make(sources, Selection())
        with counter.get_lock():  # type: ignore[attr-defined]
            counter.value += 1  # type: ignore[attr-defined]


def timed(work: Callable[[], object]) -> float:
    """The duration of a call in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def round_(cloud: Connection, flavor: object, number: int) -> tuple[list[float], float]:
    """The seconds of each listing of the guests, and of booting and deleting a guest."""
    looks = [timed(lambda: list(cloud.compute.servers(details=True))) for _look in range(LOOKS)]
    life = timed(lambda: servers.delete(cloud, servers.boot(cloud, f"vm{number}", flavor)))  # type: ignore[arg-type]
    return looks, life


def main() -> None:
    """Measure, print, and check the limit."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    kind = sys.argv[2] if len(sys.argv) > 2 else "mariadb"
    hosts = [EmbeddedHost(name=f"gpu{number}", pci=gpus(8)) for number in range(3)]
    spawn = multiprocessing.get_context("spawn")
    go, counter = spawn.Event(), spawn.Value("i", 0)
    with (
        DatabaseServer(kind) as server,
        EmbeddedNova("2025.2", hosts=hosts, config=[CONFIG], database=server.url) as nova,
        nova.connection() as cloud,
    ):
        planner = spawn.Process(target=plans, args=(nova.nova_conf, go, counter), daemon=True)
        planner.start()
        flavor = servers.gpu_flavor(cloud, "gpu", "gpu")
        for number in range(8):
            servers.boot(cloud, f"first{number}", flavor)
        looks: dict[bool, list[float]] = {True: [], False: []}
        lives: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * rounds):
            planning = bool(number % 2)
            (go.set if planning else go.clear)()
            seconds, life = round_(cloud, flavor, number)
            looks[planning] += seconds
            lives[planning].append(life)
        planner.terminate()
    ratios = [statistics.median(of[True]) / statistics.median(of[False]) for of in (looks, lives)]
    print(
        f"{kind}: {counter.value} plans beside {rounds} rounds; a list of guests takes {ratios[0]:.2f} times as long "
        f"({statistics.median(looks[False]) * 1000:.0f} ms alone), boot and delete {ratios[1]:.2f} times "
        f"({statistics.median(lives[False]):.2f} s alone)"
    )
    assert counter.value >= rounds
    limits.end(limits.check("cleanup_beside_nova.list", ratios[0]))


if __name__ == "__main__":
    main()
