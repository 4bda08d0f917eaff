"""The GPUs of a cloud, their states and holders, as the commands show them. Plain data, compared in :mod:`.join`."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpustack.base.by_key import by_key
from gpustack.base.errors import PartialError
from gpustack.base.findings import Finding
from gpustack.base.hostnames import key
from gpustack.cloud.compute import Service
from gpustack.cloud.servers import Server


class State(enum.StrEnum):
    """The state of a GPU, in the order of the tables."""

    FREE = "free"
    CLAIMED = "claimed"
    """Taken by a move or an attachment under way; only the databases show it."""
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    """Reserved in Placement: no new instance gets it."""
    UNAVAILABLE = "unavailable"
    """Nova does not offer it, or it is blocked by its virtual or physical functions."""
    INCONSISTENT = "inconsistent"
    """Nova, Placement and the host disagree; a finding has the reason."""


class Source(enum.StrEnum):
    """A source of facts about GPUs."""

    NOVA = "Nova"
    PLACEMENT = "Placement"
    DATABASE = "database"
    SNAPSHOT = "snapshot"
    KEYSTONE = "Keystone"


MDEV = "mdev"
"""The ``dev_type`` of cards on which nova-compute creates mediated devices; other values are those of Nova's rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """The holder of a GPU, or of a part of it.

    :ivar consumer: the uuid in Placement or in the row: of an instance, or of a migration.
    :ivar server: its instance; None if no source has one.
    :ivar migration: whether the consumer is a migration, which holds the GPU that its instance had before the move.
    :ivar amount: the number of units; 1 unless the GPU offers virtual functions or vGPUs.
    """

    consumer: str
    server: Server | None = None
    project: str = ""
    user: str = ""
    migration: bool = False
    amount: int = 1

    @property
    def instance(self) -> str:
        """The id of its instance; that of the consumer if no source has one."""
        return self.server.id if self.server else self.consumer


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU, or one instance's share of a host whose GPUs can't be distinguished.

    :ivar address: the PCI address; empty if only the host is known (no PCI in Placement, and no database).
    :ivar model: the name of the card, of its vGPU type (``A16-8Q``), else the resource class or the alias.
    :ivar units: the number of devices that it offers: 1, its virtual functions, or its vGPUs.
    :ivar used: the number of units in use.
    :ivar reserved: whether it is reserved in Placement; a reserved GPU in use is allocated until its instance is gone.
    :ivar parent: the address of the physical function, if it is a virtual function and a row has it.
    :ivar provider: the uuid of its resource provider; empty if unknown.
    :ivar traits: in Placement.
    :ivar service: the state of its host's nova-compute: ``up``, ``down``, ``disabled`` or ``unmapped``; empty if
        unknown.
    :ivar link: speed and width of the PCI Express link (``8.0 GT/s PCIe x16``); empty if unknown.
    :ivar out_of_service: why it is out of service, as the spec has it; empty if it is in service.
    :ivar sources: the sources that have it.
    """

    host: str
    node: str = ""
    address: str = ""
    model: str = ""
    vendor_id: str = ""
    product_id: str = ""
    resource_class: str = ""
    state: State
    holders: tuple[Holder, ...] = ()
    units: int = 1
    used: int = 0
    reserved: bool = False
    dev_type: str = ""
    numa_node: int | None = None
    iommu_group: int | None = None
    link: str = ""
    cell: str = ""
    parent: str = ""
    provider: str = ""
    traits: frozenset[str] = frozenset()
    service: str = ""
    out_of_service: str = ""
    sources: tuple[Source, ...] = ()

    @property
    def place(self) -> str:
        """The place for findings: host and address."""
        return f"{self.host} {self.address}".strip()

    @property
    def holder(self) -> Holder | None:
        """The first holder; a GPU that is passed through as a whole has at most one."""
        return self.holders[0] if self.holders else None

    @property
    def server(self) -> Server | None:
        """The instance of the first holder."""
        return self.holder.server if self.holder else None

    @property
    def free(self) -> int:
        """The number of units that a new instance can get."""
        return max(self.units - self.used, 0) if self.state in (State.FREE, State.ALLOCATED) else 0


@dataclass(frozen=True, kw_only=True)
class HostCount:
    """The GPUs of one model on a host; None for a number that no source has.

    :ivar model: as in :class:`Gpu`.
    :ivar per_gpu: whether the GPUs are listed one by one in :attr:`Fleet.gpus`.
    :ivar cards: of cards with vGPUs, the free and all units of each: an instance gets them of one card.
    """

    host: str
    model: str
    total: int | None
    free: int | None
    used: int
    per_gpu: bool
    cards: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Something that could not be read, so that the fleet is partial.

    :ivar reason: what is missing, and why.
    """

    source: Source
    reason: str


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The GPUs that the sources have.

    :ivar gpus: by host and address.
    :ivar counts: by host and model, of all hosts.
    :ivar servers: the instances whose flavors request devices.
    :ivar services: the nova-compute services of cells that answer; empty if unknown.
    :ivar projects: names of projects by id; without those that are unknown.
    :ivar users: names of users by id; without those that are unknown.
    :ivar partial: everything that is missing; empty if the fleet is complete.
    :ivar located: whether all GPUs are listed one by one; otherwise free ones are unknown on some hosts.
    :ivar exhaustive: whether Nova offers no GPU of a host of which none is listed.
    :ivar notes: remarks for people, such as devices that are not listed.
    """

    gpus: tuple[Gpu, ...] = ()
    counts: tuple[HostCount, ...] = ()
    servers: tuple[Server, ...] = ()
    services: tuple[Service, ...] = ()
    projects: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    partial: tuple[Gap, ...] = ()
    located: bool = True
    exhaustive: bool = False
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.partial

    @property
    def gaps(self) -> list[str]:
        """Everything that is missing, in words."""
        return list(dict.fromkeys(f"{gap.source}: {gap.reason}" for gap in self.partial))

    def refuse_unknown(self, what: str, more: str = "") -> None:
        """Raise :class:`PartialError`, with everything that is missing, if something is."""
        if reasons := "; ".join(self.gaps):
            remedy = f"correct the source, or use a user who may read it{more}"
            raise PartialError(f"whether {what} is unknown: {reasons}", remedy=remedy)

    def at(self, *names: str) -> list[Gpu]:
        """The GPUs of a host, by its names or those of its compute node; one with two of the names twice."""
        return [gpu for name in dict.fromkeys(map(key, names)) for gpu in self._by_name.get(name, ())]

    @cached_property
    def _by_name(self) -> Mapping[str, list[Gpu]]:
        return by_key((name, gpu) for gpu in self.gpus for name in {key(gpu.host), key(gpu.node)})

    def lists_all(self, *names: str) -> bool:
        """Whether Nova certainly offers no other GPUs of a host than those that are listed with their addresses."""
        here = self.at(*names)
        return self.complete and (all(gpu.address for gpu in here) if here else self.exhaustive)

    def hides(self, address: str, card: str | None, *names: str) -> bool:
        """Whether Nova may offer a virtual function of a host that is not listed: its card's provider counts it.

        :param card: the address of its card; None if the facts lack the address.
        """
        here, is_part = self.at(*names), not address.endswith(".0")
        providers = (gpu for gpu in here if not gpu.dev_type and gpu.address != address)
        is_counted = any(gpu.address == card if card else is_part or gpu.units > 1 for gpu in providers)
        return is_counted and all(Source.DATABASE not in gpu.sources for gpu in here)  # rows list each of them
