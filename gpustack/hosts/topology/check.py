"""Findings about a host's topology: from its facts alone."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.readiness import isolation
from gpustack.hosts.readiness.host import is_virtual_machine
from gpustack.hosts.topology.model import DEVICES, Kind, Topology

_SHOWN = 4


def check(topology: Topology) -> tuple[Finding, ...]:
    """The findings about a topology."""
    isolated = (entry for gpu in gpus(topology.host) for entry in isolation.of_gpu(topology.host, gpu))
    return (*narrow_links(topology), *isolated, *_numa_nodes(topology), *_completeness(topology))


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
    if missing := [bus.missing for box in topology.boxes for bus in box.buses if bus.missing]:
        bridges = listed(sorted({*missing}), _SHOWN)
        yield finding(Code.TOPOLOGY_INCOMPLETE, place=host.hostname, bridges=bridges)
