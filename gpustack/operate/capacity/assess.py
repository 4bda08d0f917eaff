"""Read the cloud and count what fits, for all flavors of a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import UsageError
from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud import Connection, compute
from gpustack.cloud.flavors import Flavor, FlavorCloud
from gpustack.cloud.session import Progress, silent
from gpustack.fleet.cards import models_of
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet
from gpustack.fleet.read import OTHER_CLOUD, Databases, Detail, Given
from gpustack.fleet.read import read as read_fleet
from gpustack.hosts.facts.model import Host as Facts
from gpustack.nova_options.aggregates import Aggregate
from gpustack.nova_options.scheduler import Scheduler
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.operate.capacity import read
from gpustack.operate.capacity.aggregates import ZONE, with_faults
from gpustack.operate.capacity.count import capacity
from gpustack.operate.capacity.flavors import demands
from gpustack.operate.capacity.hosts import Sources, hosts
from gpustack.operate.capacity.model import Accepted, Capacity, Demand, Host, Reason
from gpustack.operate.capacity.room import Room
from gpustack.operate.capacity.walk import walk
from gpustack.spec.model import Spec

if TYPE_CHECKING:
    from gpustack.novadb.model import NodeResources

_AFTER_PLACEMENT = frozenset(
    {Reason.FRAGMENTS, Reason.NUMA, Reason.AGGREGATE, Reason.INSTANCES, Reason.GROUP, Reason.DOWN, Reason.CELL}
)
"""The reasons of steps that Nova reaches only with hosts that Placement accepts."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The hosts of a cloud with their free resources.

    :ivar gaps: everything that could not be read.
    :ivar scheduler: the options of nova-scheduler that are known.
    :ivar flavors: the flavors of the cloud by name; None if they were not read.
    :ivar placed: the host of each instance on one, by its id.
    :ivar aggregates: all aggregates of the cloud.
    """

    hosts: tuple[Host, ...]
    gaps: tuple[str, ...] = ()
    scheduler: Scheduler = field(default_factory=Scheduler)
    flavors: Mapping[str, Flavor] | None = None
    placed: Mapping[str, str] = field(default_factory=dict)
    aggregates: Sequence[Aggregate] = ()


def state(
    cloud: Connection,
    spec: Spec,
    *,
    fleet: Fleet | None = None,
    facts: Sequence[Facts] = (),
    databases: Databases | None = None,
    scheduler: Scheduler | None = None,
    zone: str = "",
    empty: bool = False,
    progress: Progress = silent,
) -> State:
    """Read the hosts.

    :param fleet: the GPUs in service, if they were read before with the same facts and databases.
    :param facts: the hosts of a snapshot.
    :param databases: the cell databases, for NUMA nodes, and for free GPUs without PCI in Placement.
    :param scheduler: the options of nova-scheduler, if they are known.
    :param zone: the availability zone of the instances; empty for that of the scheduler's options, else any.
    :param empty: as if there were no instances; NUMA nodes are then not considered.
    :raises CloudError: if Nova or Placement does not answer.
    :raises UsageError: if no aggregate has the zone.
    """
    found = None if databases is None else databases()
    placed: dict[str, str] = {}
    if fleet is None:
        given = Given(hosts=tuple(facts), models=models_of(spec, scheduler), spec=spec)
        # Rows also have the GPUs that are in use. Without them, devices that are free in Nova and Placement are enough.
        rows = (lambda: found) if empty and found is not None else None
        answers = read_fleet(lambda: cloud, Detail.STATES, given, rows, progress)
        fleet, placed = join(answers), {server.id: server.host for server in answers.servers or () if server.host}
    hypervisors, aggregates = compute.hypervisors(cloud), compute.aggregates(cloud)
    known = scheduler or Scheduler()
    computes: Mapping[str, NodeResources] = {}
    problems: Sequence[str] = ()
    if found is not None and found.with_hosts and not empty:
        from gpustack.novadb.node_resources import read as read_cells

        computes, problems = read_cells(found.with_hosts)
        if computes and computes.keys().isdisjoint(hypervisor.uuid for hypervisor in hypervisors):
            problems = [*problems, OTHER_CLOUD]
    sources = Sources(
        fleet=fleet,
        hypervisors=hypervisors,
        rooms=read.rooms(cloud, [hypervisor.uuid for hypervisor in hypervisors]),
        computes=computes,
        facts=facts,
        aggregates=aggregates,
        zone=_zone(aggregates, zone, known),
        scheduler=scheduler,
    )
    return State(
        hosts=hosts(spec, sources, empty=empty),
        gaps=tuple(dict.fromkeys((*fleet.gaps, *problems))),
        scheduler=known,
        flavors={flavor.name: flavor for flavor in FlavorCloud(cloud, Flavor).flavors()},
        placed=placed,
        aggregates=aggregates,
    )


def _zone(aggregates: Sequence[Aggregate], wanted: str, scheduler: Scheduler) -> str:
    zones = sorted({zone for entry in aggregates for zone in [entry.metadata.get(ZONE)] if zone})
    if wanted and wanted not in (*zones, scheduler.unzoned):
        remedy = f"zones of aggregates: {', '.join(zones) or 'none'}"
        raise UsageError(f"no aggregate has the availability zone {wanted!r}", remedy=remedy)
    # Nova ignores a zone that no aggregate has, such as that of hosts without one.
    return zone if (zone := wanted or scheduler.zone) in zones else ""


def assess(cloud: Connection, known: State, demand: Demand, progress: Progress = silent) -> Capacity:
    """Count the instances of a flavor; Placement is asked on which hosts with its amounts it accepts one.

    :raises CloudError: if Placement does not answer.
    """
    demand = with_faults(demand, known.aggregates, known.scheduler)
    return capacity(known.hosts, demand, accepted_by(cloud, known, demand, progress), known.scheduler)


def accepted_by(
    cloud: Connection, known: State, demand: Demand, progress: Progress = silent, *, full: bool = False
) -> Accepted | None:
    """The uuids of the hosts that Placement accepts for each request of a flavor; None if it is not asked about any.

    It is also asked about hosts that a later step of Nova refuses.

    :param full: also if they have no free GPU.
    :raises CloudError: if Placement does not answer.
    """
    hosts = [host for host in known.hosts if full or host.count(demand.aliases)]
    steps = {host.uuid: walk(Room(host), demand, known.scheduler).failed for host in hosts}
    uuids = [uuid for uuid, step in steps.items() if step is None or step.reason in _AFTER_PLACEMENT]
    if not uuids:
        return None
    others = {host.uuid for host in known.hosts}.difference(uuids)  # another step refuses them
    accepted = (read.accepted(cloud, request, uuids, progress) for request in demand.requests)
    return [None if nodes is None else nodes | others for nodes in accepted]


def count_all(
    cloud: Connection,
    spec: Spec,
    flavors: Sequence[WantedFlavor],
    progress: Progress = silent,
    **sources: Any,  # noqa: ANN401 - those of state
) -> tuple[list[Capacity], list[Finding], Sequence[str]]:
    """How many more instances of each flavor fit, with the findings, and everything that could not be read.

    :param sources: as for :func:`state`.
    :raises CloudError: if Nova or Placement does not answer.
    """
    known = state(cloud, spec, **sources)
    needs, differences = demands(spec, flavors, known.flavors, sources.get("scheduler"))
    counted = [assess(cloud, known, demand, progress) for demand in needs]
    return counted, [*differences, *findings(counted)], known.gaps


def findings(capacities: Iterable[Capacity]) -> Iterator[Finding]:
    """Yield the findings about the capacities of flavors."""
    unmapped: set[str] = set()
    for entry in capacities:
        name, count = entry.demand.flavor, entry.demand.count
        limits = [limit for limit in entry.limits if limit.reason is Reason.FRAGMENTS and limit.most < count]
        fragments = sum(limit.gpus for limit in limits)
        if entry.most == 0 and fragments >= count > 1:
            yield finding(Code.GPUS_IN_FRAGMENTS, place=name, gpus=fragments, count=count)
        for doubt in entry.doubts:
            yield finding(Code.CAPACITY_UNCERTAIN, place=name, doubt=doubt)
        unmapped.update(*(limit.hosts for limit in entry.limits if limit.reason is Reason.UNMAPPED))
    yield from (finding(Code.HOST_NOT_MAPPED, place=host) for host in sorted(unmapped))
