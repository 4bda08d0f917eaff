"""Ask Placement for the free resources of compute nodes, and whether they accept a flavor.

Placement's allocation candidates for one MiB have the complete tree of every host in one request. A further request per
flavor shows the hosts that Placement accepts for it: they depend on traits, and on the most that one instance may have.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from gpustack.cloud import Connection
from gpustack.cloud.placement import DISABLED, UNKNOWN, candidates, listed
from gpustack.cloud.session import Progress, Refused, each, silent, well_formed
from gpustack.operate.capacity.model import PlacementRequest


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """Free amounts by the uuid of compute nodes.

    :ivar capacities: the amounts without any instance.
    :ivar shared: the compute nodes whose disk is that of another provider.
    """

    amounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    capacities: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()


def rooms(cloud: Connection, nodes: Iterable[str]) -> Rooms:
    """Return the free resources of compute nodes: one request, unless Placement limits the candidates.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    summaries = _candidates(cloud, "resources=MEMORY_MB:1")
    missing = _possible(cloud, [node for node in nodes if node not in summaries], {"MEMORY_MB": 1})
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


def accepted(
    cloud: Connection, demand: PlacementRequest, nodes: Collection[str], progress: Progress = silent
) -> frozenset[str]:
    """Return the compute nodes on which Placement accepts a request for one instance, regardless of its devices.

    One request. If its answer lacks some of ``nodes``, Placement may limit the candidates: then one for each resource
    class, and one for each node that has them all.

    :param demand: one of Nova's requests.
    :param nodes: the compute nodes that have room.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    traits = [*sorted(demand.required), *(f"!{name}" for name in sorted({*demand.forbidden, DISABLED}))]
    resources = ",".join(f"{name}:{amount}" for name, amount in sorted(demand.amounts.items()))
    query = urlencode({"resources": resources, "required": ",".join(traits)})
    try:
        accepting = set(_candidates(cloud, query))
        missing = _possible(cloud, [node for node in nodes if node not in accepting], demand.amounts)
        for answer in each(lambda node: _candidates(cloud, f"{query}&in_tree={node}"), missing, progress):
            accepting |= answer.keys()
    except Refused as error:
        if error.status == UNKNOWN:
            return frozenset()  # nobody has a trait or a resource class that Placement does not know
        raise
    return frozenset(accepting)


def _possible(cloud: Connection, nodes: list[str], amounts: Mapping[str, int]) -> list[str]:
    """The nodes that have a provider with each amount free. Placement's list of providers has no limit.

    A resource class of a request is never split between providers; disk may be that of a sharing provider.
    """
    for name, amount in sorted(amounts.items()):
        if nodes and name != "DISK_GB":
            having = {provider.root for provider in listed(cloud, urlencode({"resources": f"{name}:{amount}"}))}
            nodes = [node for node in nodes if node in having]
    return nodes


def _candidates(cloud: Connection, query: str) -> dict[str, Mapping[str, Any]]:
    """The summaries of all providers in the trees of the hosts that fit."""
    return candidates(cloud, query).summaries
