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
    guest = Topology(nodes=(GuestNode(dedicated=2, memory=1024),), **{"policy": "dedicated", **more})
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
    assert place({0: NODE, 1: NODE}, guest, {1: 2}, lambda nodes: 0 in nodes) is not None
    assert place({0: NODE}, replace(guest, nodes=guest.nodes * 2), {}, lambda _nodes: True) is None
