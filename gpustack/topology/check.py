"""Findings about a host's topology: codes GPU720 to GPU729."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.readiness.host import is_virtual_machine
from gpustack.spec.assignment import assigned_gpus
from gpustack.spec.flavors import named
from gpustack.spec.model import Spec
from gpustack.spec.requests import by_alias, by_model
from gpustack.text import listed
from gpustack.topology.model import DEVICES, Kind, Topology

_SHOWN = 4


def check(topology: Topology, spec: Spec | None = None) -> tuple[Finding, ...]:
    """The findings about a topology.

    :param spec: whose flavors are compared with the NUMA nodes.
    """
    flavors = _flavors(topology, spec) if spec is not None else ()
    return (*narrow_links(topology), *_numa_nodes(topology), *_completeness(topology), *flavors)


def narrow_links(topology: Topology) -> Iterator[Finding]:
    """Links with fewer lanes than both ends support."""
    if is_virtual_machine(topology.host):
        return  # its ports are the hypervisor's, and their links are emulated
    slots = set()
    for node in topology.pruned().devices(*DEVICES, Kind.UPSTREAM):
        link, slot = node.link, node.function.bdf.slot
        if link is not None and link.is_narrow and slot not in slots:
            slots.add(slot)
            place = f"{topology.host.hostname} {node.address}"
            yield finding(Code.LINK_NARROW, place=place, width=link.now.width, limit=link.limit.width)


def _numa_nodes(topology: Topology) -> Iterator[Finding]:
    host = topology.host
    nodes = sum(bool(node.cpus) for node in host.numa_nodes)
    lost = [d.address for d in topology.devices(Kind.GPU, Kind.NIC) if d.numa_node is None]
    if nodes > 1 and lost and not is_virtual_machine(host):
        yield finding(Code.NUMA_NODE_UNREPORTED, place=host.hostname, devices=listed(lost, _SHOWN), nodes=nodes)


def _completeness(topology: Topology) -> Iterator[Finding]:
    host = topology.host
    if is_virtual_machine(host):
        yield finding(Code.TOPOLOGY_VIRTUAL, place=host.hostname)
    missing = [bus.missing for box in topology.boxes for bus in box.buses if bus.missing]
    if missing:
        bridges = listed(sorted({*missing}), _SHOWN)
        yield finding(Code.TOPOLOGY_INCOMPLETE, place=host.hostname, bridges=bridges)


def _flavors(topology: Topology, spec: Spec) -> Iterator[Finding]:
    """Flavors whose GPUs this host can only take from several NUMA nodes.

    Models with one alias are the same to Nova. A GPU without a reported node may belong to any node.
    """
    host = topology.host
    nodes_of: dict[str, list[int | None]] = {}
    for assigned in assigned_gpus(spec, host):
        for alias in spec.aliases_of(assigned.model):
            nodes_of.setdefault(alias, []).append(assigned.gpu.main.numa_node)
    candidates = {number for numbers in nodes_of.values() for number in numbers}
    for template, flavor in spec.flavors.items():
        for count, models in by_model(flavor):
            request = by_alias(spec, models)
            if any(len(nodes_of.get(alias, ())) < number for alias, number in request.items()):
                continue  # no instance fits the host
            if not any(_fits(node, request, nodes_of) for node in candidates):
                most = max(_on(node, request, nodes_of) for node in candidates)
                name = named(template, count)
                yield finding(Code.FLAVOR_SPANS_NUMA_NODES, place=host.hostname, flavor=name, count=count, most=most)


def _fits(node: int | None, request: Mapping[str, int], nodes_of: Mapping[str, list[int | None]]) -> bool:
    return all(sum(n in (node, None) for n in nodes_of[alias]) >= number for alias, number in request.items())


def _on(node: int | None, request: Mapping[str, int], nodes_of: Mapping[str, list[int | None]]) -> int:
    """The most GPUs of the request that one node can have."""
    return sum(min(number, sum(n in (node, None) for n in nodes_of[alias])) for alias, number in request.items())
