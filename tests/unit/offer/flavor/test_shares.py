"""The resources of hosts that flavors divide: what is counted, on which node, and what is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpustack.hosts.facts.model import Cpu
from gpustack.offer.flavor.shares import HostShare, NodeShare, bars, host_shares, ram_for_each, vcpus_for_each
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from gpustack.spec.vgpu_use import with_memory
from support.host_samples import Raw, first_gpu, function, host
from support.mediated_hosts import card, mediated_host
from support.network_cards import network_card

GIB, MIB2 = 1 << 20, 2048


def spec(models: str = "p: {match: {vendor: '10de', product: '15f8'}}", more: str = "") -> Spec:
    return parse_spec(f"version: 1\nmodels: {{{models}}}\nhosts: {{'gpu*': [p]}}\n{more}", "spec")


def share(of: Spec | None = None, *functions: Raw, **more: Any) -> HostShare:
    pci = functions or (function("0000:01:00.0", numa_node=0),)
    (found,) = host_shares(of or spec(), [host(*pci, **more)])
    return found


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ("0-3", 4),
        ("0-3,8-11", 8),
        ("0,2, 4-5", 4),
        ("7", 1),
        ("", 0),  # the node of a GPU's memory
        (None, None),
        ("a-b", None),
        ("0-", 1),
        ("0-x", None),
        ("-3", None),
    ],
)
def test_cpus_of_a_node_are_counted(ranges: str | None, expected: int | None) -> None:
    node = share(numa_nodes=[{"node": 0, "cpus": ranges, "memory_mib": 7}]).nodes[0]
    assert (node.cpus, node.memory_mib) == (expected, 7)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([{}], None),
        ([{"huge_pages": []}], ({},)),
        ([{"huge_pages": [{"size_kib": GIB, "total": 2}, {"size_kib": MIB2, "total": 0}]}], ({GIB: 2, MIB2: 0},)),
        ([{"huge_pages": [{"size_kib": GIB, "total": 2}]}, {}], None),  # one node is unknown
        ([{"huge_pages": [{"size_kib": GIB, "total": None}]}], None),
        ([{"huge_pages": [{"size_kib": GIB, "total": 2}]}, {"cpus": ""}], ({GIB: 2},)),
        ([], None),
    ],
)
def test_huge_pages_are_those_of_all_nodes_with_cpus(
    nodes: list[Raw], expected: tuple[Mapping[int, int], ...] | None
) -> None:
    assert share(numa_nodes=[{"node": number, **node} for number, node in enumerate(nodes)]).huge_pages == expected


def test_gpus_and_networks_belong_to_their_node() -> None:
    more = "networks: {rdma: {match: {vendor: '8086', product: '10ca'}, physical_network: a}}\n"
    functions = [
        function("0000:01:00.0", numa_node=0),
        function("0000:02:00.0", numa_node=1, iommu_group=2),
        function("0000:03:00.0", numa_node=1, iommu_group=3),
        *network_card(0x1A, 2, "ens1", node=0),
    ]
    nodes = [{"node": number, "cpus": "0-3"} for number in (0, 1)]
    found = share(spec(more=more), *functions, numa_nodes=nodes, cpu={"logical": 8}, memory_mib=99)
    assert [(dict(node.gpus), node.networks) for node in found.nodes.values()] == [
        ({"p": 1}, {"rdma"}),
        ({"p": 2}, set()),
    ]
    assert (found.networks, found.cpus, found.memory_mib, found.gpu_count) == ({"rdma"}, 8, 99, 3)
    assert [gpu.main.address[5:7] for gpu in found.gpus["p"]] == ["01", "02", "03"]


def test_a_host_without_gpus_of_the_spec_has_no_share() -> None:
    assert host_shares(spec(), [host(function("0000:01:00.0", ids="10de:11b4"))]) == ()


def test_a_gpu_out_of_service_counts_for_sizes_only() -> None:
    out = "out_of_service: [{host: gpu01, address: '0000:02:00.0', reason: broken}]\n"
    functions = [function("0000:01:00.0"), function("0000:02:00.0", iommu_group=2)]
    found = share(spec(more=out), *functions)
    assert (len(found.gpus["p"]), found.gpu_count) == (1, 2)


def test_mediated_devices_are_counted_by_card_and_have_no_bars_of_the_card() -> None:
    text = "p: {match: {vendor: '10de', product: '25b6'}, vgpu: {type: A16-8Q}}"
    of_host = mediated_host(card("0000:41:00.0"), card("0000:42:00.0", used={"nvidia-711": None}))
    (found,) = host_shares(spec(text), [of_host])
    assert (len(found.gpus["p"]), found.gpu_count, found.of_one_card) == (5, 5, {"p"})
    assert (found.most("p"), found.has({"p": 3}), found.has({"p": 4})) == (3, True, False)
    assert {bars(gpu) for gpu in found.gpus["p"]} == {()}


def test_a_model_without_gpus_is_on_no_host() -> None:
    found = share()
    assert (found.most("p"), found.most("other")) == (1, 0)
    assert found.has({"p": 1})
    assert not found.has({"p": 1, "other": 1})
    assert replace(found, of_one_card=frozenset({"other"})).most("other") == 0


def with_nodes(*gpus: Mapping[str, int]) -> HostShare:
    nodes = {n: NodeShare(cpus=1, memory_mib=1, huge_pages=None, gpus=of_node) for n, of_node in enumerate(gpus)}
    return HostShare(
        host="h", cpus=1, memory_mib=1, processor=Cpu(), architecture=None, gpus={}, gpu_count=1, nodes=nodes
    )


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        ([{"a": 1}, {"a": 2}], {"a": 1}, 1),
        ([{"a": 1}, {"a": 2}], {"a": 2}, 1),
        ([{"a": 1}, {"a": 2}], {"a": 3}, 2),
        ([{"a": 1}, {"a": 2}], {"a": 4}, None),
        ([{"a": 9}, {"a": 1, "b": 1}], {"a": 1, "b": 1}, 1),  # nine of one kind are no better than one
        ([{"a": 1}, {}, {"b": 1}], {"a": 1, "b": 1}, 2),
        ([{"a": 1}], {"b": 1}, None),
        ([], {"a": 1}, None),
    ],
)
def test_as_few_nodes_as_hold_the_gpus(
    nodes: list[Mapping[str, int]], wanted: Mapping[str, int], expected: int | None
) -> None:
    assert with_nodes(*nodes).nodes_for(wanted) == expected


def sized(cpus: int | None, memory: int | None, gpus: int = 1) -> HostShare:
    return replace(with_nodes({}), cpus=cpus, memory_mib=memory, gpu_count=gpus)


@pytest.mark.parametrize(
    ("hosts", "reserve", "expected"),
    [
        ([(64, 4)], 0, 16),
        ([(64, 4)], 4, 14),  # 15 is odd
        ([(64, 4), (16, 1), (13, 1)], 0, 12),
        ([(64, 4), (None, 1)], 0, 16),
        ([(3, 1)], 1, 2),
        ([(4, 4)], 0, 1),
        ([(3, 1)], 2, 1),
        ([(4, 4)], 1, None),
        ([(None, 1)], 0, None),
        ([], 0, None),
    ],
)
def test_vcpus_are_the_share_of_the_host_with_fewest(
    hosts: list[tuple[int | None, int]], reserve: int, expected: int | None
) -> None:
    assert vcpus_for_each([sized(cpus, None, gpus) for cpus, gpus in hosts], reserve) == expected


@pytest.mark.parametrize(
    ("hosts", "reserve", "expected"),
    [
        ([(65536, 4)], 0, 16384),
        ([(65536, 4)], 4096, 15360),
        ([(65536, 4)], 4, 15360),  # whole GiB
        ([(65536, 4), (9000, 1)], 0, 8192),
        ([(65536, 4), (None, 1)], 0, 16384),
        ([(2048, 2)], 0, 1024),
        ([(2048, 2)], 1, None),
        ([(None, 1)], 0, None),
        ([], 0, None),
    ],
)
def test_ram_is_the_share_of_the_host_with_least(
    hosts: list[tuple[int | None, int]], reserve: int, expected: int | None
) -> None:
    assert ram_for_each([sized(None, memory, gpus) for memory, gpus in hosts], reserve) == expected


@pytest.mark.parametrize(
    ("bar", "expected"),
    [
        ({}, (1 << 30,)),
        ({"size": (1 << 30) + 1}, (1 << 31,)),  # a BAR's size is a power of two
        ({"size": 1}, (1,)),
        ({"size": 0}, ()),
        ({"prefetchable": False}, ()),
        ({"bits": 32}, ()),
        ({"io": True}, ()),
    ],
)
def test_only_large_bars_are_placed_above_4_gib(bar: dict[str, Any], expected: tuple[int, ...]) -> None:
    raw = {"index": 1, "start": 1 << 40, "size": 1 << 30, "bits": 64, "prefetchable": True, **bar}
    assert bars(first_gpu(host(function("0000:01:00.0", bars=[raw])))) == expected


def test_gpus_of_a_selection_are_those_of_its_models() -> None:
    """A flavor by attribute selects P100, not K4200; and one type of vGPU of two."""
    models = (
        "p: {match: {vendor: '10de', product: '15f8'}}, k: {match: {vendor: '10de', product: '11b4'}},"
        " large: {match: {vendor: '10de', product: '25b6', addresses: ['0000:41:00.0']}, vgpu: {type: A16-8Q}},"
        " small: {match: {vendor: '10de', product: '25b6', addresses: ['0000:42:00.0']}, vgpu: {type: A16-4Q}}"
    )
    flavors = "flavors: {f: {gpu: {min_memory: 8GiB}, vcpus: 1, ram: 1, disk: 1}}\n"
    both = f"version: 1\nmodels: {{{models}}}\nhosts: {{'gpu*': [p, k, large, small]}}\n{flavors}"
    wanted = parse_spec(both, "spec")
    ids = ("10de:15f8", "10de:15f8", "10de:11b4")
    cards = [function(f"0000:0{n}:00.0", ids=of_card, iommu_group=n) for n, of_card in enumerate(ids, 2)]
    facts = mediated_host(*cards, card("0000:41:00.0"), card("0000:42:00.0"))
    known = with_memory(wanted, [facts])
    (alias,) = known.selected
    (found,) = host_shares(known, [facts])
    assert {name: len(gpus) for name, gpus in found.gpus.items()} == {"p": 2, "k": 1, "large": 2, "small": 4, alias: 4}
    assert found.of_one_card == {"large", "small", alias}
