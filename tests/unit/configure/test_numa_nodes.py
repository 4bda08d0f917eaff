"""Flavors that span NUMA nodes."""

from __future__ import annotations

from typing import Any

from gpustack.base.findings import Code, Finding
from gpustack.configure.numa_nodes import spanning_flavors
from gpustack.spec.model import Spec
from support.pci_layouts import Place, bridge, gpu, machine


def on_node(node: int, *addresses: str) -> tuple[Place, ...]:
    return tuple(
        bridge(f"0000:{8 * node:02x}:{n:02x}.0", gpu(a, iommu_group=8 * node + n), numa_node=node)
        for n, a in enumerate(addresses)
    )


def flavors(**entries: Any) -> Spec:
    return Spec.model_validate(
        {
            "version": 1,
            "models": {"v100": {"match": {"vendor": "10de", "product": "1db5"}}},
            "hosts": {"gpu*": ["v100"]},
            "flavors": {
                name: {"vcpus": 4, "ram": "8GiB", "disk": 0, "model": "v100", **e} for name, e in entries.items()
            },
        }
    )


def spanning(*places: Place, **entries: Any) -> list[Finding]:
    return list(spanning_flavors(machine(*places), flavors(**entries)))


def test_a_flavor_larger_than_each_node_is_reported() -> None:
    places = on_node(0, "0000:05:00.0", "0000:06:00.0") + on_node(1, "0000:85:00.0")
    (finding,) = spanning(*places, **{"v100-{count}": {"count": [1, 2, 3, 4]}})
    assert finding.message == "the flavor v100-3 requests 3 GPUs; no NUMA node of the host has more than 2 of them"


def test_a_gpu_without_a_node_may_be_on_any() -> None:
    places = (
        *on_node(0, "0000:05:00.0"),
        *on_node(1, "0000:85:00.0"),
        bridge("0000:40:02.0", gpu("0000:45:00.0", iommu_group=90)),
    )
    (finding,) = spanning(*places, **{"v100-{count}": {"count": [2, 3]}})
    assert finding.message.startswith("the flavor v100-3 ")


def test_a_flavor_of_two_models_needs_both_on_one_node() -> None:
    first, second = on_node(0, "0000:05:00.0"), on_node(1, "0000:85:00.0")
    spec = flavors()
    models = {"other": {"match": {"vendor": "10de", "product": "20b5"}}, **spec.model_dump(by_alias=True)["models"]}
    mixed = {"vcpus": 4, "ram": "8GiB", "disk": 0, "gpus": {"v100": 1, "other": 1}}
    document = {"version": 1, "models": models, "hosts": {"gpu*": ["v100", "other"]}, "flavors": {"both": mixed}}
    two = bridge("0000:0c:02.0", gpu("0000:0d:00.0", "10de:20b5", iommu_group=90), numa_node=1)
    one = bridge("0000:0c:02.0", gpu("0000:0d:00.0", "10de:20b5", iommu_group=90), numa_node=0)
    apart = list(spanning_flavors(machine(*first, two), Spec.model_validate(document)))
    together = list(spanning_flavors(machine(*first, *second, one), Spec.model_validate(document)))
    assert ([f.code for f in apart], together) == ([Code.FLAVOR_SPANS_NUMA_NODES], [])


def test_models_with_one_alias_are_the_same_to_nova() -> None:
    places = (*on_node(0, "0000:05:00.0"), *on_node(1, "0000:85:00.0"))
    second = bridge("0000:0c:02.0", gpu("0000:0d:00.0", "10de:20b5", iommu_group=90), numa_node=1)
    models = {
        "v100": {"match": {"vendor": "10de", "product": "1db5"}, "alias": "big"},
        "other": {"match": {"vendor": "10de", "product": "20b5"}, "alias": "big"},
    }
    flavor = {"vcpus": 4, "ram": "8GiB", "disk": 0, "model": "v100", "count": [2]}
    document = {"version": 1, "models": models, "hosts": {"gpu*": ["v100", "other"]}, "flavors": {"two": flavor}}
    spec = Spec.model_validate(document)
    assert [f.code for f in list(spanning_flavors(machine(*places), spec))] == [Code.FLAVOR_SPANS_NUMA_NODES]
    assert list(spanning_flavors(machine(*places, second), spec)) == []


def test_a_host_with_one_node_spans_none() -> None:
    places = on_node(0, "0000:05:00.0", "0000:06:00.0")
    assert list(spanning_flavors(machine(*places, nodes=1), flavors(**{"v100-{count}": {"count": [2]}}))) == []
