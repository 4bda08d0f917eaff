"""Take the resources of instances from a host, and give them back. Pure.

GPUs are chosen as Nova's scheduler does (nova/pci/stats.py, _filter_pools_for_numa_cells), NUMA nodes by :mod:`numa`.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpustack.operate.capacity import numa
from gpustack.operate.capacity.model import ANY_NODE, Demand, Host, PlacementRequest
from gpustack.operate.capacity.numa import Placed

Group = tuple[frozenset[str], int | None]
"""The aliases and the NUMA node of GPUs."""


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


class Room:
    """The free resources of a host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.amounts = dict(host.amounts)
        self.nodes = dict(host.nodes) if host.nodes is not None else None
        self.groups: dict[Group, int] = {}
        for cards in host.cards or ():
            group = (cards.aliases, cards.node)
            self.groups[group] = self.groups.get(group, 0) + cards.count
        self.free = sum(self.groups.values()) + host.others
        """All free PCI devices."""
        self.ram, self.cpus, self.disk = host.free.ram, host.free.cpus, host.free.disk

    def count(self, aliases: frozenset[str]) -> int:
        """The number of free GPUs that one of these aliases matches."""
        return sum(count for (names, _node), count in self.groups.items() if names & aliases)

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

    def apply(self, taken: Claim, *, sign: int = -1) -> None:
        """Take the resources of an instance; with ``sign=1``, return them."""
        demand = taken.demand
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
                self.nodes[placed.node] = numa.used(self.nodes[placed.node], placed, sign=-sign)

    def on_nodes(self, demand: Demand, request: PlacementRequest) -> Claim | None:
        """A choice of GPUs, and of NUMA nodes if those of the host are known; None if they do not fit together."""
        if demand.topology is None:
            groups = self.gpus(demand)
            return None if groups is None else Claim(demand=demand, request=request, groups=groups)
        if self.nodes is None:
            # Only the nodes of GPUs are known: no fewer than these restrict the choice.
            known = {node for _names, node in self.groups if node not in (None, ANY_NODE)}
            for cells in itertools.combinations(sorted(known), min(len(demand.topology.nodes), len(known))):
                if (groups := self._choose(demand, cells)) is not None:
                    return Claim(demand=demand, request=request, groups=groups)
            return None
        devices: dict[int | None, int] = {}
        for (_names, node), count in self.groups.items():
            devices[node] = devices.get(node, 0) + count
        placed = numa.place(
            self.nodes,
            demand.topology,
            devices,
            lambda cells: self._choose(demand, cells) is not None,
        )
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
        chosen: dict[Group, int] = {}
        requests = list(demand.gpus.items())
        if len(requests) > 1:
            requests.sort(key=lambda item: self.count(frozenset((item[0],))))
        for alias, count in requests:
            taken = None
            for near in self._near(demand, cells):
                if (taken := self._taken(alias, count, near, chosen)) is not None:
                    break
            if taken is None:
                return None
            for group, amount in taken.items():
                chosen[group] = chosen.get(group, 0) + amount
        return chosen

    def _near(self, demand: Demand, cells: Collection[int] | None) -> Iterator[Sequence[int | None] | None]:
        """Yield the NUMA nodes from which the GPUs may be, closest first; None for all."""
        if cells is None:
            yield None
            return
        yield list(cells)
        if demand.policy == "socket":
            sockets = {cell: node.socket for cell, node in (self.nodes or {}).items()}
            near = {sockets.get(cell) for cell in cells}
            if None not in sockets.values():
                yield [cell for cell, socket in sockets.items() if socket in near] if sockets else None
        elif demand.policy != "required":
            yield [*cells, None]
            if demand.policy == "preferred":
                yield None

    def _taken(
        self, alias: str, count: int, near: Sequence[int | None] | None, chosen: Mapping[Group, int]
    ) -> dict[Group, int] | None:
        """GPUs of some NUMA nodes for one alias; None if there are too few."""
        taken: dict[Group, int] = {}
        for group in self._matching(alias, near):
            amount = min(count, self.groups[group] - chosen.get(group, 0))
            if amount > 0:
                taken[group] = amount
                count -= amount
        return None if count else taken

    def _matching(self, alias: str, near: Sequence[int | None] | None) -> list[Group]:
        matching = [
            group
            for group in self.groups
            if alias in group[0] and (near is None or group[1] in near or group[1] == ANY_NODE)
        ]
        return sorted(matching, key=lambda group: len(group[0]))
