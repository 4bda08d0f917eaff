"""The topology of a host: NUMA nodes, root buses, and the tree of PCI functions below them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpustack.base.text import listed
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.topology.links import Link


class Kind(enum.StrEnum):
    """The kind of a function in the tree."""

    GPU = "gpu"
    NIC = "nic"
    NVSWITCH = "nvswitch"
    ROOT_PORT = "root port"
    UPSTREAM = "upstream port"
    DOWNSTREAM = "downstream port"
    BRIDGE = "bridge"
    OTHER = "other"


_SHOWN_OWNERS = 4
DEVICES = (Kind.GPU, Kind.NIC, Kind.NVSWITCH)
"""The kinds that the tree is about; the others lead to them."""
PORTS = (Kind.ROOT_PORT, Kind.DOWNSTREAM)
"""The ports with a link below them."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A function with the functions below it.

    :ivar label: ``GPU0``, ``NIC1``: numbered by address; None for other kinds.
    :ivar name: the card, or kind and ids.
    :ivar numa_node: its NUMA node, or that of the port above it.
    :ivar strays: whether this is another node than that of the tree's top: somebody wrote to numa_node in sysfs.
    :ivar virtual_functions: its virtual functions; they are not nodes of the tree.
    :ivar owner: who uses the device or its virtual functions, as the caller named them.
    """

    function: Function
    kind: Kind
    name: str
    label: str | None = None
    link: Link | None = None
    numa_node: int | None = None
    strays: bool = False
    virtual_functions: tuple[Function, ...] = ()
    owner: str | None = None
    children: tuple[Node, ...] = ()

    @property
    def address(self) -> str:
        """Its address."""
        return self.function.address

    def walk(self) -> Iterator[Node]:
        """The node and all nodes below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, kw_only=True)
class RootBus:
    """The functions on one root bus, or below a bridge that the facts lack.

    :ivar bus: domain and number: ``0000:80``.
    :ivar controller: the function that provides the bus (Intel VMD); None if the processor does.
    :ivar missing: the address of the bridge above the functions that the facts lack; their position is unknown.
    """

    bus: str
    controller: str | None = None
    missing: str | None = None
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NumaBox:
    """A NUMA node with its root buses; ``number`` is None for devices that report no NUMA node."""

    number: int | None
    cpus: str | None = None
    memory_mib: int | None = None
    buses: tuple[RootBus, ...] = ()

    def nodes(self) -> Iterator[Node]:
        """All nodes of its trees."""
        for bus in self.buses:
            for child in bus.children:
                yield from child.walk()


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The topology of a host."""

    host: Host
    boxes: tuple[NumaBox, ...] = field(default=())

    def nodes(self) -> Iterator[Node]:
        """All nodes."""
        for box in self.boxes:
            yield from box.nodes()

    def devices(self, *kinds: Kind) -> tuple[Node, ...]:
        """The nodes of these kinds, by address."""
        return tuple(sorted((n for n in self.nodes() if n.kind in kinds), key=lambda n: n.function.bdf))

    def owned(self, owners: Mapping[str, str]) -> Topology:
        """The same with the owners of devices, by address; the drawings show them."""
        return self._with(lambda nodes: _owned(nodes, owners))

    def _with(self, change: Callable[[tuple[Node, ...]], tuple[Node, ...]]) -> Topology:
        return replace(
            self,
            boxes=tuple(
                replace(box, buses=tuple(replace(bus, children=change(bus.children)) for bus in box.buses))
                for box in self.boxes
            ),
        )

    def pruned(self) -> Topology:
        """Only the branches that lead to GPUs, NICs and NVSwitches."""
        boxes = [
            replace(box, buses=tuple(bus for bus in box.buses if bus.children)) for box in self._with(_pruned).boxes
        ]
        return replace(self, boxes=tuple(box for box in boxes if box.buses or box.number is not None))


def _owned(nodes: tuple[Node, ...], owners: Mapping[str, str]) -> tuple[Node, ...]:
    return tuple(replace(node, owner=_owner(node, owners), children=_owned(node.children, owners)) for node in nodes)


def _owner(node: Node, owners: Mapping[str, str]) -> str | None:
    own = [owners[node.address]] if node.address in owners else []
    virtual = [f"{owners[f.address]} ({f.address})" for f in node.virtual_functions if f.address in owners]
    return listed([*own, *virtual], _SHOWN_OWNERS) or None


def _pruned(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    shorter = (replace(node, children=_pruned(node.children)) for node in nodes)
    return tuple(node for node in shorter if node.children or node.kind in DEVICES)
