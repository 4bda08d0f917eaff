"""The topology as a diagram in the languages of Mermaid and Graphviz: plain text, which other programs draw.

The topology as plain data for JSON and YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from gpustack.base.findings import Finding
from gpustack.base.text import printable
from gpustack.hosts.topology.build import Matrix, matrix
from gpustack.hosts.topology.model import DEVICES, Kind, Node, RootBus, Topology
from gpustack.hosts.topology.words import box_title, bus_title, details, title


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """A node of the diagram; ``link`` is the text at the line to the node above it."""

    number: int
    lines: tuple[str, ...]
    is_device: bool = False
    above: int | None = None
    link: str = ""


@dataclass(kw_only=True)
class _Group:
    """A frame around shapes or other frames."""

    title: str
    groups: list[_Group] = field(default_factory=list)
    shapes: list[_Shape] = field(default_factory=list)

    def all_shapes(self) -> Iterator[_Shape]:
        yield from self.shapes
        for group in self.groups:
            yield from group.all_shapes()


def mermaid(topologies: Sequence[Topology]) -> str:
    """One flowchart of the hosts for https://mermaid.js.org, which forges and Sphinx draw."""
    groups = _groups(topologies)
    lines = ["flowchart LR"]
    for number, group in enumerate(groups):
        lines += _mermaid_group(group, f"h{number}", "  ")
    for shape in (shape for group in groups for shape in group.all_shapes()):
        if shape.above is not None:
            link = f'|"{_mermaid_text([shape.link])}"|' if shape.link else ""
            lines.append(f"  f{shape.above} ---{link} f{shape.number}")
    return "\n".join(lines)


def dot(topologies: Sequence[Topology]) -> str:
    """One graph of the hosts for Graphviz: ``dot -Tsvg``."""
    groups = _groups(topologies)
    lines = ["graph topology {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    lines += ['  edge [fontname="sans-serif"];', '  fontname="sans-serif";']
    for number, group in enumerate(groups):
        lines += _dot_group(group, f"cluster_{number}", "  ")
    for shape in (shape for group in groups for shape in group.all_shapes()):
        if shape.above is not None:
            link = f" [label={_dot_text([shape.link])}]" if shape.link else ""
            lines.append(f"  f{shape.above} -- f{shape.number}{link};")
    return "\n".join([*lines, "}"])


def _groups(topologies: Sequence[Topology]) -> list[_Group]:
    groups, numbers = [], count()
    for topology in topologies:
        host = _Group(title=topology.host.hostname)
        for box in topology.boxes:
            group = _Group(title=box_title(box))
            for bus in box.buses:
                root = _Shape(number=next(numbers), lines=(bus_title(bus),))
                group.shapes.append(root)
                for node in bus.children:
                    _add(group.shapes, node, root.number, numbers)
            if not group.shapes:
                group.shapes.append(_Shape(number=next(numbers), lines=("no GPU and no NIC",)))
            host.groups.append(group)
        if not host.groups:
            host.shapes.append(_Shape(number=next(numbers), lines=("no GPU and no NIC",)))
        groups.append(host)
    return groups


def _add(shapes: list[_Shape], node: Node, above: int, numbers: Iterator[int]) -> None:
    """Append a node and all below it."""
    link = str(node.link) if node.link else ""
    lines = (title(node), *([", ".join(details(node))] if [*details(node)] else []))
    number = next(numbers)
    shapes.append(_Shape(number=number, lines=lines, is_device=node.kind in DEVICES, above=above, link=link))
    for child in node.children:
        _add(shapes, child, number, numbers)


def _mermaid_group(group: _Group, name: str, indent: str) -> Iterator[str]:
    yield f'{indent}subgraph {name}["{_mermaid_text([group.title])}"]'
    for shape in group.shapes:
        left, right = ("[[", "]]") if shape.is_device else ("[", "]")
        yield f'{indent}  f{shape.number}{left}"{_mermaid_text(shape.lines)}"{right}'
    for number, inner in enumerate(group.groups):
        yield from _mermaid_group(inner, f"{name}n{number}", indent + "  ")
    yield f"{indent}end"


def _mermaid_text(lines: Sequence[str]) -> str:
    """Text within quotes. Mermaid reads HTML, Markdown and codes there, so all but plain characters become codes."""
    return "<br/>".join(
        re.sub(r"[^\w .,:()/+-]", lambda m: f"#{ord(m[0])};", printable(line, keep="")) for line in lines
    )


def _dot_group(group: _Group, name: str, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph {name} {{"
    yield f"{indent}  label={_dot_text([group.title])};"
    for shape in group.shapes:
        style = ", penwidth=2" if shape.is_device else ""
        yield f"{indent}  f{shape.number} [label={_dot_text(shape.lines)}{style}];"
    for number, inner in enumerate(group.groups):
        yield from _dot_group(inner, f"{name}_{number}", indent + "  ")
    yield f"{indent}}}"


def _dot_text(lines: Sequence[str]) -> str:
    """A quoted string; ``\\n`` separates its lines."""
    quoted = (printable(line, keep="").replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(quoted) + '"'


def document(topology: Topology, findings: Iterable[Finding] = ()) -> dict[str, Any]:
    """A host's tree, distances and findings."""
    return {
        "host": topology.host.hostname,
        "numa_nodes": [
            {
                "node": box.number,
                "cpus": box.cpus,
                "memory_mib": box.memory_mib,
                "root_buses": [_bus(bus) for bus in box.buses],
            }
            for box in topology.boxes
        ],
        "distances": _distances(matrix(topology)),
        "nvswitches": [node.address for node in topology.devices(Kind.NVSWITCH)],
        "findings": [finding.to_dict() for finding in findings],
    }


def _distances(table: Matrix) -> dict[str, dict[str, str]] | None:
    if (distances := table.distances) is None:
        return None
    return {
        gpu.address: {node.address: distances[gpu.address, node.address].value for node in table.columns}
        for gpu in table.gpus
    }


def _bus(bus: RootBus) -> dict[str, Any]:
    return {
        "bus": None if bus.missing else bus.bus,
        "controller": bus.controller,
        "missing_bridge": bus.missing,
        "children": [_node(node) for node in bus.children],
    }


def _node(node: Node) -> dict[str, Any]:
    function, link = node.function, node.link
    rates = {"now": link.now, "limit": link.limit, "own": link.own} if link else {}
    return {
        "address": node.address,
        "kind": node.kind.value,
        "label": node.label,
        "name": node.name,
        "ids": function.ids,
        "class": function.pci_class,
        "driver": function.driver,
        "iommu_group": function.iommu_group,
        "numa_node": node.numa_node,
        "slot": function.slot,
        "interfaces": [interface.name for interface in function.uses.net],
        "infiniband": list(function.uses.infiniband),
        "link": {name: {"width": rate.width, "gigatransfers": rate.speed} for name, rate in rates.items()} or None,
        "virtual_functions": [f.address for f in node.virtual_functions],
        "owner": node.owner,
        "children": [_node(child) for child in node.children],
    }
