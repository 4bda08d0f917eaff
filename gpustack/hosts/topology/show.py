"""The topology as text for people: the tree and the matrix of distances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpustack.base.text import counted
from gpustack.hosts.topology.build import MEANINGS, matrix
from gpustack.hosts.topology.model import PORTS, Kind, Node, NumaBox, Topology
from gpustack.hosts.topology.words import box_title, bus_title, details, title


@dataclass(frozen=True)
class _Lines:
    """The characters of the tree's lines."""

    branch: str
    last: str
    pass_by: str
    space: str
    arrow: str


UNICODE = _Lines("├─ ", "└─ ", "│  ", "   ", " → ")
ASCII = _Lines("|- ", "`- ", "|  ", "   ", " -> ")
_NVIDIA = "10de"
_DIRECT_LINKS = {_NVIDIA: "NVLink", "1002": "xGMI", "8086": "Xe Link"}


@dataclass(frozen=True)
class Item:
    """A line of the tree, with the lines below it.

    :ivar node: the device of the line; None if it is not about one.
    """

    text: str
    below: Sequence[Item]
    node: Node | None = None


def text(topology: Topology, lines: _Lines = UNICODE) -> str:
    """The tree, the matrix of distances, and what the host can't see.

    :param lines: :data:`UNICODE` or :data:`ASCII`.
    """
    parts = ["\n".join(_drawn(tree(topology, lines), lines)), *_matrix(topology), *direct_links(topology)]
    return "\n\n".join(parts)


def tree(topology: Topology, lines: _Lines = UNICODE) -> Item:
    """The lines of the tree: host, NUMA nodes, root buses, ports and devices."""
    return Item(_head(topology), [_box(box, lines) for box in topology.boxes])


def _head(topology: Topology) -> str:
    machine = topology.host.machine
    model = " ".join(part for part in (machine.vendor, machine.product) if part)
    nouns = {Kind.GPU: "GPU", Kind.NIC: "NIC", Kind.NVSWITCH: "NVSwitch"}
    devices = ", ".join(counted(len(found), noun) for kind, noun in nouns.items() if (found := topology.devices(kind)))
    return f"{topology.host.hostname}{f' ({model})' if model else ''}: {devices or 'no GPU and no NIC'}"


def _box(box: NumaBox, lines: _Lines) -> Item:
    buses = [Item(bus_title(bus), [_node(node, lines) for node in bus.children]) for bus in box.buses]
    return Item(box_title(box), buses or [Item("no GPU and no NIC", [])])


def _node(node: Node, lines: _Lines, before: str = "") -> Item:
    """A port with one device below it shares the device's line."""
    link = str(node.link) if node.link else ""
    words = before + ", ".join(part for part in (title(node), link, *details(node)) if part)
    if node.kind in PORTS and len(node.children) == 1:
        return _node(node.children[0], lines, words + lines.arrow)
    return Item(words, [_node(child, lines) for child in node.children], node)


def _drawn(item: Item, lines: _Lines, first: str = "", others: str = "") -> Iterator[str]:
    yield first + item.text
    for number, below in enumerate(item.below, 1):
        is_last = number == len(item.below)
        head, tail = (lines.last, lines.space) if is_last else (lines.branch, lines.pass_by)
        yield from _drawn(below, lines, others + head, others + tail)


def _matrix(topology: Topology) -> Iterator[str]:
    table = matrix(topology)
    gpus, columns, distances = table.gpus, table.columns, table.distances
    if len(columns) < 2 or not gpus:
        return
    if distances is None:
        yield table.omission
        return
    width = max(len(node.label or "") for node in columns) + 2
    rows = [["", *(column.label or "" for column in columns)]]
    rows += [[gpu.label or "", *(distances[gpu.address, column.address] for column in columns)] for gpu in gpus]
    yield "\n".join("".join(cell.ljust(width) for cell in row).rstrip() for row in rows)
    used = {*distances.values()}
    yield "\n".join(f"{word:<4}  {meaning}" for word, meaning in MEANINGS.items() if word in used)


def direct_links(topology: Topology) -> Iterator[str]:
    """The links between GPUs that are not visible on the PCI bus."""
    vendors = [gpu.function.vendor for gpu in topology.devices(Kind.GPU)]
    switches = len(topology.devices(Kind.NVSWITCH))
    present = f" ({counted(switches, 'NVSwitch')} present)" if switches else ""
    for vendor, name in _DIRECT_LINKS.items():
        if vendors.count(vendor) > 1:
            yield f"{name}: not visible on the PCI bus{present if vendor == _NVIDIA else ''}"
