"""NUMA nodes of instances on those of hosts; tests/nova/capacity/test_walk.py compares them with Nova's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.room import place, used
from gpustack.operate.capacity.topology import GuestNode, Topology

CORES = tuple(frozenset({number, number + 8}) for number in range(4))
EVERY = frozenset(range(4)) | frozenset(range(8, 12))
NODE = NumaNode(
    cpus=EVERY,
    pcpus=EVERY,
    siblings=CORES,
    memory=8192,
    pages={4: (1048576, 1048576), 1 << 20: (4, 2)},
)
"""Four cores of two threads; without cpu_dedicated_set."""


def number(node: NumaNode, **more: Any) -> int:
    """How many instances fit on a host of one node."""
    known = {"nodes": (GuestNode(dedicated=2, memory=1024),), "policy": "dedicated", **more}
    guest = Topology(**known)
    for count in range(20):
        placed = place({0: node}, guest, {}, lambda _nodes: True)
        if placed is None:
            return count
        node = used(node, placed[0])
    return 20


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 4),
        ({"isolated": True}, 2),  # three of eight
        ({"threads": "require"}, 4),
        ({"threads": "isolate"}, 2),  # two cores each
        ({"pages": 1 << 20}, 2),  # two free pages
        ({"pages": 2048}, 0),
        ({"pages": -2}, 2),
        ({"threads": "isolate", "isolated": True}, 1),  # three cores of four
        ({"nodes": (GuestNode(dedicated=2, memory=4096),)}, 1),  # all pages of 4 KiB
        ({"nodes": (GuestNode(dedicated=2, memory=4097),)}, 0),
        ({"nodes": (GuestNode(shared=1),), "policy": "mixed", "isolated": True}, 0),  # as Nova: none is pinned
    ],
)
def test_processors_threads_and_pages_limit_the_number(more: dict[str, Any], expected: int) -> None:
    assert number(NODE, **more) == expected


def test_threads_are_required_where_a_core_has_several() -> None:
    single = replace(NODE, siblings=tuple(frozenset({cpu}) for cpu in EVERY))
    assert number(single, threads="require") == 0
    assert number(single, threads="isolate") == 4


def test_isolation_needs_a_host_without_dedicated_processors() -> None:
    assert number(replace(NODE, cpus=frozenset()), threads="isolate") == 0


def test_isolation_needs_a_core_for_each_processor_and_the_emulator() -> None:
    three, two = (
        replace(NODE, cpus=cpus, pcpus=cpus, siblings=CORES[:count])
        for count, cpus in ((count, frozenset().union(*CORES[:count])) for count in (3, 2))
    )
    assert number(three, threads="isolate") == 1  # two threads are left, of one core
    assert number(two, threads="isolate", isolated=True) == 0
    assert number(three, threads="isolate", isolated=True) == 1


def test_processors_are_of_as_many_cores_as_needed() -> None:
    busy = replace(NODE, pinned=frozenset({9, 10, 11}))
    guest = Topology(nodes=(GuestNode(dedicated=3),), policy="dedicated")
    (placed,) = place({0: busy}, guest, {}, lambda _nodes: True) or ()
    assert placed.pinned == {0, 1, 2}
    (placed,) = place({0: busy}, replace(guest, nodes=(GuestNode(dedicated=5),)), {}, lambda _nodes: True) or ()
    assert placed.pinned == {0, 1, 2, 3, 8}


PLAIN = replace(NODE, pages={}, cpu_ratio=2.0, ram_ratio=2.0)
"""A node that does not report pages. Its processors and memory may be overcommitted."""


@pytest.mark.parametrize(
    ("node", "cell", "policy", "expected"),
    [
        (PLAIN, GuestNode(dedicated=1, memory=8192), "dedicated", 1),
        (PLAIN, GuestNode(dedicated=1, memory=8193), "dedicated", 0),
        (PLAIN, GuestNode(shared=1, memory=8192), "shared", 2),
        (PLAIN, GuestNode(shared=1, memory=8193), "shared", 0),  # one instance never overcommits with itself
        (PLAIN, GuestNode(shared=8, memory=1), "shared", 2),
        (PLAIN, GuestNode(shared=9, memory=1), "shared", 0),
        (replace(PLAIN, pages=NODE.pages), GuestNode(shared=1, memory=4097), "shared", 0),
        (PLAIN, GuestNode(dedicated=2, shared=8, memory=1), "mixed", 2),
    ],
)
def test_overcommitment_has_its_limits(node: NumaNode, cell: GuestNode, policy: str, expected: int) -> None:
    assert number(node, nodes=(cell,), policy=policy) == expected
    assert number(node, nodes=(cell,), policy=policy, pages=2048) == 0


@pytest.mark.parametrize(("pages", "size"), [(None, 4), (-1, 4), (-2, 1 << 20), (-3, 1 << 20), (4, 4)])
def test_pages_have_the_requested_size(pages: int | None, size: int) -> None:
    guest = Topology(nodes=(GuestNode(dedicated=2, memory=1024),), policy="dedicated", pages=pages)
    (placed,) = place({0: NODE}, guest, {}, lambda _nodes: True) or ()
    assert placed.page == size


def test_a_size_of_pages_that_a_node_has_is_that_of_further_nodes() -> None:
    """Nova keeps the size that it chose for a node without processors, and finds no pages of it on the other."""
    guest = Topology(nodes=(GuestNode(dedicated=2, memory=1024),), policy="dedicated", pages=-3)
    full, small = replace(NODE, pinned=EVERY), replace(NODE, pages={4: NODE.pages[4]})
    assert place({0: full, 1: small}, guest, {0: 1}, lambda _nodes: True) is None
    assert place({0: full, 1: small}, guest, {1: 1}, lambda _nodes: True) is not None
    huge = replace(guest, pages=1 << 20)
    assert place({0: small, 1: small}, huge, {}, lambda _nodes: True) is None
    assert place({0: small, 1: NODE}, huge, {}, lambda _nodes: True) is not None


def test_the_use_of_a_node_can_be_removed() -> None:
    guest = Topology(nodes=(GuestNode(dedicated=2, shared=1, memory=1024),), policy="mixed")
    (placed,) = place({0: NODE}, guest, {}, lambda _nodes: True) or ()
    busy = used(NODE, placed)
    assert (busy.cpu_usage, busy.memory_usage, len(busy.pinned), busy.pages[4][1]) == (1, 1024, 2, 1048576 - 262144)
    assert used(busy, placed, sign=-1) == NODE


def test_nodes_with_devices_come_first() -> None:
    guest = Topology(nodes=(GuestNode(shared=1, memory=512),))
    (placed,) = place({0: NODE, 1: NODE}, guest, {1: 2, None: 4}, lambda _nodes: True) or ()
    assert placed.node == 1
    (placed,) = place({0: NODE, 1: replace(NODE, cpu_usage=1)}, guest, {1: 1}, lambda _nodes: True) or ()
    assert placed.node == 1
    assert place({0: NODE, 1: NODE}, guest, {1: 2}, lambda nodes: 0 in nodes) is not None
    assert place({0: NODE}, replace(guest, nodes=guest.nodes * 2), {}, lambda _nodes: True) is None


@pytest.mark.parametrize(("policy", "expected"), [("dedicated", 1), ("shared", 0)])
def test_nodes_with_most_free_processors_come_first(policy: str, expected: int) -> None:
    guest = Topology(nodes=(GuestNode(dedicated=1, memory=4) if policy == "dedicated" else GuestNode(shared=1),))
    host = {0: replace(NODE, pinned=frozenset({0, 8})), 1: replace(NODE, cpu_usage=1)}
    (placed,) = place(host, replace(guest, policy=policy), {}, lambda _nodes: True) or ()
    assert placed.node == expected
