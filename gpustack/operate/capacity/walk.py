"""The way of one request through Nova on one host, step by step and in Nova's order. Pure.

Nova's API, the filters of requests (nova/scheduler/request_filter.py), Placement, each filter of ``enabled_filters``,
and the claim of nova-compute, which repeats NUMA nodes and PCI devices.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from gpustack.base.text import counted
from gpustack.nova_options.aggregates import BY_PROJECT, MOST
from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.aggregates import EXTRA_SPECS, IMAGES, ISOLATED, NUMBER, TENANTS, TYPES, refusals
from gpustack.operate.capacity.model import BY_CLASS, Accepted, Demand, Outcome, PlacementRequest, Reason, Step
from gpustack.operate.capacity.room import Claim, Room
from gpustack.operate.capacity.topology import PAGES, Topology

QUOTA, PLACEMENT = "API: quota", "Placement: "
NUMA, PCI, COMPUTE, CAPABILITIES = (
    *("NUMATopologyFilter", "PciPassthroughFilter", "ComputeFilter", "ComputeCapabilitiesFilter"),
)
GROUPS = {"anti-affinity": "ServerGroupAntiAffinityFilter", "affinity": "ServerGroupAffinityFilter"}
"""The filters of server groups by policy, in the order of Nova's default."""
INSTANCES = ("NumInstancesFilter", NUMBER)
HINTS = {"different_host": "DifferentHostFilter", "same_host": "SameHostFilter"}
"""Filters of scheduler hints, which are not among Nova's default."""
CELL = "enabled cells"
"""The scheduler leaves out the hosts of disabled cells, after Placement and before its filters."""
STATUS, ZONE = "compute_status_filter", "map_az_to_placement_aggregate"
CLAIM = "claim of nova-compute: "
ASSUMED = (
    *(COMPUTE, CAPABILITIES, "ImagePropertiesFilter", *GROUPS.values()),
    *(EXTRA_SPECS, BY_PROJECT, TYPES, NUMBER, NUMA, PCI),
)
"""The filters of a configuration that is not known. Those of aggregates and capabilities count as a doubt."""
_NEUTRAL = (
    *("ImagePropertiesFilter", IMAGES, *GROUPS.values(), *HINTS.values(), "JsonFilter", "SimpleCIDRAffinityFilter"),
    *("AllHostsFilter", "AvailabilityZoneFilter", "IoOpsFilter", "AggregateIoOpsFilter"),
)
"""Filters without a doubt of their own: of images, server groups and hints, of the zone, and of builds in progress."""
UNKNOWN_NODES = "the NUMA nodes of {hosts} are not known"
SHARED_DISK = "the disk of {hosts} is a shared pool"
FALLBACK = (
    "[workarounds] disable_fallback_pcpu_query, if it is on, refuses hosts without free PCPU for dedicated processors"
)


@dataclass(kw_only=True)
class Walk:
    """All steps up to the first one that fails, or every step.

    :ivar claim: the resources of the instance; None if a step fails.
    """

    steps: list[Step] = field(default_factory=list)
    claim: Claim | None = None

    @property
    def failed(self) -> Step | None:
        """The first step that fails."""
        return next((step for step in self.steps if step.outcome is Outcome.FAILED), None)

    @property
    def doubts(self) -> list[str]:
        """Why it may fail although no step is known to."""
        return [step.doubt for step in self.steps if step.outcome is Outcome.UNKNOWN and step.doubt]


def walk(
    room: Room, demand: Demand, scheduler: Scheduler, accepted: Accepted | None = None, *, every: bool = False
) -> Walk:
    """Follow a request for one instance on a host.

    :param accepted: None for all nodes.
    :param every: whether to go on after a failure.
    """
    walker, done = _Walker(room, demand, scheduler, accepted), Walk()
    for step in walker.steps():
        done.steps.append(step)
        if step.outcome is Outcome.FAILED and not every:
            return done
    done.claim = None if done.failed else walker.claim
    return done


def _failed(name: str, reason: Reason, wanted: int | str | None = None, available: int | str | None = None) -> Step:
    return Step(name=name, outcome=Outcome.FAILED, wanted=wanted, available=available, reason=reason)


class _Walker:
    def __init__(self, room: Room, demand: Demand, scheduler: Scheduler, accepted: Accepted | None) -> None:
        self.room, self.demand, self.scheduler = room, demand, scheduler
        self.accepted = accepted or [()] * len(demand.requests)
        self.judged = accepted is not None
        self.refusals = {step.name: step for step in refusals(room.host, demand, scheduler)}
        self.request: PlacementRequest = demand
        self.claim: Claim | None = None

    def steps(self) -> Iterator[Step]:
        host, demand = self.room.host, self.demand
        yield _failed("API", Reason.API, demand.refused) if demand.refused else Step(name="API")
        quota = Step(name=QUOTA, outcome=Outcome.UNKNOWN if demand.quota is None else Outcome.PASSED)
        yield _failed(QUOTA, Reason.QUOTA, demand.quota) if demand.quota else quota
        yield from self._policies()
        if host.closed is Reason.UNMAPPED:  # nova-conductor's last step; Nova reports no resources of such a host
            yield _failed("conductor: cell of the host", Reason.UNMAPPED)
        yield self._aggregate(TENANTS)
        for name, reason in ((ZONE, Reason.ZONE), (STATUS, Reason.DISABLED)):
            yield _failed(name, reason) if host.closed is reason else Step(name=name)
        yield self._aggregate(ISOLATED)
        yield from self._placement()
        yield _failed(CELL, Reason.CELL) if host.closed is Reason.CELL else Step(name=CELL)
        unmodelled = Outcome.UNKNOWN if demand.unmodelled else Outcome.PASSED
        if demand.unmodelled:
            doubt = f"the effect of {', '.join(demand.unmodelled)} is not counted"
            yield Step(name="other properties", outcome=unmodelled, doubt=doubt)
        filters: Mapping[str, Callable[[], Step]] = {
            COMPUTE: lambda: _failed(COMPUTE, Reason.DOWN) if host.closed is Reason.DOWN else Step(name=COMPUTE),
            CAPABILITIES: partial(Step, name=CAPABILITIES, outcome=unmodelled),
            **{name: partial(self._aggregate, name) for name in (EXTRA_SPECS, BY_PROJECT, TYPES, NUMBER)},
            **{name: partial(self._instances, name) for name in INSTANCES if self.scheduler.filters},
            NUMA: lambda: self._numa(NUMA),
            PCI: lambda: self._pci(PCI),
        }
        if demand.neighbors is not None:
            filters = {**filters, **{name: self._neighbors(name) for name in (*GROUPS.values(), *HINTS.values())}}
        enabled = ASSUMED if self.scheduler.filters is None else self.scheduler.filters
        for name in enabled:
            doubt = "" if name in _NEUTRAL else f"the effect of {name} is not counted"
            yield filters[name]() if name in filters else Step(name=name, outcome=Outcome.UNKNOWN, doubt=doubt)
        yield from (check(f"{CLAIM}{kind}") for kind, check in (("NUMA", self._numa), ("PCI", self._pci)))
        yield Step(name="GPUs", outcome=Outcome.UNKNOWN, doubt=host.doubt) if host.doubt else Step(name="GPUs")

    def _policies(self) -> Iterator[Step]:
        """Nova's conductor refuses the policy of a server group whose filter is not enabled."""
        for rule in self.demand.neighbors or ():
            if rule.step in GROUPS.values() and self.scheduler.enables(rule.step) is False:
                yield _failed("conductor: server group", Reason.GROUP, f"{rule.step} in enabled_filters")
            if rule.step in HINTS.values() and self.scheduler.filters is None and not rule.accepts(self.room.host.name):
                doubt = f"{rule.step}, if it is enabled, refuses {{hosts}} because of {rule.of}"
                yield Step(name=rule.step, outcome=Outcome.UNKNOWN, doubt=doubt)

    def _neighbors(self, name: str) -> Callable[[], Step]:
        """The step of a filter that compares the host with those of other instances."""
        host = self.room.host.name
        rule = next((rule for rule in self.demand.neighbors or () if rule.step == name), None)
        if rule is None or rule.accepts(host):
            return lambda: Step(name=name)
        return lambda: _failed(name, Reason.GROUP, rule.wanted)

    def _instances(self, name: str) -> Step:
        """Fewer instances than the scheduler, or for the second filter an aggregate, allows."""
        most, texts = self.scheduler.instances, self.room.host.metadata.get(MOST, ())
        if name != INSTANCES[0] and texts and all(map(str.isdecimal, texts)):
            most = min(map(int, texts))
        left = most - self.room.instances
        return Step(name=name, wanted=1, available=left) if left > 0 else _failed(name, Reason.INSTANCES, 1, left)

    def _aggregate(self, name: str) -> Step:
        return self.refusals.get(name) or Step(name=name)

    def _placement(self) -> Iterator[Step]:
        """The first request that a host can meet; else the lacks of the first one."""
        room, demand = self.room, self.demand
        lacks: set[str] = set()
        for request, accepted in zip(demand.requests, self.accepted, strict=True):
            lacks = set(room.lacks(request))
            if not lacks and (not self.judged or room.host.uuid in (accepted or ())):
                self.request = request
                break
        else:
            if not (lacks := set(room.lacks(demand))):
                yield self._refused()
        for name, amount in self.request.amounts.items():
            place, few = f"{PLACEMENT}{name}", name in lacks
            reason, free = BY_CLASS.get(name, Reason.RESOURCE), room.amounts.get(name, 0 if few else None)
            yield _failed(place, reason, amount, free) if few else Step(name=place, wanted=amount, available=free)
        if self.request is not demand and self.scheduler.fallback is not True:
            yield Step(name=f"{PLACEMENT}second request", outcome=Outcome.UNKNOWN, doubt=FALLBACK)
        if room.host.shares_disk and "DISK_GB" in demand.amounts:
            yield Step(name=f"{PLACEMENT}shared disk", outcome=Outcome.UNKNOWN, doubt=SHARED_DISK)
        if not demand.unmodelled and not demand.amounts.keys() - ({"DISK_GB"} if room.host.shares_disk else set()):
            # Nova finds the host of a candidate by its allocation of the host's own provider.
            yield _failed(f"{PLACEMENT}resources", Reason.PLACEMENT, "VCPU, MEMORY_MB or DISK_GB of the host itself")
        if demand.classes or demand.vgpus:
            name = f"{PLACEMENT}{', '.join((*demand.classes, *demand.vgpus))}"
            vgpus = {alias: demand.gpus[alias] for alias in demand.vgpus}
            few, wanted = not room.in_placement(demand if demand.classes else replace(demand, gpus=vgpus)), self._wanted
            yield _failed(name, Reason.FRAGMENTS, wanted, self._free) if few else Step(name=name, wanted=wanted)

    def _refused(self) -> Step:
        """Placement refuses although the amounts are free."""
        has, forbidden, unknown = self.room.host.traits, self.demand.forbidden, None in self.accepted
        traits = sorted(self.demand.required - has)
        traits += [f"!{name}" for name in sorted(forbidden - has if unknown else forbidden & has)]
        if not traits:
            return _failed(f"{PLACEMENT}max_unit", Reason.PLACEMENT)
        wanted = f"{' or '.join(traits)}, unknown to Placement" if unknown else ", ".join(traits)
        return _failed(f"{PLACEMENT}traits", Reason.PLACEMENT, wanted)

    def _numa(self, name: str) -> Step:
        """NUMA nodes, with the GPUs near them."""
        room, demand = self.room, self.demand
        if demand.topology is None:
            return Step(name=name)
        self.claim = self.claim or room.on_nodes(demand, self.request)
        if self.claim is None:
            left = "; ".join(
                self._on_node(demand.topology, number, node) for number, node in (room.nodes or {}).items()
            )
            few = room.gpus(demand) is None
            return _failed(name, Reason.FRAGMENTS if few else Reason.NUMA, _nodes(demand.topology), left)
        if room.nodes is None:
            if self.request is not demand and "PCPU" in room.amounts:
                # A host with dedicated processors pins to these only (virt/hardware.py, numa_fit_instance_to_host).
                return _failed(name, Reason.NUMA, demand.amounts.get("PCPU", 0), room.amounts["PCPU"])
            return Step(name=name, outcome=Outcome.UNKNOWN, doubt=UNKNOWN_NODES)
        return Step(name=name, wanted=len(demand.topology.nodes), available=len(room.nodes))

    def _pci(self, name: str) -> Step:
        """Enough GPUs for each alias, on any NUMA node."""
        room, demand = self.room, self.demand
        if demand.topology is None:
            self.claim = self.claim or room.on_nodes(demand, self.request)
        if room.gpus(demand) is None:
            return _failed(name, Reason.FRAGMENTS, self._wanted, self._free)
        return Step(name=name, wanted=self._wanted, available=self._free)

    def _on_node(self, guest: Topology, number: int, node: NumaNode) -> str:
        """The free resources of a NUMA node of the host, of the kinds that the instance needs."""
        shares = int(len(node.cpus) * node.cpu_ratio) - node.cpu_usage
        cpus = [counted(len(node.free), "dedicated CPU")] if guest.pinned else []
        cpus += [counted(shares, "shared CPU")] if guest.policy != "dedicated" else []
        pages = [f"{free:.0f} pages of {size} KiB" for size, (_, free) in node.pages.items() if guest.pages]
        gpus = counted(self.room.count(self.demand.aliases, number), "GPU")
        return f"node {number}: {', '.join([*cpus, f'{node.memory - node.memory_usage} MiB', *pages, gpus])}"

    @property
    def _wanted(self) -> int | str:
        return _by_alias(self.demand.gpus)

    @property
    def _free(self) -> int | str:
        return _by_alias({alias: self.room.most(alias) for alias in self.demand.gpus})


def _by_alias(gpus: Mapping[str, int]) -> int | str:
    """The number of GPUs; by alias if there are several."""
    return sum(gpus.values()) if len(gpus) < 2 else ", ".join(f"{alias}:{count}" for alias, count in gpus.items())


def _nodes(guest: Topology) -> str:
    """The needs of the NUMA nodes of an instance."""
    size = next((name for name, number in PAGES.items() if number == guest.pages), f"{guest.pages} KiB")
    pages = "" if guest.pages is None else f" in {size} pages"
    cpus = {node: counted(node.dedicated + node.shared, "CPU") for node in guest.nodes}
    return ", ".join(f"{text} and {node.memory} MiB{pages}" for node, text in cpus.items())
