"""NUMA topologies of flavors; tests/nova/capacity/test_walk.py compares them with Nova's."""

from __future__ import annotations

import pytest

from gpustack.operate.capacity.topology import (
    BootRequest,
    FlavorRefusedError,
    GuestNode,
    Topology,
    processors_of,
    topology_of,
)


def topology(specs: dict[str, str], image: dict[str, str] | None = None) -> Topology | None:
    request = BootRequest(vcpus=4, ram=1024, specs=specs, image=image or {})
    return topology_of(request, processors_of(request))


def test_a_plain_flavor_has_no_topology() -> None:
    assert topology({}) is None
    assert topology({"hw:cpu_policy": "shared", "resources:CUSTOM_A": "1"}) is None


def test_each_kind_of_processors_and_pages() -> None:
    pinned = GuestNode(dedicated=4, memory=1024)
    assert topology({"hw:cpu_policy": "dedicated"}) == Topology(nodes=(pinned,), policy="dedicated")
    assert topology({"resources:PCPU": "4"}) == Topology(nodes=(pinned,), policy="dedicated")
    half = GuestNode(shared=2, memory=512)
    assert topology({"hw:numa_nodes": "2", "hw:mem_page_size": "2MB"}) == Topology(nodes=(half, half), pages=2048)
    mixed = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0", "hw:emulator_threads_policy": "isolate"}
    node = GuestNode(shared=1, dedicated=3, memory=1024)
    assert topology(mixed) == Topology(nodes=(node,), policy="mixed", isolated=True)
    by_hand = {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0", "hw:numa_cpus.1": "1-3"}
    by_hand |= {"hw:numa_mem.0": "24", "hw:numa_mem.1": "1000"}
    assert topology(by_hand) == Topology(nodes=(GuestNode(shared=1, memory=24), GuestNode(shared=3, memory=1000)))


def test_properties_of_an_image_count() -> None:
    found = topology({"hw:mem_page_size": "any"}, {"hw_cpu_policy": "dedicated", "hw_mem_page_size": "1GB"})
    assert found is not None
    assert (found.policy, found.pages) == ("dedicated", 1 << 20)


@pytest.mark.parametrize(
    ("specs", "image", "named"),
    [
        ({"hw:numa_nodes": "3"}, {}, "not divisible"),
        ({"hw:numa_nodes": "0"}, {}, "hw:numa_nodes"),
        ({"hw:cpu_policy": "pinned"}, {}, "hw:cpu_policy"),
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "excludes"),
        ({"hw:cpu_policy": "mixed"}, {}, "hw:cpu_dedicated_mask"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-9"}, {}, "hw:cpu_dedicated_mask"),
        ({"hw:cpu_thread_policy": "isolate"}, {}, "dedicated processors"),
        ({"resources:PCPU": "3"}, {}, "resources:PCPU is 3"),
        ({"resources:PCPU": "4", "hw:cpu_policy": "dedicated"}, {}, "exclude each other"),
        ({"hw:mem_page_size": "huge"}, {}, "hw:mem_page_size"),
        ({"hw:mem_page_size": "small"}, {"hw_mem_page_size": "2048"}, "hw_mem_page_size"),
        ({"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3"}, {}, "all of 1 NUMA nodes"),
        ({"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-2", "hw:numa_mem.0": "1024"}, {}, "add up"),
    ],
)
def test_flavors_that_nova_refuses(specs: dict[str, str], image: dict[str, str], named: str) -> None:
    with pytest.raises(FlavorRefusedError, match=named):
        topology(specs, image)
