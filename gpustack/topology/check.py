"""Findings about a host's topology: codes GPU720 to GPU729."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.readiness.host import is_virtual_machine
from gpustack.spec.assignment import assigned_gpus
from gpustack.spec.flavors import named, requests
from gpustack.spec.model import Spec
from gpustack.text import listed
from gpustack.topology.model import DEVICES, Kind, Topology

_SHOWN = 4


def check(topology: Topology, spec: Spec | None = None) -> tuple[Finding, ...]:
    """The findings about a topology.

    :param spec: whose flavors are compared with the NUMA nodes.
    """
    flavors = _flavors(topology, spec) if spec is not None else ()
    return (*_links(topology), *_numa_nodes(topology), *_completeness(topology), *flavors)


def _links(topology: Topology) -> Iterator[Finding]:
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
    if nodes > 1 and lost:
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

    A GPU without a reported node may belong to any node, so nothing is claimed that depends on it.
    """
    host = topology.host
    by_model: dict[str, list[int | None]] = {}
    for assigned in assigned_gpus(spec, host):
        by_model.setdefault(assigned.model, []).append(assigned.gpu.main.numa_node)
    if sum(bool(node.cpus) for node in host.numa_nodes) < 2:
        return
    for template, flavor in spec.flavors.items():
        for count, models in requests(flavor):
            if any(len(by_model.get(model, ())) < number for model, number in models.items()):
                continue
            if not any(
                _fits(node, models, by_model) for node in {n for of_model in by_model.values() for n in of_model}
            ):
                most = max(_on(node.node, models, by_model) for node in host.numa_nodes)
                name = named(template, count)
                yield finding(Code.FLAVOR_SPANS_NUMA_NODES, place=host.hostname, flavor=name, count=count, most=most)


def _fits(node: int | None, models: Mapping[str, int], by_model: Mapping[str, list[int | None]]) -> bool:
    return all(sum(n in (node, None) for n in by_model[model]) >= number for model, number in models.items())


def _on(node: int, models: Mapping[str, int], by_model: Mapping[str, list[int | None]]) -> int:
    return sum(min(number, by_model[model].count(node)) for model, number in models.items())
