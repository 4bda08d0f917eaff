"""Nova's hosts: nova-compute services, host aggregates, hypervisors."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from gpustack.cloud import Connection
from gpustack.cloud.microversions import FORCED_DOWN, SILENT_CELLS, UUIDS
from gpustack.cloud.session import content_of, get, listing, newest, request, well_formed
from gpustack.nova_options.aggregates import Aggregate

_UNKNOWN = "UNKNOWN"
"""The status of services of a cell that does not answer."""
LOCK = "gpustack-lock"
"""The empty aggregate by which a run that changes the cloud locks out runs on other machines."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A nova-compute service.

    :ivar id: the service's id; empty if its cell does not answer, and only the name is known.
    :ivar host: the host as Nova names it (``[DEFAULT] host``).
    :ivar up: whether it has reported lately and is not forced down.
    :ivar reason: the reason that was given when it was disabled.
    :ivar seen: the time of the last report as Nova returns it; it changes with each report.
    :ivar answers: whether its cell answers; otherwise its state is unknown.
    :ivar mapped: whether Nova lists a compute node of the host, which it does not without a mapping to a cell.
    """

    id: str = ""
    host: str
    enabled: bool = True
    up: bool = True
    reason: str = ""
    forced_down: bool = False
    seen: str = ""
    answers: bool = True
    mapped: bool = True

    @property
    def state(self) -> str:
        """``up``; or ``down``, ``disabled`` or ``unmapped``, with which no new instance starts."""
        if not self.enabled or not self.up:
            return "down" if self.enabled else "disabled"
        return "up" if self.mapped else "unmapped"


@dataclass(frozen=True, kw_only=True)
class Hypervisor:
    """A compute node as Nova lists it.

    :ivar host: the host of its nova-compute, as aggregates list it.
    :ivar mapped: whether Nova lists it; if not, only the names are known.
    :ivar ram: free MiB.
    :ivar cpus: free vCPUs, without overcommitment.
    :ivar disk: free MiB.
    :ivar instances: how many of them Nova counts on it.
    :ivar qemu: the version of QEMU: ``8.2.2``; empty if it is unknown, or of another hypervisor.
    """

    uuid: str
    node: str
    host: str
    enabled: bool = True
    up: bool = True
    mapped: bool = True
    ram: int = 0
    cpus: int = 0
    disk: int = 0
    instances: int = 0
    qemu: str = ""


def services(cloud: Connection, host: str = "") -> tuple[Service, ...]:
    """List the nova-compute services of all cells: one request.

    :param host: only those of a host, by its exact name.
    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "list the nova-compute services"
    version = newest(cloud, FORCED_DOWN, UUIDS, SILENT_CELLS, doing=doing)
    query = f"&host={quote(host, safe='')}" if host else ""
    content = get(cloud, "compute", f"/os-services?binary=nova-compute{query}", doing, version=version)
    with well_formed(doing):
        return tuple(_service(entry) for entry in content["services"] if not host or entry["host"] == host)


def _service(entry: Mapping[str, Any]) -> Service:
    if entry["status"] == _UNKNOWN:
        return Service(host=str(entry["host"]), enabled=False, up=False, answers=False)
    return Service(
        id=str(entry.get("id") or ""),
        host=str(entry["host"]),
        enabled=entry["status"] == "enabled",
        up=entry["state"] == "up" and not entry.get("forced_down"),
        reason=str(entry.get("disabled_reason") or ""),
        forced_down=bool(entry.get("forced_down")),
        seen=str(entry.get("updated_at") or ""),
    )


def aggregates(cloud: Connection) -> list[Aggregate]:
    """List the host aggregates, without :data:`LOCK`: one request.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    return [found for found in _all_aggregates(cloud) if found.name != LOCK]


def lock(cloud: Connection) -> Aggregate | None:
    """Return the aggregate :data:`LOCK`; None if no run has it.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    return next((found for found in _all_aggregates(cloud) if found.name == LOCK), None)


def _all_aggregates(cloud: Connection) -> list[Aggregate]:
    doing = "list aggregates"
    content = get(cloud, "compute", "/os-aggregates", doing, version=UUIDS)
    with well_formed(doing):
        return [_aggregate(entry) for entry in content["aggregates"]]


def _aggregate(entry: Mapping[str, Any]) -> Aggregate:
    created = entry.get("created_at")
    return Aggregate(
        name=str(entry["name"]),
        hosts=frozenset(map(str, entry["hosts"])),
        metadata={str(name): str(value) for name, value in (entry["metadata"] or {}).items()},
        id=int(entry.get("id") or 0),
        uuid=str(entry.get("uuid") or ""),
        created=datetime.fromisoformat(str(created)).replace(tzinfo=UTC) if created else None,
    )


def create_aggregate(cloud: Connection, name: str) -> int:
    """Create an aggregate without hosts, and return its id.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = f"create the aggregate {name}"
    body = {"aggregate": {"name": name}}
    content = content_of(request(cloud, "compute", "POST", "/os-aggregates", doing, version=UUIDS, body=body), doing)
    with well_formed(doing):
        return int(content["aggregate"]["id"])


def change_aggregate(cloud: Connection, aggregate: int, action: str, body: Mapping[str, object]) -> None:
    """Change an aggregate.

    :param action: ``set_metadata`` (None removes a key), ``add_host`` or ``remove_host``.
    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = action.replace("_", " ") + " of an aggregate"
    path = f"/os-aggregates/{aggregate}/action"
    request(cloud, "compute", "POST", path, doing, version=UUIDS, body={action: body})


def delete_aggregate(cloud: Connection, aggregate: int) -> None:
    """Delete an aggregate.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    request(cloud, "compute", "DELETE", f"/os-aggregates/{aggregate}", "delete an aggregate", version=UUIDS)


def quotas(cloud: Connection, project: str) -> dict[str, tuple[int, int]]:
    """The quotas of a project that an instance counts against, with their use: limit and use; -1 is unlimited.

    :param project: its id.
    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read the quotas of a project"
    content = get(cloud, "compute", f"/limits?tenant_id={quote(project, safe='')}", doing, version=UUIDS)
    with well_formed(doing):
        limits = content["limits"]["absolute"]
        return {
            name: (int(limits[f"maxTotal{limit}"]), int(limits[f"total{used}Used"]))
            for name, limit, used in (
                ("instances", "Instances", "Instances"),
                ("cores", "Cores", "Cores"),
                ("ram", "RAMSize", "RAM"),
            )
        }


def hypervisors(cloud: Connection) -> list[Hypervisor]:
    """List the compute nodes: one request for each thousand.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "list hypervisors"
    entries = listing(cloud, "compute", "/os-hypervisors/detail?", "hypervisors", doing, version=UUIDS)
    with well_formed(doing):
        return [_hypervisor(entry) for entry in entries]


def _hypervisor(entry: Mapping[str, Any]) -> Hypervisor:
    # Empty until the host's nova-compute has reported them.
    disk, least = int(entry.get("free_disk_gb") or 0), entry.get("disk_available_least")
    version = int(entry.get("hypervisor_version") or 0) if entry.get("hypervisor_type") == "QEMU" else 0
    return Hypervisor(
        uuid=str(entry["id"]),
        node=str(entry["hypervisor_hostname"]),
        host=str(entry["service"]["host"]),
        enabled=entry["status"] == "enabled",
        up=entry["state"] == "up",
        ram=int(entry.get("free_ram_mb") or 0),
        cpus=int(entry.get("vcpus") or 0) - int(entry.get("vcpus_used") or 0),
        disk=(disk if least is None else min(disk, int(least))) * 1024,
        instances=int(entry.get("running_vms") or 0),
        qemu=f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}" if version else "",
    )
