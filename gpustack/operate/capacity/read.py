"""Ask Nova and Placement for the compute nodes, their free resources, and whether they accept a flavor.

Placement's allocation candidates for one MiB have the complete tree of every host in one request. A further request per
flavor shows the hosts that Placement accepts for it: they depend on traits, and on the most that one instance may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from gpustack.cloud.session import Refused
from gpustack.fleet.placement import VERSION
from gpustack.fleet.requests import Progress, each, get, pages, silent, well_formed
from gpustack.operate.capacity.model import Demand, Free

if TYPE_CHECKING:
    from openstack.connection import Connection

_NOVA = "2.53"
"""Pike: the first microversion with the uuid of a hypervisor; those after 2.87 lack its free resources."""
_CLOSED = "COMPUTE_STATUS_DISABLED"
_BAD = 400
"""The answer of a Placement that does not know a trait or a resource class."""


@dataclass(frozen=True, kw_only=True)
class Hypervisor:
    """A compute node as Nova lists it.

    :ivar host: the host of its nova-compute.
    """

    uuid: str
    node: str
    host: str
    enabled: bool
    up: bool
    free: Free


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """Free amounts by the uuid of compute nodes.

    :ivar capacities: the amounts without any instance.
    :ivar shared: the compute nodes whose disk is that of another provider.
    """

    amounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    capacities: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()


def hypervisors(cloud: Connection) -> list[Hypervisor]:
    """List the compute nodes: one request for each thousand.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "list hypervisors"
    with_pages = pages(cloud, "/os-hypervisors/detail?", "hypervisors", doing, version=_NOVA)
    entries = [entry for page in with_pages for entry in page]
    with well_formed(doing):
        return [_hypervisor(entry) for entry in entries]


def _hypervisor(entry: Mapping[str, Any]) -> Hypervisor:
    # Empty until the host's nova-compute has reported them.
    disk, least = int(entry["free_disk_gb"] or 0), entry.get("disk_available_least")
    return Hypervisor(
        uuid=str(entry["id"]),
        node=str(entry["hypervisor_hostname"]),
        host=str(entry["service"]["host"]),
        enabled=entry["status"] == "enabled",
        up=entry["state"] == "up",
        free=Free(
            ram=int(entry["free_ram_mb"] or 0),
            cpus=int(entry["vcpus"] or 0) - int(entry["vcpus_used"] or 0),
            disk=(disk if least is None else min(disk, int(least))) * 1024,
        ),
    )


def rooms(cloud: Connection, nodes: Iterable[str]) -> Rooms:
    """Return the free resources of compute nodes: one request, and one for each node that its answer lacks.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    summaries = _candidates(cloud, "resources=MEMORY_MB:1")
    missing = [node for node in nodes if node not in summaries]
    for answer in each(lambda node: _candidates(cloud, f"resources=MEMORY_MB:1&in_tree={node}"), missing):
        summaries |= answer
    amounts: dict[str, dict[str, int]] = {}
    capacities: dict[str, dict[str, int]] = {}
    pooled = False
    with well_formed("read the free resources"):
        for uuid, summary in summaries.items():
            free = {name: int(of["capacity"]) - int(of["used"]) for name, of in summary["resources"].items()}
            if uuid == summary["root_provider_uuid"]:
                amounts[uuid] = free
                capacities[uuid] = {name: int(of["capacity"]) for name, of in summary["resources"].items()}
                pooled |= "DISK_GB" in free and "MEMORY_MB" not in free
    lacking = frozenset(uuid for uuid, free in amounts.items() if "DISK_GB" not in free)
    return Rooms(amounts=amounts, capacities=capacities, shared=lacking if pooled else frozenset())


def accepted(cloud: Connection, demand: Demand, nodes: Collection[str], progress: Progress = silent) -> frozenset[str]:
    """Return the compute nodes on which Placement accepts one instance of a flavor, regardless of its devices.

    One request, and one for each of ``nodes`` that its answer lacks: Placement may limit the candidates.

    :param nodes: the compute nodes that have room.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    traits = [*sorted(demand.required), *(f"!{name}" for name in sorted({*demand.forbidden, _CLOSED}))]
    resources = ",".join(f"{name}:{amount}" for name, amount in sorted(demand.amounts.items()))
    query = urlencode({"resources": resources, "required": ",".join(traits)})
    try:
        accepting = set(_candidates(cloud, query))
        missing = [node for node in nodes if node not in accepting]
        for answer in each(lambda node: _candidates(cloud, f"{query}&in_tree={node}"), missing, progress):
            accepting |= answer.keys()
    except Refused as error:
        if error.status == _BAD:
            return frozenset()  # nobody has a trait or a resource class that Placement does not know
        raise
    return frozenset(accepting)


def _candidates(cloud: Connection, query: str) -> dict[str, Mapping[str, Any]]:
    """The summaries of all providers in the trees of the hosts that fit."""
    doing = "read the free resources"
    content = get(cloud, "placement", f"/allocation_candidates?{query}", doing, version=VERSION)
    with well_formed(doing):
        return dict(content["provider_summaries"])
