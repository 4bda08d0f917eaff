"""Distances in nvidia-smi's words, on machines whose matrix is published."""

from __future__ import annotations

import pytest

from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.distance import MOST_DEVICES, matrix, near_nics
from gpustack.hosts.topology.model import Topology
from support.host_samples import function, host
from support.pci_layouts import (
    Place,
    bridge,
    conventional,
    dgx1,
    domains,
    gpu,
    hgx,
    machine,
    nic,
    thunderbolt,
    virtual,
    vmd,
)


def table(*places: Place, nodes: int = 2) -> dict[str, str]:
    """The rows of the matrix by label."""
    return rows(topology(machine(*places, nodes=nodes)))


def rows(built: Topology) -> dict[str, str]:
    found = matrix(built)
    assert found.distances is not None
    return {str(a.label): " ".join(found.distances[a.address, b.address] for b in found.columns) for a in found.gpus}


def test_dgx1_is_as_nvidia_smi_prints_it() -> None:
    """PCI only (``nvidia-smi topo -mp``): the published matrix has NVLink where GPUs are connected by it."""
    assert table(*dgx1()) == {
        "GPU0": "X PIX PHB PHB SYS SYS SYS SYS PIX PHB SYS SYS",
        "GPU1": "PIX X PHB PHB SYS SYS SYS SYS PIX PHB SYS SYS",
        "GPU2": "PHB PHB X PIX SYS SYS SYS SYS PHB PIX SYS SYS",
        "GPU3": "PHB PHB PIX X SYS SYS SYS SYS PHB PIX SYS SYS",
        "GPU4": "SYS SYS SYS SYS X PIX PHB PHB SYS SYS PIX PHB",
        "GPU5": "SYS SYS SYS SYS PIX X PHB PHB SYS SYS PIX PHB",
        "GPU6": "SYS SYS SYS SYS PHB PHB X PIX SYS SYS PHB PIX",
        "GPU7": "SYS SYS SYS SYS PHB PHB PIX X SYS SYS PHB PIX",
    }


def test_switches_below_a_switch_are_several_bridges() -> None:
    assert table(*hgx()) == {"GPU0": "X PXB PXB NODE", "GPU1": "PXB X PXB NODE"}


def test_a_bus_of_vmd_is_behind_its_controllers_host_bridge() -> None:
    assert table(*vmd()) == {"GPU0": "X PHB PHB", "GPU1": "PHB X PHB"}


def test_a_chain_of_thunderbolt_has_several_switches() -> None:
    assert table(*thunderbolt(), nodes=1) == {"GPU0": "X PXB"}


def test_conventional_bridges_on_the_root_bus_are_apart() -> None:
    assert table(*conventional()) == {"GPU0": "X PHB"}


def test_conventional_bridges_count_as_switches() -> None:
    inner = bridge("0000:03:04.0", nic("0000:04:00.0", "8086:100e"), link=None)
    outer = bridge("0000:02:00.0", gpu("0000:03:00.0", link=None), nic("0000:03:01.0", link=None), inner)
    assert table(bridge("0000:00:1c.0", outer)) == {"GPU0": "X PIX PXB"}


def test_the_switches_on_both_sides_count() -> None:
    deep = bridge("0000:06:00.0", bridge("0000:07:00.0", nic("0000:08:00.0")))
    switch = bridge("0000:03:00.0", bridge("0000:04:00.0", gpu("0000:05:00.0")), bridge("0000:04:04.0", deep))
    assert table(bridge("0000:00:02.0", switch)) == {"GPU0": "X PXB"}


def test_nodes_of_memory_only_do_not_count() -> None:
    nodes = [{"node": 0, "cpus": "0-7"}, {"node": 250, "cpus": None}]
    assert (
        rows(topology(host(function("0000:05:00.0"), function("0000:06:00.0"), numa_nodes=nodes)))["GPU0"] == "X NODE"
    )


def test_one_bus_of_a_virtual_machine_is_one_host_bridge() -> None:
    assert table(*virtual(), nodes=1) == {"GPU0": "X PHB PHB", "GPU1": "PHB X PHB"}


def test_each_domain_has_a_host_bridge() -> None:
    assert table(*domains()) == {"GPU0": "X NODE SYS", "GPU1": "NODE X SYS", "GPU2": "SYS SYS X"}


@pytest.mark.parametrize(("nodes", "word"), [(1, "NODE"), (2, "?"), (0, "?")])
def test_without_numa_nodes_of_devices_the_host_decides(nodes: int, word: str) -> None:
    places = bridge("0000:00:02.0", gpu("0000:05:00.0")), bridge("0000:80:02.0", gpu("0000:85:00.0"))
    assert table(*places, nodes=nodes) == {"GPU0": f"X {word}", "GPU1": f"{word} X"}


def test_one_known_node_of_two_does_not_decide() -> None:
    places = bridge("0000:00:02.0", gpu("0000:05:00.0"), numa_node=0), bridge("0000:80:02.0", gpu("0000:85:00.0"))
    assert table(*places) == {"GPU0": "X ?", "GPU1": "? X"}


def test_functions_of_one_device_share_a_bridge() -> None:
    """Also on a root bus: the two ports of a NIC within the processor."""
    (row,) = table(gpu("0000:00:05.0"), nic("0000:00:05.1"), nic("0000:00:06.0")).values()
    assert row == "X PIX PHB"


def test_two_gpus_of_one_card_have_its_switch_between_them() -> None:
    """Tesla K80: nvidia-smi prints PIX."""
    pair = (
        bridge("0000:04:08.0", gpu("0000:05:00.0", "10de:102d")),
        bridge("0000:04:10.0", gpu("0000:06:00.0", "10de:102d")),
    )
    assert table(bridge("0000:00:02.0", bridge("0000:03:00.0", *pair))) == {"GPU0": "X PIX", "GPU1": "PIX X"}


def test_an_unknown_position_is_not_guessed() -> None:
    known = {"numa_nodes": [{"node": 0, "cpus": "0-7"}, {"node": 1, "cpus": "8-15"}]}
    facts = host(
        function("0000:05:00.0", parent="0000:04:08.0", numa_node=0),
        function("0000:06:00.0", parent="0000:04:10.0", numa_node=0),
        function("0000:86:00.0", parent="0000:84:10.0", numa_node=1),
        **known,
    )
    assert rows(topology(facts)) == {"GPU0": "X ? SYS", "GPU1": "? X SYS", "GPU2": "SYS SYS X"}


def test_pruning_leaves_the_distances() -> None:
    built = topology(machine(*hgx()))
    assert rows(built.pruned()) == rows(built)


def test_a_host_with_a_thousand_devices_has_no_matrix() -> None:
    """Its facts are forged; a matrix of them would fill the memory."""
    many = [function(f"{domain:04x}:{bus:02x}:00.0") for domain in range(4) for bus in range(256)]
    assert matrix(topology(host(*many))).distances is None
    assert matrix(topology(host(*many[:MOST_DEVICES]))).distances is not None


def test_nics_of_the_gpus_numa_node_are_near_and_the_nearest_is_first() -> None:
    built = topology(machine(*dgx1(), nodes=2))
    labels = {node.address: node.label for node in matrix(built).columns}
    near = {
        labels[gpu]: [f"{nic.label} {distance}" for nic, distance in nics] for gpu, nics in near_nics(built).items()
    }
    assert near["GPU0"] == ["NIC0 PIX", "NIC1 PHB"]
    assert near["GPU6"] == ["NIC3 PIX", "NIC2 PHB"]
