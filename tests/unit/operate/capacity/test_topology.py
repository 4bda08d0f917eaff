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


def test_locked_memory_needs_a_size_of_pages() -> None:
    assert topology({"hw:locked_memory": "true", "hw:mem_page_size": "small"}) is not None
    with pytest.raises(FlavorRefusedError, match="hw:locked_memory needs"):
        topology({"hw:locked_memory": "true"})


@pytest.mark.parametrize(
    ("specs", "image", "threads"),
    [
        ({}, {}, ""),
        ({"hw:cpu_thread_policy": "isolate"}, {}, "isolate"),
        ({"hw:cpu_thread_policy": "isolate"}, {"hw_cpu_thread_policy": "isolate"}, "isolate"),
        ({"hw:cpu_thread_policy": "prefer"}, {"hw_cpu_thread_policy": "isolate"}, "prefer"),
        ({}, {"hw_cpu_thread_policy": "require"}, "require"),
        ({"trait:HW_CPU_HYPERTHREADING": "forbidden"}, {}, "isolate"),
        ({"trait1:HW_CPU_HYPERTHREADING": "required"}, {}, "require"),
        ({}, {"trait:HW_CPU_HYPERTHREADING": "required"}, "require"),
    ],
)
def test_the_thread_policy_is_of_the_flavor_the_image_or_a_trait(
    specs: dict[str, str], image: dict[str, str], threads: str
) -> None:
    found = topology({"hw:cpu_policy": "dedicated", **specs}, image)
    assert found is not None
    assert found.threads == threads


PINNED = {"hw:cpu_policy": "dedicated"}
THREADS = "hw:cpu_thread_policy"


@pytest.mark.parametrize(
    ("specs", "image", "named"),
    [
        ({"hw:numa_nodes": "3"}, {}, "not divisible"),
        ({"hw:numa_nodes": "8"}, {}, "not divisible"),  # the memory is
        ({"hw:emulator_threads_policy": "own"}, {}, "hw:emulator_threads_policy is 'own'"),
        ({}, {"hw_cpu_policy": "pinned"}, "the image's hw_cpu_policy is 'pinned'"),
        ({**PINNED, THREADS: "own"}, {}, "hw:cpu_thread_policy is 'own'"),
        (PINNED, {"hw_cpu_thread_policy": "own"}, "the image's hw_cpu_thread_policy is 'own'"),
        ({**PINNED, THREADS: "isolate"}, {"hw_cpu_thread_policy": "require"}, "excludes"),
        ({**PINNED, THREADS: "isolate", "trait:HW_CPU_HYPERTHREADING": "forbidden"}, {}, "exclude each other"),
        ({"hw:numa_nodes": "0"}, {}, "hw:numa_nodes"),
        ({"hw:numa_nodes": " 1 "}, {}, "hw:numa_nodes"),
        ({"hw:cpu_policy": "pinned"}, {}, "hw:cpu_policy"),
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "excludes"),
        ({"hw:cpu_policy": "mixed"}, {}, "hw:cpu_dedicated_mask"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-9"}, {}, "hw:cpu_dedicated_mask"),
        (
            {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"},
            {},
            "must name some of the flavor's vCPUs, not all",
        ),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "3-4"}, {}, "must name some of the flavor's vCPUs"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0-3"}, {}, "must name some of the flavor's vCPUs"),
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
