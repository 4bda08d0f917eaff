"""The topology as text."""

from __future__ import annotations

from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.diagram import document
from gpustack.hosts.topology.show import ASCII, text
from support.host_samples import function, host
from support.pci_layouts import bridge, gpu, machine, nic, virtual, vmd


def test_a_switch_with_a_nic_and_an_owner() -> None:
    devices = (
        bridge("0000:04:08.0", gpu("0000:05:00.0", driver="vfio-pci", iommu_group=7, slot="4")),
        bridge(
            "0000:04:10.0",
            nic(
                "0000:06:00.0",
                driver="mlx5_core",
                uses={"net": [{"name": "ib0", "state": "up"}], "infiniband": ["mlx5_0"]},
            ),
        ),
    )
    built = topology(
        machine(bridge("0000:00:02.0", bridge("0000:03:00.0", *devices), numa_node=1), machine={"product": "DL380"}),
    ).owned({"0000:05:00.0": "vm1"})
    assert text(built).splitlines() == [
        "gpu01 (DL380): 1 GPU, 1 NIC",
        "├─ NUMA node 0: CPUs 0-7, 64 GiB",
        "│  └─ no GPU and no NIC",
        "└─ NUMA node 1: CPUs 8-15, 64 GiB",
        "   └─ root bus 0000:00",
        "      └─ root port 0000:00:02.0 → switch 0000:03:00.0 PLX [10b5:8764], x16 Gen3",
        (
            "         ├─ port 0000:04:08.0 → GPU0 0000:05:00.0 NVIDIA Tesla V100 SXM2 32GB, x16 Gen3, driver vfio-pci,"
            " IOMMU group 7, slot 4, used by vm1"
        ),
        (
            "         └─ port 0000:04:10.0 → NIC0 0000:06:00.0 Mellanox InfiniBand controller [15b3:1013], x16 Gen3,"
            " ib0 (up), mlx5_0, driver mlx5_core"
        ),
        "",
        "      GPU0  NIC0",
        "GPU0  X     PIX",
        "",
        "PIX   at most one PCIe switch",
    ]


def test_ascii_draws_the_same_tree() -> None:
    built = topology(machine(*vmd()))
    plain = text(built, ASCII)
    assert plain.isascii()
    replaced = text(built).translate(str.maketrans({"│": "|", "├": "|", "└": "`", "─": "-"})).replace("→", "->")
    assert plain == replaced


def test_direct_links_between_gpus_are_never_guessed() -> None:
    switch = function("0000:c4:00.0", ids="10de:1af1", pci_class="068000")
    two = [function("0000:05:00.0"), function("0000:06:00.0")]
    assert text(topology(host(*two, switch))).endswith("\nNVLink: not visible on the PCI bus (1 NVSwitch present)")
    assert text(topology(host(*two))).endswith("\nNVLink: not visible on the PCI bus")
    assert "NVLink" not in text(topology(host(two[0])))
    amd = [function(f"0000:0{n}:00.0", ids="1002:74a1", pci_class="120000") for n in (5, 6)]
    assert text(topology(host(*amd))).endswith("\nxGMI: not visible on the PCI bus")


def test_the_legend_has_the_words_of_the_matrix_only() -> None:
    lines = text(topology(machine(*virtual(), nodes=1))).splitlines()
    assert [line.split()[0] for line in lines if "  through" in line or "  at most" in line] == ["PHB"]


def test_a_host_without_gpus_has_no_matrix() -> None:
    assert text(topology(machine(nic("0000:06:00.0", numa_node=0), nodes=1))).splitlines() == [
        "gpu01: 1 NIC",
        "└─ NUMA node 0: CPUs 0-7, 64 GiB",
        "   └─ root bus 0000:06",
        "      └─ NIC0 0000:06:00.0 Mellanox InfiniBand controller [15b3:1013], x16 Gen3, no driver",
    ]
    assert text(topology(host())) == "gpu01: no GPU and no NIC"


def test_a_device_of_another_node_names_it() -> None:
    built = topology(machine(bridge("0000:00:02.0", gpu("0000:05:00.0", numa_node=1), numa_node=0)))
    assert "x16 Gen3, no driver, NUMA node 1\n" in text(built)


def test_a_node_without_known_cpus_claims_none() -> None:
    facts = host(function("0000:05:00.0", numa_node=3), numa_nodes=[{"node": 3, "memory_mib": 2048}, {"node": 4}])
    assert text(topology(facts)).splitlines()[1] == "└─ NUMA node 3: 2 GiB"
    assert text(topology(host(function("0000:05:00.0", numa_node=3)))).splitlines()[1] == "└─ NUMA node 3"


def test_too_many_devices_are_reported_instead_of_a_matrix() -> None:
    many = [function(f"0000:{bus:02x}:{slot:02x}.0") for bus in range(9) for slot in range(32)]
    assert text(topology(host(*many))).split("\n\n")[1] == "no distances: 288 GPUs and NICs are too many"
    assert document(topology(host(*many)))["distances"] is None
