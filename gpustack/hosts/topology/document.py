"""The topology as plain data for JSON and YAML."""

from collections.abc import Iterable
from typing import Any

from gpustack.base.findings import Finding
from gpustack.hosts.topology.distance import Matrix, matrix
from gpustack.hosts.topology.links import Link, Rate
from gpustack.hosts.topology.model import Kind, Node, RootBus, Topology


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
    distances = table.distances
    if distances is None:
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
    function = node.function
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
        "link": _link(node.link) if node.link else None,
        "virtual_functions": [f.address for f in node.virtual_functions],
        "owner": node.owner,
        "children": [_node(child) for child in node.children],
    }


def _link(link: Link) -> dict[str, Any]:
    return {"now": _rate(link.now), "limit": _rate(link.limit), "own": _rate(link.own)}


def _rate(rate: Rate) -> dict[str, Any]:
    return {"width": rate.width, "gigatransfers": rate.speed}
