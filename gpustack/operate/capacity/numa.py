"""Place the NUMA nodes of an instance on those of a host, as Nova's scheduler and nova-compute do. Pure.

Source: ``numa_fit_instance_to_host``, ``_numa_fit_instance_cell`` and ``_pack_instance_onto_cores`` of
nova/virt/hardware.py; ``numa_usage_from_instance_numa`` for the use of a host afterwards.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpustack.novadb.model import NumaNode
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
    chosen = {_SMALL: sizes[-1:], _LARGE: sizes[:-1], _ANY: sizes}.get(pages, [pages])
    return next((size for size in chosen if _holds(node, size, cell, free=True)), None)


def _holds(node: NumaNode, size: int, cell: GuestNode, *, free: bool) -> bool:
    total, left = node.pages.get(size, (0, 0))
    memory = cell.memory * 1024
    return size in node.pages and memory <= (left if free else total) * size and memory % size == 0


def _cores(node: NumaNode) -> tuple[int, list[list[int]]]:
    """The threads of a core, and the free dedicated processors of each core that has some."""
    free = node.free
    cores = [sorted(core & free) for core in node.siblings]
    return max(map(len, node.siblings), default=1), [core for core in cores if core]


def _isolated(node: NumaNode, cell: GuestNode, reserved: int) -> frozenset[int] | None:
    """One thread of each core, whose other threads stay idle."""
    width, cores = _cores(node)
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
    width, cores = _cores(node)
    require = threads == "require"
    if require and width <= 1:
        return None
    most = max(map(len, cores), default=0)
    found = False
    for number in range(most, int(require), -1):
        usable = [cpu for core in cores if len(core) >= number for cpu in core[:number]]
        if len(usable) < cell.dedicated:
            found = False
            continue
        found = True
        if (pinned := _reserve(usable[: cell.dedicated], cores, reserved)) is not None:
            return pinned
    if require or (found and cell.dedicated):
        return None
    every = [cpu for core in cores for cpu in core]
    return _reserve(every[: cell.dedicated], cores, reserved) if len(every) >= cell.dedicated else None


def _reserve(chosen: Sequence[int], cores: Sequence[Sequence[int]], reserved: int) -> frozenset[int] | None:
    """The chosen processors with those of the emulator; None if none is left for it."""
    rest = [cpu for core in cores for cpu in core if cpu not in chosen][:reserved]
    if reserved and (not chosen or not rest):
        return None
    return frozenset((*chosen, *rest))
