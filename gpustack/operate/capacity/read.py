"""Ask Placement for the free resources of compute nodes, and whether they accept a flavor.

Placement's allocation candidates for one MiB have the complete tree of every host in one request. A further request per
flavor lists the hosts that Placement accepts for it: they depend on traits, and on the most that one instance may have.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from gpustack.cloud import Connection
from gpustack.cloud.microversions import CANDIDATES
from gpustack.cloud.placement import DISABLED, UNKNOWN, candidates, listed, summaries
from gpustack.cloud.session import Progress, each, silent, tolerating, well_formed
from gpustack.operate.capacity.model import PlacementRequest

_SHARING = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of providers that share their resources, such as disk, with the nodes of an aggregate."""


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """Free amounts by the uuid of compute nodes.

    :ivar capacities: the amounts without any instance.
    :ivar traits: those of the compute nodes themselves.
    :ivar shared: the compute nodes whose disk is that of another provider.
    """

    amounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    capacities: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    traits: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()


def rooms(cloud: Connection, nodes: Iterable[str]) -> Rooms:
    """Return the free resources of compute nodes: one request, unless Placement limits the candidates.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "read the free resources"
    found = summaries(cloud, "MEMORY_MB", nodes, doing)
    with well_formed(doing):
        roots = {uuid: each["resources"].items() for uuid, each in found.items() if uuid == each["root_provider_uuid"]}
        capacities = {uuid: {name: int(of["capacity"]) for name, of in each} for uuid, each in roots.items()}
        used = {uuid: {name: int(of["used"]) for name, of in each} for uuid, each in roots.items()}
        traits = {uuid: frozenset(map(str, found[uuid].get("traits") or ())) for uuid in roots}
    amounts = {uuid: {name: total - used[uuid][name] for name, total in of.items()} for uuid, of in capacities.items()}
    pooled = any("DISK_GB" in free and "MEMORY_MB" not in free for free in amounts.values())
    lacking = frozenset(uuid for uuid, free in amounts.items() if "DISK_GB" not in free)
    shared = lacking if pooled else frozenset[str]()
    return Rooms(amounts=amounts, capacities=capacities, traits=traits, shared=shared)


def accepted(
    cloud: Connection, demand: PlacementRequest, nodes: Collection[str], progress: Progress = silent
) -> frozenset[str] | None:
    """Return the compute nodes on which Placement accepts a request for one instance, regardless of its devices.

    None if Placement does not know a trait: then it refuses the request, also if the trait is a forbidden one.

    One request: Placement's list of the nodes that have all amounts and traits themselves, which no setting limits. For
    nodes that are not in it, one for each resource class and trait. The allocation candidates are only requested for
    nodes that may have a part from another provider, and Placement may limit these.

    :param demand: one of Nova's requests.
    :param nodes: the compute nodes that have room.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    forbidden = [f"!{name}" for name in sorted({*demand.forbidden, DISABLED})]
    resources = ",".join(f"{name}:{amount}" for name, amount in sorted(demand.amounts.items()))
    query = _query(resources, [*sorted(demand.required), *forbidden])
    with tolerating(UNKNOWN):
        accepting = {provider.uuid for provider in listed(cloud, query, version=CANDIDATES)}
        if missing := _possible(cloud, [node for node in nodes if node not in accepting], demand, forbidden):
            accepting |= candidates(cloud, query).summaries.keys()
            missing = [node for node in missing if node not in accepting]
        for answer in each(lambda node: candidates(cloud, f"{query}&in_tree={node}").summaries, missing, progress):
            accepting |= answer.keys()
        return frozenset(accepting)
    return None


def _possible(cloud: Connection, nodes: list[str], demand: PlacementRequest, forbidden: list[str]) -> list[str]:
    """The nodes that have a provider with each amount free, and each trait. Placement's list of providers has no limit.

    A resource class of a request is never split between providers; disk, and traits with it, may be those of a sharing
    provider.
    """
    queries = [_query(f"{name}:{n}", forbidden) for name, n in sorted(demand.amounts.items()) if name != "DISK_GB"]
    if nodes and demand.required and not listed(cloud, _query("", [_SHARING])):
        queries += [_query("", [name]) for name in sorted(demand.required)]
    for query in queries if nodes else ():
        having = {provider.root for provider in listed(cloud, query, version=CANDIDATES)}
        nodes = [node for node in nodes if node in having]
    return nodes


def _query(resources: str, traits: list[str]) -> str:
    return urlencode({**({"resources": resources} if resources else {}), "required": ",".join(traits)})
