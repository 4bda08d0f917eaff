"""The topology of hosts for the page: each host of a small fleet; in a large one, hosts that are built alike once."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpustack.base.text import listed
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.model import State
from gpustack.hosts.facts.model import Host
from gpustack.hosts.topology.build import MEANINGS, matrix, topology
from gpustack.hosts.topology.model import Topology
from gpustack.hosts.topology.show import direct_links, tree
from gpustack.operate.report.hosts import GpuView, HostGroup, HostView

_MOST_SHAPES = 12
"""The most drawings of a large fleet."""
_SHOWN_HOSTS = 8

Drawing = dict[str, Any]
"""The topology of a host, for the template."""


@dataclass(kw_only=True)
class Shape:
    """Hosts with the same devices at the same places.

    :ivar drawing: that of the first host; None for hosts that are not drawn.
    """

    drawing: Drawing | None
    members: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return len(self.members)

    @property
    def names(self) -> str:
        """The names of the hosts, without those of a long list."""
        return listed(self.members, _SHOWN_HOSTS)


class Topologies:
    """The topologies of the hosts of a snapshot, each built once."""

    def __init__(self, hosts: tuple[Host, ...] = ()) -> None:
        self._hosts = hosts
        self._index = Index(Answers(hosts=hosts))
        self._built: dict[int, Topology] = {}

    def all(self) -> Iterator[Topology]:
        """The topology of each host."""
        return map(self._of, self._hosts)

    def _of(self, host: Host) -> Topology:
        if (built := self._built.get(id(host))) is None:
            built = self._built[id(host)] = topology(host)
        return built

    def drawing(self, host: HostView) -> Drawing | None:
        """The topology of a host, with the holders of its GPUs; None without its facts."""
        if (facts := self._index.facts(host.node)) is None:
            return None
        owners = {gpu.address: _owner(gpu) for gpu in host.gpus if gpu.uses}
        return _drawing(self._of(facts).owned(owners).pruned(), {gpu.address: gpu.state for gpu in host.gpus})

    def shapes(self, groups: Iterable[HostGroup]) -> list[Shape]:
        """The topologies that occur, most frequent first; the last one stands for all that are not drawn."""
        shapes: dict[bytes, Shape] = {}
        others = Shape(drawing=None)
        for host in (host for group in groups for host in group.hosts):
            if (facts := self._index.facts(host.node)) is None:
                continue
            built = self._of(facts).pruned()
            key = _key(built)
            if key not in shapes and len(shapes) < _MOST_SHAPES:
                shapes[key] = Shape(drawing=_drawing(built, {}))
            shapes.get(key, others).members.append(host.name)
        known = sorted(shapes.values(), key=lambda shape: -shape.hosts)
        return [*known, others] if others.members else known


def _owner(gpu: GpuView) -> str:
    names = [f"{use.instance} (project {use.project})" if use.project else use.instance for use in gpu.uses]
    return listed(names, 2)


def _drawing(built: Topology, marks: Mapping[str, State]) -> Drawing:
    """The lines below the host, and the distances with the words that occur.

    GPUs are the columns, because a host has fewer GPUs than GPUs and NICs, and screens are narrow.

    :param marks: the states of GPUs by address.
    """
    table = matrix(built)
    distances = table.distances or {}
    shown = table.columns if len(table.columns) > 1 and distances else ()
    used = {*distances.values()}
    return {
        "lines": tree(built).below,
        "marks": marks,
        "gpus": [gpu.label or "" for gpu in table.gpus],
        "distances": [
            (device.label or "", [distances[gpu.address, device.address].value for gpu in table.gpus])
            for device in shown
        ],
        "meanings": [(word.value, meaning) for word, meaning in MEANINGS.items() if word in used],
        "notes": [*([table.omission] if table.omission else []), *direct_links(built)],
    }


def _key(built: Topology) -> bytes:
    """Equal for hosts that differ in names, owners and the present rate of links only."""
    nodes = [
        (node.address, node.kind, node.name, node.numa_node, str(node.link.limit) if node.link else "")
        for node in built.nodes()
    ]
    return hashlib.sha256(repr(nodes).encode()).digest()
