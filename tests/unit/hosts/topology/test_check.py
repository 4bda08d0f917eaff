"""Findings about a topology."""

from __future__ import annotations

from typing import Any

from gpustack.base.findings import Code
from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.check import check
from support.host_samples import function, host
from support.pci_layouts import GEN3, Place, bridge, gpu, machine, nic, other, vmd

NARROW = {**GEN3, "width": 8}


def found(*places: Place, **more: Any) -> list[tuple[Code, str]]:
    return [(f.code, f.place) for f in check(topology(machine(*places, **more)))]


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
