"""A real Keystone, Nova API, Placement and Glance behind proxies, with compute nodes: for the faults of a change.

The compute nodes are rows in Nova's database and providers in Placement, as nova-compute writes them: no instance runs.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gpustack.cloud.compute import LOCK
from gpustack_demo.embedded.cloud import EmbeddedCloud
from support.cloudworld import Ran
from support.fleet_runs import execute
from support.proxy import Traffic, proxy

if TYPE_CHECKING:
    from openstack.connection import Connection

HOSTS = ("gpu1", "gpu2", "gpu3")
_PATHS = {"identity": "/v3", "compute": "/v2.1", "placement": "", "image": ""}
_SERVICE_VERSIONS = {"2025.2": 70, "2026.2": 74}
_API_TIMEOUT = 30.0
"""Seconds after which a service counts as silent: more than a busy machine needs for an answer."""
_BASE: dict[str, Any] = {
    "version": 1,
    "models": {
        "k4200": {"match": {"vendor": "10de", "product": "11b4"}},
        "p100": {"match": {"vendor": "10de", "product": "15f8"}},
    },
    "hosts": {"gpu1": ["k4200"], "gpu2": ["p100"]},
}
BEFORE: dict[str, Any] = {
    "flavors": {
        "kept": {"model": "k4200", "vcpus": 1, "ram": 64, "disk": 1, "access": ["research"]},
        "public": {"model": "p100", "vcpus": 1, "ram": 64, "disk": 1, "description": "of the old spec"},
        "private": {"model": "p100", "vcpus": 1, "ram": 64, "disk": 1, "access": ["research", "teaching"]},
    },
    "quotas": {"default": {"k4200": 1, "p100": 0}, "projects": {"research": {"k4200": 2, "p100": 4}}},
    "tenancy": {
        "aggregates": {
            "gpu-a": {"hosts": ["gpu1"], "projects": ["research"], "isolated": False},
            "gpu-b": {"hosts": ["gpu2"]},
        }
    },
}
"""The sections of the spec before."""
AFTER: dict[str, Any] = {
    "hosts": {"gpu1": ["k4200"], "gpu2": ["p100"], "gpu3": ["p100"]},
    "flavors": {
        "kept": {"model": "k4200", "vcpus": 1, "ram": 64, "disk": 1, "access": ["teaching"], "cpu_policy": "dedicated"},
        "new": {"model": "k4200", "vcpus": 2, "ram": 64, "disk": 1, "access": ["research"]},
        "windows": {"model": "p100", "vcpus": 2, "ram": 64, "disk": 1, "guest": "windows", "images": ["windows"]},
    },
    "quotas": {
        "default": {"k4200": 3, "p100": 0},
        "projects": {"research": {"k4200": 2, "p100": 1}, "teaching": {"p100": 2}},
    },
    "tenancy": {
        "aggregates": {
            "gpu-a": {"hosts": ["gpu2"], "projects": ["research", "teaching"], "isolated": False},
            "gpu-c": {"hosts": ["gpu1"], "projects": ["teaching"]},
        }
    },
}
"""Those of the spec after: something of each kind is created, changed and removed, and a default is renewed."""


@dataclass
class ChangingCloud:
    """The cloud, and the traffic to it."""

    cloud: EmbeddedCloud
    directory: Path
    traffic: Traffic = field(default_factory=Traffic)
    clouds_yaml: Path = Path()

    def spec(self, sections: dict[str, Any]) -> str:
        """Write a spec."""
        path = self.directory / "gpustack.yaml"
        path.write_text(yaml.safe_dump({**_BASE, "nova": {"release": self.cloud.release}, **sections}))
        return str(path)

    def run(self, *arguments: str) -> Ran:
        """Run a command of gpustack through the proxies."""
        return execute(self.clouds_yaml, *arguments)

    def applied(self, sections: dict[str, Any]) -> Ran:
        """Bring the cloud to a spec."""
        ran = self.run("cloud", "apply", self.spec(sections), "--yes", "--prune", "--jobs", "1")
        assert ran.code == 0, ran
        return ran

    def limit_time(self, seconds: float) -> None:
        """Set the seconds after which clients take a service for silent."""
        content = yaml.safe_load(self.clouds_yaml.read_text())
        content["clouds"]["embedded"]["api_timeout"] = seconds
        self.clouds_yaml.write_text(yaml.safe_dump(content))

    def reset(self, before: dict[str, Any]) -> None:
        """Restore a state of :data:`BEFORE`, also of what somebody else changed."""
        self.traffic.calm()
        with self.connection() as admin:
            for found in admin.compute.aggregates():
                if found.name == LOCK:
                    admin.compute.delete_aggregate(found)
            (image,) = admin.image.images()
            names = [key for key in ("hw_machine_type", "os_type") if key in _properties(admin, image.id)]
            if names:
                patch = [{"op": "remove", "path": f"/{name}"} for name in names]
                headers = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
                assert admin.image.patch(f"/images/{image.id}", json=patch, headers=headers).ok
            for flavor in admin.compute.flavors(is_public=None):
                admin.compute.delete_flavor(flavor)
        self.applied(BEFORE)
        rows = {name: rows for name, rows in before.items() if name != "flavors"}  # which have new ids
        assert {name: rows for name, rows in self.dump().items() if name != "flavors"} == rows

    def forget_unnamed_lock(self) -> None:
        """Delete the lock of a run that was killed before it named itself; the next run would wait for a minute."""
        named = self._rows("nova/api.sqlite", f"SELECT 1 {_AGGREGATE.format('aggregate_metadata').replace('!=', '=')}")
        if named or not self._rows("nova/api.sqlite", f"SELECT 1 FROM aggregates WHERE name = '{LOCK}'"):
            return
        with self.connection() as admin:
            for found in admin.compute.aggregates():
                if found.name == LOCK:
                    admin.compute.delete_aggregate(found)

    def connection(self) -> Connection:
        return self.cloud.connection()

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of all that a change writes, without ids and generations that the services assign."""
        tables = {
            name: self._rows(database, query)
            for database, queries in _TABLES.items()
            for name, query in queries.items()
        }
        return {**tables, "placement's aggregates": sorted(self._mirrored())}

    def _mirrored(self) -> Iterator[tuple[Any, ...]]:
        """Nova's aggregates as it mirrors them to the providers of their hosts."""
        names = dict(self._rows("nova/api.sqlite", "SELECT uuid, name FROM aggregates"))
        rows = self._rows(
            "placement/placement.sqlite",
            "SELECT p.name, a.uuid FROM resource_provider_aggregates m JOIN resource_providers p"
            " ON p.id = m.resource_provider_id JOIN placement_aggregates a ON a.id = m.aggregate_id",
        )
        yield from ((provider, names.get(aggregate, "deleted")) for provider, aggregate in rows)

    def _rows(self, database: str, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.cloud.directory / database)) as connection:
            return sorted(connection.execute(query), key=repr)


_AGGREGATE = f"FROM aggregates a JOIN {{}} m ON m.aggregate_id = a.id WHERE a.name != '{LOCK}'"
_TABLES = {
    "nova/api.sqlite": {
        "flavors": "SELECT name, flavorid, memory_mb, vcpus, swap, root_gb, ephemeral_gb, rxtx_factor, disabled,"
        " is_public, description FROM flavors",
        "extra specs": 'SELECT f.name, e."key", e.value FROM flavors f JOIN flavor_extra_specs e ON e.flavor_id = f.id',
        "access": "SELECT f.name, p.project_id FROM flavors f JOIN flavor_projects p ON p.flavor_id = f.id",
        "aggregates": f"SELECT name FROM aggregates WHERE name != '{LOCK}'",
        "hosts": f"SELECT a.name, m.host {_AGGREGATE.format('aggregate_hosts')}",
        "metadata": f'SELECT a.name, m."key", m.value {_AGGREGATE.format("aggregate_metadata")}',
    },
    "placement/placement.sqlite": {
        "traits": "SELECT p.name, t.name FROM resource_provider_traits h JOIN traits t ON t.id = h.trait_id"
        " JOIN resource_providers p ON p.id = h.resource_provider_id",
    },
    "keystone/keystone.sqlite": {
        "defaults": "SELECT resource_name, default_limit, description, region_id FROM registered_limit",
        "limits": "SELECT r.resource_name, l.project_id, l.resource_limit, l.description"
        ' FROM "limit" l JOIN registered_limit r ON r.id = l.registered_limit_id',
    },
    "glance/glance.sqlite": {
        "images": "SELECT i.name, i.owner, i.visibility, i.status, p.name, p.value FROM images i LEFT JOIN"
        " image_properties p ON p.image_id = i.id AND NOT p.deleted WHERE NOT i.deleted",
    },
}
"""By database, the queries of a dump."""


def _properties(admin: Connection, image: str) -> dict[str, str]:
    content: dict[str, str] = admin.image.get(f"/images/{image}").json()
    return content


@contextlib.contextmanager
def changing_cloud(
    release: str,
    directory: Path,
    *,
    hosts: Sequence[str] = HOSTS,
    projects: Sequence[str] = ("research", "teaching"),
    timeout: float = _API_TIMEOUT,
) -> Iterator[ChangingCloud]:
    """Start the cloud, with projects, an image, and compute nodes; nothing of gpustack is in it.

    :param timeout: the seconds after which clients take a service for silent.
    """
    with contextlib.ExitStack() as stack:
        cloud = stack.enter_context(EmbeddedCloud(release, images=True))
        world = ChangingCloud(cloud, directory)
        urls = {
            kind: f"http://127.0.0.1:{stack.enter_context(proxy(cloud.ports[kind], world.traffic))}{path}"
            for kind, path in _PATHS.items()
        }
        with cloud.connection() as admin:
            _register(admin, urls)
            for project in projects:
                body = {"project": {"name": project, "domain_id": "default"}}
                assert admin.identity.post("/projects", json=body).ok
            assert admin.image.post(
                "/images",
                json={"name": "windows", "visibility": "public", "container_format": "bare", "disk_format": "raw"},
            ).ok
            (image,) = admin.image.images()
            assert admin.image.put(
                f"/images/{image.id}/file", data=b"image", headers={"Content-Type": "application/octet-stream"}
            ).ok
            for number, host in enumerate(hosts, 100):
                _add_node(cloud, admin, host, number)
        content: dict[str, Any] = yaml.safe_load(cloud.clouds_yaml.read_text())
        content["clouds"]["embedded"]["auth"]["auth_url"] = urls["identity"]
        content["clouds"]["embedded"]["api_timeout"] = timeout
        world.clouds_yaml = directory / "clouds.yaml"
        world.clouds_yaml.write_text(yaml.safe_dump(content))
        world.clouds_yaml.chmod(0o600)
        stack.enter_context(_state_directory(directory / "state"))
        yield world


@contextlib.contextmanager
def _state_directory(path: Path) -> Iterator[None]:
    former = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(path)
    try:
        yield
    finally:
        os.environ.pop("XDG_STATE_HOME")
        if former is not None:
            os.environ["XDG_STATE_HOME"] = former


def _register(admin: Connection, urls: dict[str, str]) -> None:
    """Let clients use the proxies; the services themselves connect to one another directly."""
    kinds = {service["id"]: service["type"] for service in admin.identity.get("/services").json()["services"]}
    for endpoint in admin.identity.get("/endpoints").json()["endpoints"]:
        if endpoint["interface"] == "public":
            url = urls[kinds[endpoint["service_id"]]]
            assert admin.identity.patch(f"/endpoints/{endpoint['id']}", json={"endpoint": {"url": url}}).ok


def _add_node(cloud: EmbeddedCloud, admin: Connection, host: str, number: int) -> None:
    node = str(uuid.uuid4())
    now = "2026-11-24 09:00:00"
    service = {
        "created_at": now,
        "id": number,
        "host": host,
        "binary": "nova-compute",
        "topic": "compute",
        "report_count": 1,
        "disabled": 0,
        "deleted": 0,
        "forced_down": 0,
        "version": _SERVICE_VERSIONS[cloud.release],
        "uuid": str(uuid.uuid4()),
        "last_seen_up": now,
    }
    numbers = dict.fromkeys(("vcpus_used", "memory_mb_used", "local_gb_used", "running_vms", "current_workload"), 0)
    compute = {
        "created_at": now,
        "id": number,
        "vcpus": 8,
        "memory_mb": 8192,
        "local_gb": 100,
        **numbers,
        "hypervisor_type": "QEMU",
        "hypervisor_version": 8_000_000,
        "cpu_info": "{}",
        "hypervisor_hostname": host,
        "deleted": 0,
        "host": host,
        "host_ip": "127.0.0.1",
        "supported_instances": "[]",
        "uuid": node,
        "mapped": 1,
        "cpu_allocation_ratio": 1.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
    }
    _insert(cloud.directory / "nova/cell1.sqlite", "services", service)
    _insert(cloud.directory / "nova/cell1.sqlite", "compute_nodes", compute)
    with contextlib.closing(sqlite3.connect(cloud.directory / "nova/api.sqlite")) as database, database:
        (cell,) = database.execute("SELECT id FROM cell_mappings WHERE name = 'cell1'").fetchone()
    _insert(cloud.directory / "nova/api.sqlite", "host_mappings", {"created_at": now, "cell_id": cell, "host": host})
    assert admin.placement.post("/resource_providers", json={"name": host, "uuid": node}, microversion="1.20").ok


def _insert(path: Path, table: str, row: dict[str, Any]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))
