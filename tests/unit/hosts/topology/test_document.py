"""The topology as data."""

from __future__ import annotations

import json

from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.check import check
from gpustack.hosts.topology.document import document
from support.pci_layouts import GEN3, bridge, gpu, machine, nic, vmd


def test_the_promised_keys() -> None:
    narrow = gpu("0000:81:00.0", link={**GEN3, "width": 8}, iommu_group=4, driver="vfio-pci")
    built = topology(machine(bridge("0000:80:02.0", narrow, numa_node=1), nic("0000:80:04.0", numa_node=1)))
    data = json.loads(json.dumps(document(built, check(built))))
    assert list(data) == ["host", "numa_nodes", "distances", "nvswitches", "findings"]
    assert [node["node"] for node in data["numa_nodes"]] == [0, 1]
    (bus,) = data["numa_nodes"][1]["root_buses"]
    assert {key: bus[key] for key in bus if key != "children"} == {
        "bus": "0000:80",
        "controller": None,
        "missing_bridge": None,
    }
    assert bus["children"][0]["kind"] == "root port"
    assert bus["children"][0]["children"] == [
        {
            "address": "0000:81:00.0",
            "kind": "gpu",
            "label": "GPU0",
            "name": "NVIDIA Tesla V100 SXM2 32GB",
            "ids": "10de:1db5",
            "class": "030200",
            "driver": "vfio-pci",
            "iommu_group": 4,
            "numa_node": 1,
            "slot": None,
            "interfaces": [],
            "infiniband": [],
            "link": {
                "now": {"width": 8, "gigatransfers": 8.0},
                "limit": {"width": 16, "gigatransfers": 8.0},
                "own": {"width": 16, "gigatransfers": 8.0},
            },
            "virtual_functions": [],
            "owner": None,
            "children": [],
        }
    ]
    assert data["distances"] == {"0000:81:00.0": {"0000:81:00.0": "X", "0000:80:04.0": "PHB"}}
    assert [finding["code"] for finding in data["findings"]] == ["GPU720"]


def test_a_controller_is_named() -> None:
    data = document(topology(machine(*vmd())))
    assert [bus["controller"] for bus in data["numa_nodes"][1]["root_buses"]] == [None, "0000:80:05.5"]
