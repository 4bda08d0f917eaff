"""Build the tree of a host from its facts, with distances between devices in the words of ``nvidia-smi topo -m``.

The parents in the facts come from the paths in sysfs, so from the kernel's own tree. sysfs does not name the type of a
port, so it follows from the position: a bridge on a root bus is a root port, the bridge below it with further bridges
is the upstream port of a switch, and these further bridges are its downstream ports.

The words and their meaning are NVML's levels (``nvml.h``, ``nvmlGpuTopologyLevel_t``): PIX and PXB count PCIe switches,
so the upstream and downstream ports of one switch are one bridge. Direct links between GPUs (NVLink) are no part of
PCI: they never appear here.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.base.files import data_table
from gpustack.hosts.facts.gpus import Gpu, is_nvswitch, main_functions
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.topology.links import link
from gpustack.hosts.topology.model import PORTS, Kind, Node, NumaBox, RootBus, Topology
from gpustack.pci import classes

_PCI_BRIDGE = "0604"
MOST_LEVELS = 64
"""Maximum number of bridges above a function. A switch takes two; a domain has 256 buses."""


def topology(host: Host) -> Topology:
    """The topology of a host."""
    return _Builder(host).build()


def bus_of(function: Function) -> str:
    """The root bus of a function that is on one. Snapshots of earlier versions do not contain it."""
    return function.root_bus or function.address.rpartition(":")[0]


class _Builder:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.gpus = {main.address: Gpu(main=main) for main in main_functions(host)}
        # A virtual function is counted at its physical function.
        physical = {f.address for f in host.pci if f.physical_function is None}
        self.functions = [f for f in sorted(host.pci, key=lambda f: f.bdf) if f.physical_function not in physical]
        self.parents = _parents(self.functions)
        above = ((self.parents[function.address], function) for function in self.functions)
        self.children = by_key((parent, function) for parent, function in above if parent is not None)
        self.ports_have_links = any(f.link for f in host.pci if f.pci_class.startswith(_PCI_BRIDGE))
        nics = [f.address for f in self.functions if f.pci_class.startswith(classes.NETWORK_BASE)]
        gpus = [f.address for f in self.functions if f.address in self.gpus]
        self.labels = {address: f"GPU{number}" for number, address in enumerate(gpus)}
        self.labels |= {address: f"NIC{number}" for number, address in enumerate(nics)}

    def build(self) -> Topology:
        numbers = {node.node: node for node in self.host.numa_nodes}
        # A node of memory only (CXL, a GPU's own memory) is shown if a device belongs to it.
        boxes: dict[int | None, dict[tuple[str, str | None, str | None], list[Node]]] = {
            number: {} for number, node in sorted(numbers.items()) if node.cpus
        }
        # Machines with one node often do not report it.
        only = next(iter(boxes)) if len(boxes) == 1 else None
        for function in self.functions:
            if self.parents[function.address] is not None:
                continue
            missing = function.parent
            top = self._numa(function)
            node = self.node(function, None, Kind.OTHER if missing else None, (top, top))
            bus = (bus_of(function), function.root_parent, missing)
            number = only if top is None else top
            boxes.setdefault(number, {}).setdefault(bus, []).append(node)
        return Topology(
            host=self.host,
            boxes=tuple(
                NumaBox(
                    number=number,
                    cpus=numbers[number].cpus if number in numbers else None,
                    memory_mib=numbers[number].memory_mib if number in numbers else None,
                    buses=tuple(
                        RootBus(bus=bus, controller=controller, missing=missing, children=tuple(children))
                        for (bus, controller, missing), children in buses.items()
                    ),
                )
                for number, buses in sorted(boxes.items(), key=lambda item: (item[0] is None, item[0] or 0))
            ),
        )

    def node(
        self, function: Function, port: Function | None, above: Kind | None, numa_nodes: tuple[int | None, int | None]
    ) -> Node:
        """The node of a function.

        :param port: the port with a link to the function.
        :param above: the kind of the function above it; None on a root bus.
        :param numa_nodes: the NUMA nodes of the tree's top and of the function above.
        """
        top, numa_node = numa_nodes
        kind = self._kind(function, above)
        gpu = self.gpus.get(function.address)
        numa_node = function.numa_node if function.numa_node is not None else numa_node
        below = function if kind in PORTS else None
        return Node(
            function=function,
            kind=kind,
            name=_name(function, kind, gpu),
            label=self.labels.get(function.address),
            link=None
            if kind in PORTS
            else link(function, port, on_card=gpu is not None and self._is_on_card(function, above)),
            numa_node=numa_node,
            strays=numa_node != top,
            virtual_functions=() if function.physical_function else self.host.virtual.get(function.address, ()),
            children=tuple(
                self.node(child, below, kind, (top, numa_node)) for child in self.children.get(function.address, ())
            ),
        )

    def _kind(self, function: Function, above: Kind | None) -> Kind:
        if function.address in self.gpus:
            return Kind.GPU
        if is_nvswitch(function):
            return Kind.NVSWITCH
        if function.pci_class.startswith(classes.NETWORK_BASE):
            return Kind.NIC
        children = self.children.get(function.address, ())
        if not (children or function.pci_class.startswith(_PCI_BRIDGE)):
            return Kind.OTHER
        if not self._is_express(function):
            return Kind.BRIDGE
        if above is None:
            return Kind.ROOT_PORT
        if above is Kind.UPSTREAM:
            return Kind.DOWNSTREAM
        has_ports = any(c.pci_class.startswith(_PCI_BRIDGE) and self._is_express(c) for c in children)
        return Kind.UPSTREAM if above in PORTS and has_ports else Kind.BRIDGE

    def _is_express(self, function: Function) -> bool:
        """Whether a bridge is a port of PCI Express. Kernels before 4.13 export no links: then all bridges are."""
        children = self.children.get(function.address, ())
        return not self.ports_have_links or any(f.link is not None for f in (function, *children))

    def _is_on_card(self, function: Function, above: Kind | None) -> bool:
        """Whether the link above a GPU is inside its card: the card has a switch of its own (AMD, Intel)."""
        port = self.host.functions.get(self.parents[function.address] or "")
        return above is Kind.DOWNSTREAM and port is not None and port.vendor == function.vendor

    def _numa(self, function: Function, levels: int = MOST_LEVELS) -> int | None:
        """The first NUMA node in the tree of a function."""
        if function.numa_node is not None or not levels:
            return function.numa_node
        below = (self._numa(child, levels - 1) for child in self.children.get(function.address, ()))
        return next((number for number in below if number is not None), None)


def _parents(functions: list[Function]) -> dict[str, str | None]:
    """The parent of each function; None on a root bus, or if the facts lack the parent.

    Facts come from other machines: a loop or an endless chain of parents is cut.
    """
    present = {function.address for function in functions}
    parents = {f.address: f.parent if f.parent in present else None for f in functions}
    for function in functions:
        above: str | None = function.address
        for _level in range(MOST_LEVELS):
            above = parents[above] if above is not None else None
        if above is not None:
            parents[function.address] = None
    return parents


def _name(function: Function, kind: Kind, gpu: Gpu | None) -> str:
    """The name of a function of this kind: ``NVIDIA Quadro K4200``, ``Mellanox InfiniBand controller [15b3:1017]``."""
    if gpu is not None:
        return gpu.name
    words, noun = data_table("topology.toml"), ""
    if kind in (Kind.NIC, Kind.OTHER):
        noun = words["networks"].get(function.pci_class[:4]) or classes.word(function.pci_class)
    return " ".join(part for part in (words["makers"].get(function.vendor), noun, f"[{function.ids}]") if part)


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
