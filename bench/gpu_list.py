"""Read 448 GPUs from a real Placement, and compare with openstack-exporter and a loop of ``openstack`` commands.

    .venv/bin/python bench/gpu_list.py [HOSTS]

56 compute nodes with eight GPUs each, five of them allocated, are written into the database of an embedded Placement.
A proxy delays each request by 20 ms, as a network and a busy Placement do.
The exporter lists the providers and reads inventories, usages and traits of each, one after the other, without owners.
One ``openstack flavor list`` is measured; a loop needs a command for each instance.
"""

from __future__ import annotations

import sqlite3
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import limits

from gpustack.fleet import placement
from gpustack_demo.embedded.cloud import EmbeddedCloud

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.proxy import Traffic, proxy

if TYPE_CHECKING:
    from openstack.connection import Connection

GPUS, USED, LATENCY = 8, 5, 0.02
_CLASS, _TRAIT = "CUSTOM_PCI_10DE_11B4", "COMPUTE_MANAGED_PCI_DEVICE"
_NOW = "2026-01-01 00:00:00"
_BEYOND = 10_000
"""The id of the first row; lower ones may exist."""


def fill(path: Path, hosts: int) -> list[str]:
    """Write compute nodes with GPUs and the allocations of instances; return the instances."""
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        (gpu,) = database.execute("SELECT id FROM resource_classes WHERE name = ?", (_CLASS,)).fetchone()
        (memory,) = database.execute("SELECT id FROM resource_classes WHERE name = 'MEMORY_MB'").fetchone()
        (trait,) = database.execute("SELECT id FROM traits WHERE name = ?", (_TRAIT,)).fetchone()
        database.execute("INSERT OR IGNORE INTO projects (id, external_id) VALUES (?, 'p1')", (_BEYOND,))
        database.execute("INSERT OR IGNORE INTO users (id, external_id) VALUES (?, 'u1')", (_BEYOND,))
        number, instances = _BEYOND, []

        def provider(name: str, root: int, parent: int | None, kind: int, total: int) -> int:
            nonlocal number
            number += 1
            root = root or number
            database.execute(
                "INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id)"
                " VALUES (?, ?, ?, 1, ?, ?)",
                (number, str(uuid.uuid4()), name, root, parent),
            )
            database.execute(
                "INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit,"
                " step_size, allocation_ratio) VALUES (?, ?, ?, 0, 1, ?, 1, 1.0)",
                (number, kind, total, total),
            )
            return number

        for host in range(hosts):
            root = provider(f"gpu{host:04}", 0, None, memory, 1 << 20)
            for bus in range(GPUS):
                device = provider(f"gpu{host:04}_0000:{0x81 + bus:02x}:00.0", root, root, gpu, 1)
                statement = "INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (?, ?)"
                database.execute(statement, (trait, device))
                if bus < USED:
                    instances.append(str(uuid.uuid4()))
                    database.execute(
                        "INSERT INTO consumers (uuid, project_id, user_id, generation) VALUES (?, ?, ?, 1)",
                        (instances[-1], _BEYOND, _BEYOND),
                    )
                    database.execute(
                        "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)"
                        " VALUES (?, ?, ?, 1)",
                        (device, instances[-1], gpu),
                    )
    return instances


def exporter(cloud: Connection) -> int:
    """The requests of openstack-exporter; returns their number."""
    listed = cloud.placement.get("/resource_providers", microversion="1.31").json()["resource_providers"]
    for entry in listed:
        for part in ("inventories", "usages", "traits"):
            assert cloud.placement.get(f"/resource_providers/{entry['uuid']}/{part}", microversion="1.31").ok
    return 1 + 3 * len(listed)


def main() -> None:
    """Measure, print, and check the limits."""
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 56
    with (
        EmbeddedCloud("2025.2") as nova,
        nova.connection() as cloud,
        proxy(nova.ports["placement"], Traffic(latency=LATENCY)) as port,
    ):
        url = urlsplit(str(cloud.placement.get_endpoint()))
        cloud.placement.endpoint_override = url._replace(netloc=f"127.0.0.1:{port}").geturl()
        assert cloud.placement.put(f"/resource_classes/{_CLASS}", microversion="1.31").ok
        instances = fill(nova.directory / "placement" / "placement.sqlite", hosts)
        begun = time.perf_counter()
        devices = placement.devices(cloud) or ()
        states = time.perf_counter() - begun
        assert len(devices) == hosts * GPUS
        assert sum(device.used for device in devices) == len(instances) == hosts * USED
        known = {device.uuid for device in devices}
        held = placement.consumers(cloud, instances, known)
        complete = time.perf_counter() - begun
        assert sum(len(consumer.devices) for consumer in held) == len(instances)
        begun = time.perf_counter()
        requests = exporter(cloud)
        others = time.perf_counter() - begun
        begun = time.perf_counter()
        nova.openstack("flavor", "list")
        commands = (time.perf_counter() - begun) * len(instances)
    print(f"{len(devices)} GPUs: states {states:.2f} s; with holders {complete:.2f} s ({2 + len(instances)} requests)")
    print(f"openstack-exporter, without holders: {others:.2f} s ({requests} requests)")
    print(f"a loop of openstack commands, computed from one: {commands:.0f} s")
    limits.end(
        limits.check("gpu_list.exporter", complete / others), limits.check("gpu_list.commands", complete / commands)
    )


if __name__ == "__main__":
    main()
