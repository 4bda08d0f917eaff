"""Take the resources of instances from a host, and give them back. Pure.

GPUs are chosen as Nova's scheduler does (nova/pci/stats.py, _filter_pools_for_numa_cells), NUMA nodes by :mod:`numa`.

Place the NUMA nodes of an instance on those of a host, as Nova's scheduler and nova-compute do. Pure.

Source: ``numa_fit_instance_to_host``, ``_numa_fit_instance_cell`` and ``_pack_instance_onto_cores`` of
nova/virt/hardware.py; ``numa_usage_from_instance_numa`` for the use of a host afterwards.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpustack.base.by_key import sums
from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.model import ANY_NODE, Cards, Demand, Host, PlacementRequest
from gpustack.operate.capacity.topology import PAGES, GuestNode, Topology

_SMALL, _LARGE, _ANY = PAGES["small"], PAGES["large"], PAGES["any"]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A NUMA node of an instance on one of a host.

    :ivar node: the host's.
    :ivar pinned: the processors that no other instance gets.
    :ivar shared: the number of shared processors.
    :ivar memory: MiB.
    :ivar page: the page size in KiB; None if the host reports none.
    """

    node: int
    pinned: frozenset[int] = frozenset()
    shared: int = 0
    memory: int = 0
    page: int | None = None


def place(
    host: Mapping[int, NumaNode],
    guest: Topology,
    devices: Mapping[int | None, int],
    near: Callable[[Sequence[int]], bool],
) -> tuple[Placed, ...] | None:
    """Place all nodes of an instance; None if they do not fit.

    :param devices: the number of free PCI devices on each node of the host.
    :param near: whether the devices of the instance are near nodes of the host.
    """
    number = len(guest.nodes)
    pages = [guest.pages] * number
    fits: dict[tuple[int, int], Placed | None] = {}
    for nodes in itertools.permutations(_ranked(host, guest, devices), number) if number <= len(host) else ():
        placed: list[Placed] = []
        for index, node in enumerate(nodes):
            if (node, index) not in fits:
                page = _page(host[node], guest.nodes[index], guest, pages[index])
                if page is not None and guest.pages is not None:
                    pages[index] = page  # Nova tries this size on further nodes
                fits[node, index] = _fit(node, host[node], guest, index, page)
            if (known := fits[node, index]) is None:
                break
            placed.append(known)
        if len(placed) == number and near(nodes):
            return tuple(placed)
    return None


def used(node: NumaNode, placed: Placed, *, sign: int = 1) -> NumaNode:
    """A node of a host after a node of an instance was placed on it; with ``sign=-1``, after it was removed."""
    pages = dict(node.pages)
    if placed.page in pages:
        total, free = pages[placed.page]
        pages[placed.page] = total, free - sign * placed.memory * 1024 / placed.page
    return replace(
        node,
        pinned=node.pinned | placed.pinned if sign > 0 else node.pinned - placed.pinned,
        cpu_usage=node.cpu_usage + sign * placed.shared,
        memory_usage=node.memory_usage + sign * placed.memory,
        pages=pages,
    )


def _ranked(host: Mapping[int, NumaNode], guest: Topology, devices: Mapping[int | None, int]) -> list[int]:
    """The nodes in the order in which Nova tries them: those with most free devices first."""
    if len(host) == len(guest.nodes):
        return list(host)

    def rank(number: int) -> tuple[int, int, int]:
        node = host[number]
        processors = -len(node.free) if guest.pinned else node.cpu_usage
        return -devices.get(number, 0), processors, node.memory_usage - node.memory

    return sorted(host, key=rank)


def _fit(number: int, node: NumaNode, guest: Topology, index: int, page: int | None) -> Placed | None:
    """Place one node of an instance.

    :param page: the size of pages that hold its memory; None if there is none.
    """
    cell, reserved = guest.nodes[index], int(guest.isolated and index == 0)
    if page is None and (node.pages or guest.pages is not None):
        return None
    if not node.pages and cell.memory > (node.memory - node.memory_usage if guest.pinned else node.memory):
        return None
    pinned: frozenset[int] | None = frozenset()
    if guest.pinned and cell.dedicated + reserved > len(node.free):
        return None
    if guest.policy != "dedicated" and not _has_shares(node, cell):
        return None
    if guest.pinned:
        isolate = guest.threads == "isolate"
        pinned = _isolated(node, cell, reserved) if isolate else _packed(node, cell, reserved, guest.threads)
    if pinned is None or pinned & node.pinned:
        return None
    return Placed(node=number, pinned=pinned, shared=cell.shared, memory=cell.memory, page=page)


def _has_shares(node: NumaNode, cell: GuestNode) -> bool:
    """Whether a node has shared processors and memory left. One instance never overcommits with itself."""
    return (
        cell.shared <= len(node.cpus)
        and node.cpu_usage + cell.shared <= len(node.cpus) * node.cpu_ratio
        and node.memory_usage + cell.memory <= node.memory * node.ram_ratio
    )


def _page(node: NumaNode, cell: GuestNode, guest: Topology, pages: int | None) -> int | None:
    """The size of the pages that hold a node of an instance; None if none does."""
    sizes = sorted(node.pages, reverse=True)
    if pages is None:  # the smallest, which may be overcommitted by instances without dedicated processors
        return next((size for size in sizes[-1:] if _holds(node, size, cell, free=guest.pinned)), None)
    chosen = {_SMALL: sizes[-1:], _LARGE: sizes[:-1], _ANY: sizes}.get(pages, [pages] if pages in sizes else [])
    return next((size for size in chosen if _holds(node, size, cell, free=True)), None)


def _holds(node: NumaNode, size: int, cell: GuestNode, *, free: bool) -> bool:
    total, left = node.pages[size]
    memory = cell.memory * 1024
    return memory <= (left if free else total) * size and memory % size == 0


def _cores(node: NumaNode) -> list[list[int]]:
    """The free dedicated processors of each core that has some."""
    free = node.free
    return [sorted(core & free) for core in node.siblings if core & free]


def _isolated(node: NumaNode, cell: GuestNode, reserved: int) -> frozenset[int] | None:
    """One thread of each core, whose other threads stay idle."""
    width, cores = max(map(len, node.siblings), default=1), _cores(node)
    complete = [core for core in cores if len(core) >= width]
    # The other threads would be free in Placement, so Nova refuses cpu_dedicated_set (bug 1889633).
    if not complete or (width != 1 and node.pcpus != node.cpus) or not cell.dedicated:
        return None
    chosen = {core[0] for core in complete[: cell.dedicated]}
    rest = [cpu for core in cores if not chosen & set(core) for cpu in core][:reserved]
    if len(chosen) < cell.dedicated or len(rest) < reserved:
        return None
    taken = chosen | set(rest)
    return frozenset().union(*(core for core in node.siblings if core & taken))


def _packed(node: NumaNode, cell: GuestNode, reserved: int, threads: str) -> frozenset[int] | None:
    """Threads of as few cores as possible; with ``require``, at least two of each."""
    cores, require = _cores(node), threads == "require"
    for number in range(max(map(len, cores), default=0), int(require), -1):
        usable = [cpu for core in cores if len(core) >= number for cpu in core[:number]]
        if (pinned := _reserve(usable, cell.dedicated, cores, reserved)) is not None:
            return pinned
    return None if require else _reserve([cpu for core in cores for cpu in core], cell.dedicated, cores, reserved)


def _reserve(
    usable: Sequence[int], number: int, cores: Sequence[Sequence[int]], reserved: int
) -> frozenset[int] | None:
    """The first usable processors with those of the emulator; None if there are too few."""
    chosen = usable[:number]
    rest = [cpu for core in cores for cpu in core if cpu not in chosen][:reserved]
    if len(chosen) < number or (reserved and not (chosen and rest)):
        return None
    return frozenset((*chosen, *rest))


Group = tuple[frozenset[str], int | None, str]
"""The aliases, the NUMA node and the provider of GPUs, as :class:`Cards` has them."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The resources of one instance.

    :ivar request: the request to Placement whose candidate it has.
    :ivar placed: its NUMA nodes, if those of the host are known.
    """

    demand: Demand
    request: PlacementRequest
    groups: dict[Group, int] = field(default_factory=dict)
    placed: tuple[Placed, ...] = ()


def _grouped(cards: Iterable[Cards]) -> Counter[Group]:
    return Counter(sums(((entry.aliases, entry.node, entry.provider), entry.count) for entry in cards))


class Room:
    """The free resources of a host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.amounts = dict(host.amounts)
        self.nodes = dict(host.nodes) if host.nodes is not None else None
        self.groups, self.surplus = _grouped(host.cards or ()), _grouped(host.surplus)
        self.free = sum(self.groups.values()) + host.others
        """All free PCI devices."""
        self.ram, self.cpus, self.disk = host.free
        self.instances = host.instances

    def count(self, aliases: frozenset[str], *nodes: int) -> int:
        """The number of free GPUs that one of these aliases matches; of some NUMA nodes, if any are named."""
        known = self.groups.items()
        return sum(count for (names, node, _), count in known if names & aliases and (not nodes or node in nodes))

    def most(self, alias: str) -> int:
        """The number of free GPUs of an alias that one instance can get, of one provider if they are vGPUs."""
        counts = sums((provider, count) for (names, _, provider), count in self.groups.items() if alias in names)
        return max(counts.values(), default=0)

    def lacks(self, request: PlacementRequest) -> Iterator[str]:
        """Yield the resource classes of which too little is free. Placement lists only hosts with free memory."""
        if not self.amounts:
            yield "MEMORY_MB"
        for name, amount in request.amounts.items() if self.amounts else ():
            if self.amounts.get(name, 0) < amount and not (name == "DISK_GB" and self.host.shares_disk):
                yield name

    def gpus(self, demand: Demand) -> dict[Group, int] | None:
        """GPUs for an instance, on any NUMA node; None if there are too few."""
        return self._choose(demand, None) if self.free >= demand.count else None

    def in_placement(self, demand: Demand) -> bool:
        """Whether Placement has the GPUs of an instance, although Nova's rows may hold some of them."""
        own = self.groups
        self.groups = own + self.surplus
        try:
            return self._choose(demand, None) is not None
        finally:
            self.groups = own

    def apply(self, taken: Claim, *, sign: int = -1) -> None:
        """Take the resources of an instance; with ``sign=1``, return them."""
        demand = taken.demand
        self.instances -= sign
        self.ram += sign * demand.ram
        self.cpus += sign * demand.vcpus
        self.disk += sign * demand.disk * 1024
        for name, amount in taken.request.amounts.items():
            if name in self.amounts:
                self.amounts[name] += sign * amount
        for group, count in taken.groups.items():
            self.groups[group] += sign * count
        self.free += sign * demand.count
        for placed in taken.placed:
            if self.nodes is not None:
                self.nodes[placed.node] = used(self.nodes[placed.node], placed, sign=-sign)

    def on_nodes(self, demand: Demand, request: PlacementRequest) -> Claim | None:
        """A choice of GPUs, and of NUMA nodes if those of the host are known; None if they do not fit together."""
        if demand.topology is None:
            groups = self.gpus(demand)
            return None if groups is None else Claim(demand=demand, request=request, groups=groups)
        if self.nodes is None:
            # Only the nodes of GPUs are known: no fewer than these restrict the choice.
            known = {node for _names, node, _provider in self.groups if node not in (None, ANY_NODE)}
            for cells in itertools.combinations(sorted(known), min(len(demand.topology.nodes), len(known))):
                if (groups := self._choose(demand, cells)) is not None:
                    return Claim(demand=demand, request=request, groups=groups)
            return None
        devices = Counter(sums((node, count) for (_names, node, _provider), count in self.groups.items()))
        placed = place(self.nodes, demand.topology, devices, lambda cells: self._choose(demand, cells) is not None)
        if placed is None:
            return None
        chosen = self._choose(demand, [node.node for node in placed])
        return Claim(demand=demand, request=request, groups=chosen or {}, placed=placed)

    # --- GPUs -----------------------------------------------------------------------------------------------------

    def _choose(self, demand: Demand, cells: Collection[int] | None) -> dict[Group, int] | None:
        """Choose GPUs for each alias; None if there are too few.

        The alias with the fewest matching GPUs chooses first, and takes those that the fewest aliases match.

        :param cells: the NUMA nodes of the host that the instance is on; None if it has none.
        """
        chosen: Counter[Group] = Counter()
        requests = list(demand.gpus)
        if len(requests) > 1:
            requests.sort(key=lambda alias: self.count(frozenset((alias,))))
        for alias in requests:
            choices = (
                self._taken(demand, alias, near, chosen) for near in self._near(demand.policies.get(alias), cells)
            )
            if (taken := next((choice for choice in choices if choice is not None), None)) is None:
                return None
            chosen.update(taken)
        return chosen

    def _near(self, policy: str | None, cells: Collection[int] | None) -> Iterator[Sequence[int | None] | None]:
        """Yield the NUMA nodes from which the GPUs may be, closest first; None for all."""
        if cells is None:
            yield None
            return
        yield list(cells)
        if policy == "socket":
            sockets = {cell: node.socket for cell, node in (self.nodes or {}).items()}
            near = {sockets.get(cell) for cell in cells}
            if None not in sockets.values():
                yield [cell for cell, socket in sockets.items() if socket in near] if sockets else None
        elif policy != "required":
            yield [*cells, None]
            if policy == "preferred":
                yield None

    def _taken(
        self, demand: Demand, alias: str, near: Sequence[int | None] | None, chosen: Counter[Group]
    ) -> dict[Group, int] | None:
        """GPUs of some NUMA nodes for one alias; None if there are too few."""
        count, split = demand.gpus[alias], demand.vgpus.get(alias, True)
        taken: dict[Group, int] = {}
        for group in self._matching(alias, near):
            amount = min(count, self.groups[group] - chosen[group])
            if amount > 0 and (amount == count or split):
                taken[group] = amount
                count -= amount
        return None if count else taken

    def _matching(self, alias: str, near: Sequence[int | None] | None) -> list[Group]:
        of_alias = (group for group in self.groups if alias in group[0])
        matching = (group for group in of_alias if near is None or group[1] in (*near, ANY_NODE))
        return sorted(matching, key=lambda group: len(group[0]))
