"""Join the fleet, Nova's compute nodes, Placement and the databases into hosts with free resources. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpustack.base.by_key import by_key, sums
from gpustack.base.hostnames import key, short
from gpustack.cloud.compute import Hypervisor
from gpustack.fleet.cards import Kind, kinds_of, vgpu_requests
from gpustack.fleet.index import named
from gpustack.fleet.model import MDEV, Fleet, Gpu, Source, State
from gpustack.hosts.facts.model import Host as Facts
from gpustack.hosts.readiness.assessment import State as Readiness
from gpustack.nova_options.aggregates import Aggregate, metadata_of
from gpustack.nova_options.pci_values import traits as normalized
from gpustack.nova_options.scheduler import Scheduler, by_devices
from gpustack.novadb.model import NodeResources, Pool
from gpustack.operate.capacity.aggregates import zone_of
from gpustack.operate.capacity.model import ANY_NODE, Cards, Host, Reason
from gpustack.operate.capacity.read import Rooms
from gpustack.spec.attributes import required
from gpustack.spec.model import Spec, models_for
from gpustack.spec.verdict import verdicts

_WITHHELD = {
    State.RESERVED: Reason.RESERVED,
    State.UNAVAILABLE: Reason.NOT_OFFERED,
    State.INCONSISTENT: Reason.INCONSISTENT,
}
_UNUSABLE = {Readiness.PREPARABLE: Reason.UNPREPARED, Readiness.BLOCKED: Reason.BLOCKED}
_STALE = "stale rows in pci_devices may hold GPUs that the snapshot and the instances show as free"
_UNSCHEDULED = (
    "Placement lacks some free devices, and neither a file of nova-scheduler nor the spec shows whether it schedules by"
    " Placement's devices"
)
_IN_SERVICE = (State.FREE, State.CLAIMED, State.ALLOCATED)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Everything that was read.

    :ivar computes: the compute nodes of the databases; empty if they were not read.
    :ivar facts: the hosts of a snapshot.
    :ivar zone: the availability zone of the instances; empty for any.
    :ivar scheduler: the options of nova-scheduler; None without configuration files.
    """

    fleet: Fleet
    hypervisors: Sequence[Hypervisor]
    rooms: Rooms
    computes: Mapping[str, NodeResources] = field(default_factory=dict)
    facts: Sequence[Facts] = ()
    aggregates: Sequence[Aggregate] = ()
    zone: str = ""
    scheduler: Scheduler | None = None


def hosts(spec: Spec, sources: Sources, *, empty: bool = False) -> tuple[Host, ...]:
    """Return the hosts that have GPUs of the spec, or for which the spec has some; in the order of their names.

    :param empty: as if there were no instances.
    """
    view = _View(spec, sources, empty=empty)
    listed = {key(hypervisor.node) for hypervisor in sources.hypervisors}
    # Nova leaves out the hosts of a cell that does not answer, and those without a mapping to a cell.
    missing = {gpu.node: gpu for gpu in sources.fleet.gpus if gpu.address and key(gpu.node) not in listed}
    found = [*map(view.host, sources.hypervisors)]
    for node, gpu in missing.items():
        without = Hypervisor(uuid="", node=node, host=gpu.host, mapped=False)
        found.append(view.host(without) if gpu.service == "unmapped" else Host(uuid="", name=node, cards=None))
    return tuple(sorted((host for host in found if host is not None), key=lambda host: host.name))


class _View:
    def __init__(self, spec: Spec, sources: Sources, *, empty: bool) -> None:
        self.spec, self.sources, self.empty = spec, sources, empty
        # Whether Nova schedules by Placement's devices, so that an alias matches by resource class and traits.
        self.scheduled = by_devices(sources.scheduler, spec)
        self.kinds = tuple(_requested(spec))
        self.vgpus = vgpu_requests(spec)
        self.gpus = by_key((key(gpu.node), gpu) for gpu in sources.fleet.gpus if gpu.address)
        self.devices = by_key((key(server.place), server.devices) for server in sources.fleet.servers)
        moving = any(server.moving for server in sources.fleet.servers)
        reasons = [_STALE, *(gap.reason for gap in sources.fleet.partial if gap.source is Source.NOVA)]
        reasons += ["instances that move may have GPUs on two hosts"] if moving else []
        self.doubt = "; ".join(reasons)
        self.facts = by_key((short(facts.hostname), facts) for facts in sources.facts)

    def host(self, hypervisor: Hypervisor) -> Host | None:
        gpus = self.gpus.get(key(hypervisor.node), [])
        compute = self.sources.computes.get(hypervisor.uuid)
        pci = [gpu for gpu in gpus if gpu.dev_type != MDEV]
        others, doubt = 0, ""
        surplus: Sequence[Cards] = ()
        cards: list[Cards] | None
        if compute is not None:
            cards = list(self._of_pools(compute.pools, pci))
            surplus = list(self._of_placement(compute.pools, pci))
            doubt = self._unscheduled(compute.pools, pci)
            others = sum(pool.count for pool in compute.pools) - sum(entry.count for entry in cards)
        elif gpus:
            # Only a snapshot or a row has the NUMA node of a GPU of Placement.
            known = [(gpu, ANY_NODE if gpu.numa_node is None else gpu.numa_node) for gpu in pci]
            cards = [Cards(aliases=self._names(gpu), node=node, count=self._count(gpu)) for gpu, node in known]
        else:
            cards, doubt = self._of_facts(hypervisor), self.doubt
        if cards is not None:
            cards = [entry for entry in (*cards, *self._of_vgpus(gpus)) if entry.aliases and entry.count]
        withheld = self._withheld(gpus) or self._not_reported(hypervisor)
        expected = any(models_for(self.spec, name) for name in (hypervisor.node, hypervisor.host))
        if not cards and not withheld and not expected:
            return None
        rooms = self.sources.rooms
        amounts = (rooms.capacities if self.empty else rooms.amounts).get(hypervisor.uuid, {})
        metadata = metadata_of(hypervisor.host, self.sources.aggregates)
        elsewhere = self.sources.zone not in ("", zone_of(metadata))
        return Host(
            uuid=hypervisor.uuid,
            name=hypervisor.host,
            cards=None if cards is None else tuple(cards),
            amounts=amounts,
            nodes=(compute.nodes or {}) if compute is not None else None,
            closed=_closed(hypervisor, compute) or (Reason.ZONE if elsewhere else None),
            zone=zone_of(metadata),
            metadata=metadata,
            withheld=withheld,
            free=self._free(hypervisor, amounts),
            surplus=tuple(entry for entry in surplus if entry.aliases),
            others=others,
            instances=0 if self.empty else hypervisor.instances,
            traits=rooms.traits.get(hypervisor.uuid, frozenset()),
            shares_disk=hypervisor.uuid in rooms.shared,
            doubt=doubt,
        )

    def _aliases(
        self, vendor: str, product: str, resource_class: str = "", traits: Collection[str] = (), *, dev_type: str = ""
    ) -> frozenset[str]:
        """The aliases that match a device.

        :param vendor: empty if the ids are unknown.
        :param resource_class: of the device in Placement; empty if Placement does not have it.
        :param traits: of the device in Placement.
        :param dev_type: of the device in Nova; empty if unknown.
        """
        classes, has = {name.strip() for name in resource_class.split(",")}, set(traits)
        by_class = bool(resource_class) and (self.scheduled or not vendor)
        return frozenset(
            kind.alias
            for kind in self.kinds
            if (not vendor or kind.ids == (vendor, product))
            and (not dev_type or kind.virtual == (dev_type == "type-VF"))
            and (not by_class or (kind.resource_class in classes and kind.traits <= has))
        )

    def _unscheduled(self, pools: Sequence[Pool], gpus: Sequence[Gpu]) -> str:
        """Why free devices may not count: Placement has other devices of the host, but not these."""
        known = {gpu.parent or gpu.address for gpu in gpus}
        lacking = any(self._aliases(pool.vendor, pool.product) for pool in pools if pool.address not in known)
        return _UNSCHEDULED if self.scheduled is None and gpus and lacking else ""

    def _count(self, gpu: Gpu) -> int:
        return gpu.units if self.empty and gpu.state in _IN_SERVICE else gpu.free

    def _names(self, gpu: Gpu) -> frozenset[str]:
        if gpu.dev_type == MDEV:
            known = self.vgpus.items()
            return frozenset(name for name, (of, own) in known if of == gpu.resource_class and own <= gpu.traits)
        of = self._aliases
        return of(gpu.vendor_id, gpu.product_id, gpu.resource_class, gpu.traits, dev_type=gpu.dev_type)

    def _free(self, hypervisor: Hypervisor, amounts: Mapping[str, int]) -> tuple[float, float, float]:
        cpus = amounts.get("VCPU", 0) + amounts.get("PCPU", 0)
        if self.empty:
            return amounts.get("MEMORY_MB", 0), cpus, amounts.get("DISK_GB", 0) * 1024
        return hypervisor.ram, cpus, hypervisor.disk

    def _of_pools(self, pools: Sequence[Pool], gpus: Sequence[Gpu]) -> Iterator[Cards]:
        """The free devices of Nova; of those that Placement has too, the ones that are free in both."""
        # A pool of virtual functions has the address of their card; rows list them one by one.
        reported = by_key((gpu.parent or gpu.address, gpu) for gpu in gpus)
        for pool in pools:
            of_pool = reported.get(pool.address, ())
            if not of_pool and self.scheduled:
                continue  # Nova takes only devices that Placement has
            known = (of_pool[0].resource_class, of_pool[0].traits) if of_pool else ("",)
            names = self._aliases(pool.vendor, pool.product, *known, dev_type=pool.dev_type)
            count = min(pool.count, sum(gpu.free for gpu in of_pool)) if of_pool else pool.count
            if names and count:
                yield Cards(aliases=names, node=pool.node, count=count)

    def _of_vgpus(self, gpus: Sequence[Gpu]) -> Iterator[Cards]:
        """The vGPUs that are free in Placement, on any NUMA node: Nova does not compare it."""
        for gpu in gpus:
            if gpu.dev_type == MDEV:
                yield Cards(aliases=self._names(gpu), provider=gpu.provider or gpu.address, count=self._count(gpu))

    def _of_placement(self, pools: Sequence[Pool], gpus: Sequence[Gpu]) -> Iterator[Cards]:
        """The devices that are free in Placement, and in no pool of Nova."""
        left = Counter({pool.address: pool.count for pool in pools})
        for gpu in gpus:
            address = gpu.parent or gpu.address
            taken = min(left[address], gpu.free)
            left[address] -= taken
            if more := gpu.free - taken:
                yield Cards(aliases=self._names(gpu), count=more)

    def _of_facts(self, hypervisor: Hypervisor) -> list[Cards] | None:
        """The GPUs of a snapshot without those of the instances; None without a snapshot of the host.

        Which GPUs an instance has is not known, so their NUMA nodes are known only if it has none.
        """
        if self.scheduled:
            return []  # Nova takes only devices that Placement has
        judged = self._present(hypervisor)
        if judged is None or any(state is Readiness.UNKNOWN for _, _, state in judged):
            return None
        present = {(names, node): count for (names, node, state), count in judged.items() if state is Readiness.READY}
        used = sum(map(Counter, self.devices.get(key(hypervisor.node), ())), Counter[str]())
        if not used or self.empty:
            return [Cards(aliases=names, node=node, count=count) for (names, node), count in present.items()]
        free = sums((names, count) for (names, _), count in present.items())
        for alias, count in used.items():
            for names in sorted((names for names in free if alias in names), key=len):
                taken = min(count, free[names])
                free[names] -= taken
                count -= taken
        return [Cards(aliases=names, node=ANY_NODE, count=count) for names, count in free.items()]

    def _present(self, hypervisor: Hypervisor) -> Counter[tuple[frozenset[str], int | None, Readiness]] | None:
        """The GPUs of a snapshot by aliases, NUMA node and verdict; None without a snapshot of the host."""
        names = {hypervisor.host, hypervisor.node}
        facts = named((facts for head in {short(name) for name in names} for facts in self.facts.get(head, ())), names)
        if facts is None:
            return None
        states = ((verdict.gpu.main, verdict.state) for verdict in verdicts(self.spec, facts).in_service)
        return Counter(
            (self._aliases(main.vendor, main.product, dev_type=main.dev_type), main.numa_node, state)
            for main, state in states
        )

    def _not_reported(self, hypervisor: Hypervisor) -> dict[tuple[str, Reason], int]:
        """The GPUs of a snapshot that no instance gets, if no other source lists those of the host."""
        counts: Counter[tuple[str, Reason]] = Counter()
        if key(hypervisor.node) not in self.gpus and hypervisor.uuid not in self.sources.computes:
            for (names, _, state), count in (self._present(hypervisor) or {}).items():
                reason = Reason.NOT_OFFERED if self.scheduled else _UNUSABLE.get(state)
                if reason is not None:
                    counts.update(dict.fromkeys(((alias, reason) for alias in names), count))
        return dict(counts)

    def _withheld(self, gpus: Sequence[Gpu]) -> dict[tuple[str, Reason], int]:
        held = [(gpu, reason) for gpu in gpus if (reason := _WITHHELD.get(gpu.state))]
        return sums(((alias, reason), gpu.units) for gpu, reason in held for alias in self._names(gpu))


def _closed(hypervisor: Hypervisor, compute: NodeResources | None) -> Reason | None:
    if not hypervisor.enabled:
        return Reason.DISABLED
    if compute is not None and compute.disabled:
        return Reason.CELL
    if not hypervisor.mapped:
        return Reason.UNMAPPED
    return None if hypervisor.up else Reason.DOWN


def _requested(spec: Spec) -> Iterator[Kind]:
    """The models with the traits that each of their aliases requires."""
    for kind in kinds_of(spec):
        wanted = {kind.alias: spec.required_traits_of(kind.name)}
        wanted |= {alias: required(spec.selections[alias]) for alias in spec.aliases_of(kind.name)[1:]}
        for alias, names in wanted.items():
            yield replace(kind, alias=alias, traits=normalized({"traits": ",".join(names)}))
