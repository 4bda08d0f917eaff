"""The words on a node of the tree, which all drawings share."""

from collections.abc import Iterator

from gpustack.base.files import data_table
from gpustack.base.text import counted
from gpustack.hosts.topology.model import Kind, Node, NumaBox, RootBus


def title(node: Node) -> str:
    """The first words: ``GPU0 0000:84:00.0 NVIDIA Quadro K4200``, ``root port 0000:80:02.0``."""
    first = node.label or data_table("topology.toml")["titles"].get(node.kind, "")
    last = "" if node.kind in (Kind.ROOT_PORT, Kind.DOWNSTREAM) else node.name
    return " ".join(part for part in (first, node.address, last) if part)


def details(node: Node) -> Iterator[str]:
    """The words after the title, except the link."""
    function = node.function
    for interface in function.uses.net:
        yield interface.name + (f" ({interface.state})" if interface.state else "")
    yield from function.uses.infiniband
    if node.kind not in (Kind.ROOT_PORT, Kind.UPSTREAM, Kind.DOWNSTREAM, Kind.BRIDGE):
        yield f"driver {function.driver}" if function.driver else "no driver"
        if function.iommu_group is not None:
            yield f"IOMMU group {function.iommu_group}"
    if node.strays and node.numa_node is not None:
        yield f"NUMA node {node.numa_node}"
    if function.slot:
        yield f"slot {function.slot}"
    if node.virtual_functions:
        yield counted(len(node.virtual_functions), "virtual function")
    if node.owner:
        yield f"used by {node.owner}"


def box_title(box: NumaBox) -> str:
    """``NUMA node 1: CPUs 16-31, 128 GiB``."""
    if box.number is None:
        return "no NUMA node reported"
    memory = f"{round(box.memory_mib / 1024)} GiB" if box.memory_mib else ""
    facts = ", ".join(part for part in (f"CPUs {box.cpus}" if box.cpus else "", memory) if part)
    return f"NUMA node {box.number}" + (f": {facts}" if facts else "")


def bus_title(bus: RootBus) -> str:
    """``root bus 0000:80``."""
    if bus.missing:
        return f"unknown position: below {bus.missing}, which the facts do not place"
    return f"root bus {bus.bus}" + (f" of the controller {bus.controller}" if bus.controller else "")
