"""Take the resources of instances from a host, and give them back. Pure.

GPUs and NUMA nodes are chosen as Nova's scheduler does (nova/virt/hardware.py, numa_fit_instance_to_host;
nova/pci/stats.py, _filter_pools_for_numa_cells).
"""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.model import ANY_NODE, BY_CLASS, Demand, Host, Reason

Group = tuple[frozenset[str], int | None]
"""The aliases and the NUMA node of GPUs."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The resources of one instance.

    :ivar cells: the NUMA nodes of the host that it is on.
    """

    demand: Demand
    groups: dict[Group, int] = field(default_factory=dict)
    cells: tuple[int, ...] = ()


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

    def take(self, demand: Demand) -> Claim | Reason:
        """Take the resources of an instance; return the reason if it does not fit."""
        fit = self.fit(demand)
        if isinstance(fit, Claim):
            self.apply(fit)
        return fit

    def fit(self, demand: Demand) -> Claim | Reason:
        """The resources that an instance would take, or the reason why it does not fit."""
        groups = self._choose(demand, None) if self.free >= demand.count else None
        if groups is None:
            return Reason.FRAGMENTS
        if self.host.closed:
            return self.host.closed
        if not self.amounts:
            return Reason.RAM  # Placement lists only hosts with free memory
        for name, amount in demand.amounts.items():
            if self.amounts.get(name, 0) < amount and not (name == "DISK_GB" and self.host.shares_disk):
                return BY_CLASS.get(name, Reason.RESOURCE)
        if demand.nodes is None:
            return Claim(demand=demand, groups=groups)
        return self._on_nodes(demand, demand.nodes) or Reason.NUMA

    def put_back(self, taken: Claim) -> None:
        """Return the resources of an instance."""
        self.apply(taken, sign=1)

    def apply(self, taken: Claim, *, sign: int = -1) -> None:
        """Take the resources of an instance; with ``sign=1``, return them."""
        demand = taken.demand
        self.ram += sign * demand.ram
        self.cpus += sign * demand.vcpus
        self.disk += sign * demand.disk * 1024
        for name, amount in demand.amounts.items():
            if name in self.amounts:
                self.amounts[name] += sign * amount
        for group, count in taken.groups.items():
            self.groups[group] += sign * count
        self.free += sign * demand.count
        for cell in taken.cells:
            if self.nodes is not None:
                self.nodes[cell] = _changed(self.nodes[cell], demand, sign)

    # --- NUMA nodes -----------------------------------------------------------------------------------------------

    def _on_nodes(self, demand: Demand, number: int) -> Claim | None:
        """A choice of GPUs, and of NUMA nodes if those of the host are known."""
        if self.nodes is None:
            # Only the nodes of GPUs are known: no fewer than these restrict the choice.
            known = {node for _names, node in self.groups if node not in (None, ANY_NODE)}
            for cells in itertools.combinations(sorted(known), min(number, len(known))):
                if (groups := self._choose(demand, self._near(demand, cells))) is not None:
                    return Claim(demand=demand, groups=groups)
            return None
        for cells in itertools.permutations(self._ranked(demand), number):
            if all(_has_room(self.nodes[cell], demand) for cell in cells):
                groups = self._choose(demand, self._near(demand, cells))
                if groups is not None:
                    return Claim(demand=demand, groups=groups, cells=cells)
        return None

    def _ranked(self, demand: Demand) -> list[int]:
        """The nodes in the order in which Nova tries them: those with most free devices first."""
        nodes = self.nodes or {}
        if demand.nodes == len(nodes):
            return list(nodes)
        devices = dict.fromkeys(nodes, 0)
        for (_names, node), count in self.groups.items():
            if node in devices:
                devices[node] += count
        free = {node: entry.dedicated if demand.dedicated else entry.shared for node, entry in nodes.items()}
        return sorted(nodes, key=lambda node: (-devices[node], -free[node], -nodes[node].memory))

    def _near(self, demand: Demand, cells: Collection[int]) -> frozenset[int | None] | None:
        """The NUMA nodes from which the GPUs may be; None for all."""
        match demand.policy:
            case "required":
                return frozenset((*cells, ANY_NODE))
            case "socket":
                sockets = {cell: node.socket for cell, node in (self.nodes or {}).items()}
                if not sockets:
                    return None
                if None in sockets.values():
                    return frozenset((*cells, ANY_NODE)) if self._choose(demand, frozenset(cells)) else frozenset()
                near = {sockets[cell] for cell in cells}
                return frozenset((*(cell for cell, socket in sockets.items() if socket in near), ANY_NODE))
            case "preferred":
                return None
        return frozenset((*cells, None, ANY_NODE))

    # --- GPUs -----------------------------------------------------------------------------------------------------

    def _choose(self, demand: Demand, near: frozenset[int | None] | None) -> dict[Group, int] | None:
        """Choose GPUs for each alias; None if there are too few.

        The alias with the fewest matching GPUs chooses first, and takes those that the fewest aliases match.
        """
        chosen: dict[Group, int] = {}
        requests = list(demand.gpus.items())
        if len(requests) > 1:
            requests.sort(key=lambda item: self.count(frozenset((item[0],))))
        for alias, count in requests:
            missing = count
            for group in self._matching(alias, near):
                amount = min(missing, self.groups[group] - chosen.get(group, 0))
                if amount > 0:
                    chosen[group] = chosen.get(group, 0) + amount
                    missing -= amount
            if missing:
                return None
        return chosen

    def _matching(self, alias: str, near: frozenset[int | None] | None) -> Iterator[Group]:
        matching = [group for group in self.groups if alias in group[0] and (near is None or group[1] in near)]
        yield from sorted(matching, key=lambda group: len(group[0]))


def _has_room(node: NumaNode, demand: Demand) -> bool:
    """Whether a NUMA node has the processors and the memory of one node of the instance."""
    vcpus, ram = _share(demand)
    if demand.dedicated:
        return node.dedicated >= vcpus and node.memory >= ram
    # Nova permits overcommitment, but not of one instance with itself.
    return node.cpus >= vcpus and node.shared >= vcpus and node.total >= ram and node.overcommitted >= ram


def _changed(node: NumaNode, demand: Demand, sign: int) -> NumaNode:
    vcpus, ram = _share(demand)
    memory, overcommitted = node.memory + sign * ram, node.overcommitted + sign * ram
    if demand.dedicated:
        return replace(node, dedicated=node.dedicated + sign * vcpus, memory=memory, overcommitted=overcommitted)
    return replace(node, shared=node.shared + sign * vcpus, memory=memory, overcommitted=overcommitted)


def _share(demand: Demand) -> tuple[int, int]:
    nodes = demand.nodes or 1
    return -(-demand.vcpus // nodes), -(-demand.ram // nodes)
