"""Distances between devices, in the words of ``nvidia-smi topo -m``.

The words and their meaning are NVML's levels (``nvml.h``, ``nvmlGpuTopologyLevel_t``): PIX and PXB count PCIe switches,
so the upstream and downstream ports of one switch are one bridge. Direct links between GPUs (NVLink) are no part of
PCI: they never appear here.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpustack.base.files import data_table
from gpustack.hosts.facts.model import Host
from gpustack.hosts.topology.build import MOST_LEVELS, bus_of
from gpustack.hosts.topology.model import Kind, Node, Topology


class Distance(enum.StrEnum):
    """The path between two devices, the shortest first."""

    SELF = "X"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"
    UNKNOWN = "?"


_ONE_NODE = (Distance.PIX, Distance.PXB, Distance.PHB, Distance.NODE)
MOST_DEVICES = 256
"""Maximum number of GPUs and NICs in a matrix: facts come from other machines, and a matrix grows by the square."""

MEANINGS = {Distance(word): str(meaning) for word, meaning in data_table("topology.toml")["distances"].items()}

Position = tuple[str | None, tuple[Node, ...]]
"""The host bridge of a device, None if unknown, and the bridges below it."""


def distances(topology: Topology) -> Callable[[Node, Node], Distance]:
    """Measures the distance between two devices of a topology."""
    positions = dict(_positions(topology))
    numa_nodes = sum(bool(node.cpus) for node in topology.host.numa_nodes)

    def between(one: Node, other: Node) -> Distance:
        if one.address == other.address:
            return Distance.SELF
        if one.function.bdf.slot == other.function.bdf.slot:
            return Distance.PIX  # two functions of a device
        (ours, below_ours), (theirs, below_theirs) = positions[one.address], positions[other.address]
        if ours is not None and ours == theirs:
            return _below_host_bridge(below_ours, below_theirs)
        if one.numa_node is not None and other.numa_node is not None and one.numa_node != other.numa_node:
            return Distance.SYS
        if ours is None or theirs is None:
            return Distance.UNKNOWN
        is_one_node = numa_nodes == 1 or (one.numa_node is not None and one.numa_node == other.numa_node)
        return Distance.NODE if is_one_node else Distance.UNKNOWN

    return between


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The distance from each GPU to each GPU and NIC, by their addresses.

    :ivar distances: None if the host has more than :data:`MOST_DEVICES` devices.
    """

    gpus: tuple[Node, ...]
    columns: tuple[Node, ...]
    distances: Mapping[tuple[str, str], Distance] | None

    @property
    def omission(self) -> str:
        """Why there are no distances; empty if there are."""
        return "" if self.distances is not None else f"no distances: {len(self.columns)} GPUs and NICs are too many"


def matrix(topology: Topology) -> Matrix:
    """The distances between a host's GPUs, and from its GPUs to its NICs."""
    gpus = topology.devices(Kind.GPU)
    columns = (*gpus, *topology.devices(Kind.NIC))
    if len(columns) > MOST_DEVICES:
        return Matrix(gpus=gpus, columns=columns, distances=None)
    between = distances(topology)
    return Matrix(
        gpus=gpus, columns=columns, distances={(a.address, b.address): between(a, b) for a in gpus for b in columns}
    )


def near_nics(topology: Topology) -> dict[str, tuple[tuple[Node, Distance], ...]]:
    """The NICs on the NUMA node of each GPU, by the address of the GPU; the nearest first."""
    gpus, nics = topology.devices(Kind.GPU), topology.devices(Kind.NIC)
    if len(gpus) + len(nics) > MOST_DEVICES:
        return {}
    between, order = distances(topology), list(Distance)
    near: dict[str, tuple[tuple[Node, Distance], ...]] = {}
    for gpu in gpus:
        close = [(nic, distance) for nic in nics if (distance := between(gpu, nic)) in _ONE_NODE]
        near[gpu.address] = tuple(sorted(close, key=lambda entry: order.index(entry[1])))
    return near


def _below_host_bridge(ours: tuple[Node, ...], theirs: tuple[Node, ...]) -> Distance:
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared].address == theirs[shared].address:
        shared += 1
    if not shared:
        return Distance.PHB
    passed = (ours[shared - 1], *ours[shared:], *theirs[shared:])
    switches = sum(bridge.kind in (Kind.UPSTREAM, Kind.BRIDGE) for bridge in passed)
    return Distance.PIX if switches <= 1 else Distance.PXB


def _positions(topology: Topology) -> Iterator[tuple[str, Position]]:
    for box in topology.boxes:
        for bus in box.buses:
            host_bridge = None if bus.missing else _host_bridge(topology.host, bus.bus, bus.controller)
            for child in bus.children:
                yield from _below(child, host_bridge, ())


def _below(node: Node, host_bridge: str | None, bridges: tuple[Node, ...]) -> Iterator[tuple[str, Position]]:
    yield node.address, (host_bridge, bridges)
    for child in node.children:
        yield from _below(child, host_bridge, (*bridges, node))


def _host_bridge(host: Host, bus: str, controller: str | None) -> str:
    """The root bus of the processor: a bus of Intel VMD is behind the controller's own root bus."""
    for _level in range(MOST_LEVELS):
        if controller is None:
            break
        function = host.functions.get(controller)
        bus = bus_of(function) if function is not None else controller.rpartition(":")[0]
        controller = function.root_parent if function is not None else None
    return bus
