"""Findings about a topology."""

from __future__ import annotations

from typing import Any

from gpustack.codes import Code
from gpustack.findings import Finding
from gpustack.spec.model import Spec
from gpustack.topology.build import topology
from gpustack.topology.check import check
from support.host_samples import function, host
from support.pci_layouts import GEN3, Place, bridge, gpu, machine, nic, other, vmd

NARROW = {**GEN3, "width": 8}


def found(*places: Place, spec: Spec | None = None, **more: Any) -> list[tuple[Code, str]]:
    return [(f.code, f.place) for f in check(topology(machine(*places, **more)), spec)]


def on_node(node: int, *addresses: str) -> tuple[Place, ...]:
    return tuple(bridge(f"0000:{8 * node:02x}:{n:02x}.0", gpu(a), numa_node=node) for n, a in enumerate(addresses))


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
    return [f for f in check(topology(machine(*places)), flavors(**entries)) if f.code is Code.FLAVOR_SPANS_NUMA_NODES]


def test_a_link_without_all_lanes_is_reported_once_for_a_card() -> None:
    port = bridge("0000:00:02.0", nic("0000:05:00.0", link=NARROW), nic("0000:05:00.1", link=NARROW), numa_node=0)
    assert found(port) == [(Code.LINK_NARROW, "gpu01 0000:05:00.0")]


def test_a_switch_with_few_lanes_is_reported_if_a_device_is_below() -> None:
    def switch(device: Place) -> Place:
        ports = bridge("0000:04:00.0", device, bridge("0000:04:01.0"))
        return bridge("0000:00:02.0", bridge("0000:03:00.0", ports, link=NARROW), numa_node=0)

    assert found(switch(gpu("0000:05:00.0", link=GEN3))) == [(Code.LINK_NARROW, "gpu01 0000:03:00.0")]
    assert found(switch(other("0000:05:00.0"))) == []


def test_an_idle_gpu_is_no_finding() -> None:
    idle = {**GEN3, "speed": "2.5 GT/s PCIe"}
    assert found(bridge("0000:00:02.0", gpu("0000:05:00.0", link=idle), numa_node=0)) == []


def test_links_of_a_virtual_machine_are_not_checked() -> None:
    narrow = bridge("0000:00:02.0", gpu("0000:05:00.0", link=NARROW), numa_node=0)
    assert found(narrow, cpu={"flags": ["hypervisor"]}) == [(Code.TOPOLOGY_VIRTUAL, "gpu01")]
    dom0 = {"cpu": {"flags": ["hypervisor"]}, "kernel": {"loaded_modules": ["xenfs"]}}
    assert found(narrow, **dom0) == [(Code.LINK_NARROW, "gpu01 0000:05:00.0")]


def test_devices_without_a_node_matter_with_several_nodes() -> None:
    assert found(gpu("0000:05:00.0")) == [(Code.NUMA_NODE_UNREPORTED, "gpu01")]
    assert found(gpu("0000:05:00.0"), nodes=1) == []
    assert found(other("0000:05:00.0")) == []
    virtual = {"cpu": {"flags": ["hypervisor"]}}
    assert found(gpu("0000:05:00.0"), **virtual) == [(Code.TOPOLOGY_VIRTUAL, "gpu01")]


def test_missing_bridges_are_reported() -> None:
    (finding,) = check(topology(host(function("0000:05:00.0", parent="0000:04:00.0", numa_node=0))))
    assert (finding.code, "0000:04:00.0" in finding.message) == (Code.TOPOLOGY_INCOMPLETE, True)
    assert found(*vmd()) == []


def test_a_flavor_larger_than_each_node_is_reported() -> None:
    places = on_node(0, "0000:05:00.0", "0000:06:00.0") + on_node(1, "0000:85:00.0")
    (finding,) = spanning(*places, **{"v100-{count}": {"count": [1, 2, 3, 4]}})
    assert finding.message == "the flavor v100-3 requests 3 GPUs; no NUMA node of the host has more than 2 of them"


def test_a_gpu_without_a_node_may_be_on_any() -> None:
    places = (*on_node(0, "0000:05:00.0"), *on_node(1, "0000:85:00.0"), bridge("0000:40:02.0", gpu("0000:45:00.0")))
    (finding,) = spanning(*places, **{"v100-{count}": {"count": [2, 3]}})
    assert finding.message.startswith("the flavor v100-3 ")


def test_a_flavor_of_two_models_needs_both_on_one_node() -> None:
    first, second = on_node(0, "0000:05:00.0"), on_node(1, "0000:85:00.0")
    spec = flavors()
    models = {"other": {"match": {"vendor": "10de", "product": "20b5"}}, **spec.model_dump(by_alias=True)["models"]}
    mixed = {"vcpus": 4, "ram": "8GiB", "disk": 0, "gpus": {"v100": 1, "other": 1}}
    document = {"version": 1, "models": models, "hosts": {"gpu*": ["v100", "other"]}, "flavors": {"both": mixed}}
    two = bridge("0000:0c:02.0", gpu("0000:0d:00.0", "10de:20b5"), numa_node=1)
    one = bridge("0000:0c:02.0", gpu("0000:0d:00.0", "10de:20b5"), numa_node=0)
    apart = check(topology(machine(*first, two)), Spec.model_validate(document))
    together = check(topology(machine(*first, *second, one)), Spec.model_validate(document))
    assert ([f.code for f in apart], together) == ([Code.FLAVOR_SPANS_NUMA_NODES], ())


def test_models_with_one_alias_are_the_same_to_nova() -> None:
    places = (*on_node(0, "0000:05:00.0"), *on_node(1, "0000:85:00.0"))
    second = bridge("0000:0c:02.0", gpu("0000:0d:00.0", "10de:20b5"), numa_node=1)
    models = {
        "v100": {"match": {"vendor": "10de", "product": "1db5"}, "alias": "big"},
        "other": {"match": {"vendor": "10de", "product": "20b5"}, "alias": "big"},
    }
    flavor = {"vcpus": 4, "ram": "8GiB", "disk": 0, "model": "v100", "count": [2]}
    document = {"version": 1, "models": models, "hosts": {"gpu*": ["v100", "other"]}, "flavors": {"two": flavor}}
    spec = Spec.model_validate(document)
    assert [f.code for f in check(topology(machine(*places)), spec)] == [Code.FLAVOR_SPANS_NUMA_NODES]
    assert check(topology(machine(*places, second)), spec) == ()


def test_a_host_with_one_node_spans_none() -> None:
    places = on_node(0, "0000:05:00.0", "0000:06:00.0")
    assert check(topology(machine(*places, nodes=1)), flavors(**{"v100-{count}": {"count": [2]}})) == ()
