"""Hosts with their free resources, the needs of flavors, and how many instances fit. Plain data."""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpustack.base.text import counted
from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.topology import Topology

ANY_NODE = -1
"""The NUMA node of GPUs of which only the number is known."""


class Reason(enum.StrEnum):
    """Why GPUs of a flavor stay free, or cannot be used."""

    API = "API"
    """Nova's API refuses the flavor."""
    QUOTA = "quota"
    FRAGMENTS = "fragments"
    """A host has free GPUs, but fewer than one instance needs."""
    VCPUS = "vCPUs"
    RAM = "RAM"
    DISK = "disk"
    RESOURCE = "other resource"
    NUMA = "NUMA nodes"
    """No NUMA node, or set of nodes, has the GPUs, the processors and the memory together."""
    PLACEMENT = "Placement"
    """Placement refuses: a trait, or more than one instance may have of a host."""
    GROUP = "server group"
    """Other instances of a server group, or of a scheduler hint, are on the host, or are not."""
    AGGREGATE = "aggregate"
    """The host's aggregates lack metadata that the flavor requires, or keep it out."""
    ZONE = "availability zone"
    INSTANCES = "instances"
    """The host has as many instances as the scheduler allows."""
    DISABLED = "disabled"
    DOWN = "down"
    CELL = "disabled cell"
    UNMAPPED = "not mapped"
    """The host is in no cell: nova-conductor ends the instances that the scheduler places on it."""
    RESERVED = "reserved"
    NOT_OFFERED = "not offered"
    INCONSISTENT = "inconsistent"
    UNPREPARED = "not prepared"
    BLOCKED = "blocked"
    """A fault of the machine, or the host's use of it; `gpustack scan` has the codes."""


BY_CLASS = {"VCPU": Reason.VCPUS, "PCPU": Reason.VCPUS, "MEMORY_MB": Reason.RAM, "DISK_GB": Reason.DISK}
"""The reasons of resource classes; others are :attr:`Reason.RESOURCE`."""


@dataclass(frozen=True, kw_only=True)
class Cards:
    """Free GPUs of a host that Nova does not distinguish.

    :ivar aliases: the aliases that match them; an alias can match several models.
    :ivar node: their NUMA node; None if they report none, :data:`ANY_NODE` if it is not known.
    :ivar provider: of vGPUs, their resource provider: Placement never splits a resource class of an instance between
        two. Empty for GPUs of any provider.
    """

    aliases: frozenset[str]
    node: int | None = ANY_NODE
    provider: str = ""
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Host:
    """A compute node with its free resources.

    :ivar uuid: of its resource provider, and of its compute node.
    :ivar cards: None if the GPUs of the host are not known.
    :ivar amounts: free amounts by resource class, with overcommitment.
    :ivar nodes: its NUMA nodes; None if they are not known, empty if it reports none.
    :ivar closed: why it gets no instance.
    :ivar zone: its availability zone; empty for Nova's default zone.
    :ivar metadata: all values of each key of its aggregates.
    :ivar withheld: GPUs that no instance gets: the number by alias and reason.
    :ivar free: as the scheduler weighs it: MiB of RAM, processors and MiB of disk, which may be less than zero.
    :ivar surplus: devices that are free in Placement only: Nova's rows hold them.
    :ivar others: free PCI devices that are no GPU of the spec.
    :ivar instances: how many Nova counts on it.
    :ivar traits: those of its resource provider.
    :ivar shares_disk: whether disk comes from a pool of several hosts.
    :ivar doubt: why fewer GPUs may be free; empty if their number is certain.
    """

    uuid: str
    name: str
    cards: tuple[Cards, ...] | None = ()
    amounts: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[int, NumaNode] | None = None
    closed: Reason | None = None
    zone: str = ""
    metadata: Mapping[str, frozenset[str]] = field(default_factory=dict)
    withheld: Mapping[tuple[str, Reason], int] = field(default_factory=dict)
    free: tuple[float, float, float] = (0, 0, 0)
    surplus: tuple[Cards, ...] = ()
    others: int = 0
    instances: int = 0
    traits: frozenset[str] = frozenset()
    shares_disk: bool = False
    doubt: str = ""

    def count(self, aliases: frozenset[str]) -> int:
        """The number of free GPUs that one of these aliases matches."""
        return sum(cards.count for cards in self.cards or () if cards.aliases & aliases)


@dataclass(frozen=True, kw_only=True)
class PlacementRequest:
    """A request for allocation candidates, without devices.

    :ivar amounts: by resource class.
    :ivar required: traits.
    :ivar forbidden: traits.
    """

    amounts: Mapping[str, int]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


Accepted = Sequence[Collection[str] | None]
"""For each request to Placement, the uuids of the nodes on which it accepts one instance; None if it refuses it."""


@dataclass(frozen=True, kw_only=True)
class Neighbors:
    """A rule about other instances on the host of an instance: of its server group, or of a scheduler hint.

    :ivar step: the filter that applies it.
    :ivar of: the group or the hint, for messages.
    :ivar hosts: how many of these instances each host has.
    :ivar limit: a host with as many of them refuses; None if it must have one.
    """

    step: str
    of: str
    hosts: Mapping[str, int]
    limit: int | None = None

    def accepts(self, host: str) -> bool:
        """Whether a host may get the instance."""
        number = self.hosts.get(host, 0)
        return number > 0 if self.limit is None else number < self.limit

    @property
    def wanted(self) -> str:
        """The rule in words."""
        number = "a host with instances" if self.limit is None else f"fewer than {counted(self.limit, 'instance')}"
        return f"{number} of {self.of}"


@dataclass(frozen=True, kw_only=True)
class Demand(PlacementRequest):
    """The needs of one instance of a flavor.

    :ivar gpus: the number of GPUs by alias.
    :ivar fallback: Nova's second request, for hosts without ``PCPU``; its candidates come after those of the first.
    :ivar topology: None if it has no NUMA nodes.
    :ivar policies: the PCI NUMA affinity policy of each alias; ``legacy`` for others.
    :ivar aggregate: the metadata that an aggregate of the host must have.
    :ivar unmodelled: extra specs that may exclude further hosts.
    :ivar classes: the resource classes of its GPUs, if Nova schedules by Placement's devices.
    :ivar vgpus: the names of its vGPUs, with whether they can be of several providers.
    :ivar unknown: aliases that the spec lacks, so that their GPUs are not known.
    :ivar refused: why Nova's API refuses the flavor; empty if it accepts it.
    :ivar in_cloud: whether the cloud has the flavor.
    :ivar project: the id of the project of the instances; empty if unknown.
    :ivar confined: the hosts of the aggregates that are for the project; None if none is.
    :ivar neighbors: rules about other instances on the host; None if they are unknown.
    :ivar quota: which quota of the project refuses one instance; empty if none does, None if unknown.
    """

    flavor: str
    gpus: Mapping[str, int]
    vcpus: int
    ram: int
    disk: int = 0
    fallback: PlacementRequest | None = None
    topology: Topology | None = None
    policies: Mapping[str, str] = field(default_factory=dict)
    aggregate: Mapping[str, str] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    vgpus: Mapping[str, bool] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    refused: str = ""
    in_cloud: bool = True
    project: str = ""
    confined: frozenset[str] | None = None
    neighbors: tuple[Neighbors, ...] | None = None
    quota: str | None = None

    @property
    def requests(self) -> tuple[PlacementRequest, ...]:
        """The requests to Placement, in Nova's order."""
        return (self,) if self.fallback is None else (self, self.fallback)

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases of its GPUs."""
        return frozenset(self.gpus)

    @property
    def count(self) -> int:
        """The number of its GPUs."""
        return sum(self.gpus.values())


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the way.

    :ivar name: in Nova's words.
    :ivar wanted: the amount that the instance needs, or a text; None if there is none.
    :ivar available: the amount that is free.
    :ivar reason: of a failed step.
    :ivar doubt: why the outcome is unknown; ``{hosts}`` in it stands for the names of hosts.
    """

    name: str
    outcome: Outcome = Outcome.PASSED
    wanted: int | str | None = None
    available: int | str | None = None
    reason: Reason | None = None
    doubt: str = ""


@dataclass(frozen=True, kw_only=True)
class HostCapacity:
    """How many instances fit on a host.

    :ivar zone: its availability zone; empty for Nova's default zone.
    :ivar certain: the instances that fit without a doubt.
    :ivar left: the GPUs that are free afterwards.
    :ivar reason: why they stay free; None if none does.
    :ivar failed: the step at which Nova refuses one more.
    :ivar doubts: why fewer may fit.
    """

    host: str
    zone: str = ""
    fits: int
    certain: int = 0
    left: int = 0
    reason: Reason | None = None
    failed: Step | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Limit:
    """GPUs that stay free, or that no instance gets, for one reason.

    :ivar most: the most of these GPUs on one host.
    """

    reason: Reason
    gpus: int
    hosts: tuple[str, ...]
    most: int


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How many more instances of a flavor fit, if only this flavor is booted.

    :ivar least: the certain number.
    :ivar most: the largest possible number; None if unknown.
    :ivar free: the free GPUs that its aliases match.
    :ivar free_is_limit: whether fewer may be free.
    :ivar doubts: why the number is not exact.
    """

    demand: Demand
    least: int
    most: int | None
    free: int
    free_is_limit: bool = False
    hosts: tuple[HostCapacity, ...] = ()
    limits: tuple[Limit, ...] = ()
    doubts: tuple[str, ...] = ()
