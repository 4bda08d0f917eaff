"""The tree of a host: compared with lspci on real files, and on facts that no real machine has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.topology.build import MOST_DEVICES, MOST_LEVELS, matrix, near_nics, topology
from gpustack.hosts.topology.model import Kind, Node, Topology
from support.host_samples import function, host, raw_host
from support.pci_layouts import (
    GEN3,
    LAYOUTS,
    Place,
    bridge,
    conventional,
    dgx1,
    domains,
    gpu,
    hgx,
    machine,
    nic,
    numa_nodes,
    sysfs,
    thunderbolt,
    virtual,
    vmd,
)

Layout = Callable[[], tuple[Place, ...]]


def chains(built: Topology) -> dict[str, tuple[str, ...]]:
    """The bridges above each function and the function itself, by address."""

    def below(node: Node, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield (*above, node.address)
        for child in node.children:
            yield from below(child, (*above, node.address))

    tops = (node for box in built.boxes for bus in box.buses for node in bus.children)
    return {chain[-1]: chain for top in tops for chain in below(top, ())}


def lspci_chains(root: Path) -> dict[str, tuple[str, ...]]:
    """The same from ``lspci -PP``, which uses the bus numbers in the configuration space instead of the paths."""
    command = ["lspci", "-D", "-n", "-PP", "-O", f"sysfs.path={root}/sys/bus/pci"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for line in ran.stdout.splitlines():
        first, *others = line.split()[0].split("/")
        domain = first.split(":")[0]
        found[f"{domain}:{others[-1]}" if others else first] = (first, *(f"{domain}:{other}" for other in others))
    return found


def kinds(built: Topology) -> dict[str, Kind]:
    return {node.address: node.kind for node in built.nodes()}


def numbers(built: Topology, *wanted: Kind) -> dict[str | None, str]:
    return {node.label: node.address for node in built.devices(*wanted)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tree_is_that_of_lspci(layout: Layout, tmp_path: Path) -> None:
    root = sysfs(tmp_path, *layout())
    found = chains(topology(parse_host(collect(str(root)), "test")))
    assert found == lspci_chains(root)
    assert len(found) >= 3


def test_virtual_functions_are_counted_at_their_physical_function() -> None:
    virtual = [
        function(f"0000:04:00.{number}", pci_class="020000", physical_function="0000:04:00.0", parent="0000:00:02.0")
        for number in (2, 1)
    ]
    facts = machine(bridge("0000:00:02.0", nic("0000:04:00.0")))
    facts = facts.with_pci((*facts.pci, *host(*virtual).pci))
    (physical,) = topology(facts).devices(Kind.NIC)
    assert [f.address for f in physical.virtual_functions] == ["0000:04:00.1", "0000:04:00.2"]


def test_a_virtual_function_without_its_physical_function_is_a_device() -> None:
    """Facts of a machine that lost the physical function while it was read."""
    facts = host(function("0000:04:00.1", pci_class="020000", physical_function="0000:04:00.0"))
    assert numbers(topology(facts), Kind.NIC) == {"NIC0": "0000:04:00.1"}


def test_devices_are_numbered_by_address_over_all_numa_nodes() -> None:
    far = bridge("0000:80:02.0", gpu("0000:85:00.0"), numa_node=0)
    near = bridge("0000:00:02.0", gpu("0000:05:00.0"), numa_node=1)
    wide = bridge("10000:00:02.0", gpu("10000:01:00.0"), numa_node=0)
    assert numbers(topology(machine(wide, far, near)), Kind.GPU) == {
        "GPU0": "0000:05:00.0",
        "GPU1": "0000:85:00.0",
        "GPU2": "10000:01:00.0",
    }


def test_ports_have_their_kinds_by_position() -> None:
    found = kinds(topology(machine(*dgx1())))
    assert {found[a] for a in ("0000:00:02.0", "0000:80:03.0")} == {Kind.ROOT_PORT}
    assert {found[a] for a in ("0000:03:00.0", "0000:87:00.0")} == {Kind.UPSTREAM}
    assert {found[a] for a in ("0000:04:08.0", "0000:88:14.0")} == {Kind.DOWNSTREAM}


def test_conventional_bridges_are_no_ports() -> None:
    found = kinds(topology(machine(*conventional())))
    assert found["0000:00:1c.0"] is Kind.ROOT_PORT
    assert found["0000:02:00.0"] is Kind.BRIDGE
    assert found["0000:00:1e.0"] is Kind.BRIDGE


def test_a_bridge_to_conventional_bridges_is_no_switch() -> None:
    inner = bridge("0000:03:04.0", nic("0000:04:00.0", link=None), link=None)
    found = kinds(topology(machine(bridge("0000:00:1c.0", bridge("0000:02:00.0", inner)))))
    assert [found[a] for a in ("0000:00:1c.0", "0000:02:00.0", "0000:03:04.0")] == [
        Kind.ROOT_PORT,
        Kind.BRIDGE,
        Kind.BRIDGE,
    ]


def test_ports_below_a_missing_bridge_are_not_named() -> None:
    """They may be of any kind."""
    facts = machine(*dgx1())
    rest = facts.with_pci(f for f in facts.pci if f.address != "0000:00:02.0")
    assert kinds(topology(rest))["0000:03:00.0"] is Kind.BRIDGE


def test_the_upper_port_of_a_switch_is_not_at_the_links_below() -> None:
    """A management function of the switch is beside its downstream ports, on the bus within."""
    narrow = {**GEN3, "width": 4, "max_width": 4}
    switch = bridge("0000:03:00.0", nic("0000:04:00.0"), bridge("0000:04:01.0", gpu("0000:05:00.0")), link=narrow)
    (management,) = topology(machine(bridge("0000:00:02.0", switch))).devices(Kind.NIC)
    assert management.link is not None
    assert not management.link.has_port


def test_without_any_link_bridges_count_as_ports() -> None:
    """Kernels before 4.13 export no links."""
    facts = machine(*dgx1())
    bare = facts.with_pci(f.model_copy(update={"link": None}) for f in facts.pci)
    assert kinds(topology(bare)) == kinds(topology(facts))


def test_a_bus_of_vmd_names_its_controller() -> None:
    buses = {bus.bus: bus.controller for box in topology(machine(*vmd())).boxes for bus in box.buses}
    assert buses == {"0000:80": None, "10000:00": "0000:80:05.5"}


def test_a_root_bus_is_known_without_the_new_field() -> None:
    """Snapshots of earlier versions lack root_bus and root_parent."""
    facts = machine(*vmd())
    old = facts.with_pci(f.model_copy(update={"root_bus": None, "root_parent": None}) for f in facts.pci)
    assert [bus.bus for box in topology(old).boxes for bus in box.buses] == ["0000:80", "10000:00"]


def test_the_only_numa_node_has_devices_that_report_none() -> None:
    (box,) = topology(machine(gpu("0000:05:00.0"), nodes=1)).boxes
    assert (box.number, [n.address for n in box.nodes()]) == (0, ["0000:05:00.0"])
    assert [b.number for b in topology(machine(gpu("0000:05:00.0"), nodes=2)).boxes] == [0, 1, None]
    assert [b.number for b in topology(machine(gpu("0000:05:00.0"), nodes=0)).boxes] == [None]


def test_a_node_of_memory_appears_with_its_device_only() -> None:
    memory = {"node": 250, "cpus": None, "memory_mib": 81920}
    facts = raw_host(function("0000:05:00.0", numa_node=0), numa_nodes=[*numa_nodes(1), memory])
    assert [box.number for box in topology(parse_host(facts, "test")).boxes] == [0]
    facts["pci"][0]["numa_node"] = 250
    assert [box.number for box in topology(parse_host(facts, "test")).boxes] == [0, 250]


def test_the_node_of_a_root_port_comes_from_below() -> None:
    port = bridge("0000:00:02.0", gpu("0000:05:00.0", numa_node=1))
    built = topology(machine(port))
    assert [(box.number, len([*box.nodes()])) for box in built.boxes] == [(0, 0), (1, 2)]


def test_functions_below_a_missing_bridge_have_no_known_position() -> None:
    (bus,) = (bus for box in topology(host(function("0000:05:00.0", parent="0000:04:00.0"))).boxes for bus in box.buses)
    assert bus.missing == "0000:04:00.0"


def test_a_loop_of_parents_is_cut() -> None:
    facts = host(
        function("0000:04:00.0", pci_class="060400", parent="0000:05:00.0"),
        function("0000:05:00.0", pci_class="060400", parent="0000:04:00.0"),
        function("0000:06:00.0", parent="0000:06:00.0"),
    )
    built = topology(facts)
    assert sorted(kinds(built)) == ["0000:04:00.0", "0000:05:00.0", "0000:06:00.0"]
    assert all(bus.missing for box in built.boxes for bus in box.buses)


def test_an_endless_chain_of_bridges_is_cut() -> None:
    addresses = [f"{domain:04x}:{bus:02x}:00.0" for domain in range(8) for bus in range(256)]
    links = zip(addresses, [None, *addresses], strict=False)
    facts = host(*(function(address, pci_class="060400", parent=parent) for address, parent in links))
    found = chains(topology(facts))
    assert len(found) == len(addresses)
    assert max(map(len, found.values())) <= MOST_LEVELS + 1


def test_a_host_without_functions_has_its_numa_nodes_only() -> None:
    built = topology(parse_host(raw_host(numa_nodes=numa_nodes(2)), "test"))
    assert [(box.number, box.buses) for box in built.boxes] == [(0, ()), (1, ())]


def test_pruning_leaves_the_way_to_the_devices() -> None:
    built = topology(machine(*conventional()))
    assert sorted(kinds(built.pruned())) == ["0000:00:02.0", "0000:00:1e.0", "0000:05:00.0", "0000:09:03.0"]
    assert len(kinds(built)) == 7


def test_owners_are_those_of_the_caller() -> None:
    facts: Host = machine(gpu("0000:05:00.0"), gpu("0000:06:00.0"))
    owners = {node.address: node.owner for node in topology(facts).owned({"0000:06:00.0": "vm1 (acme)"}).nodes()}
    assert owners == {"0000:05:00.0": None, "0000:06:00.0": "vm1 (acme)"}


def test_a_switch_on_the_card_is_recognized_by_its_maker() -> None:
    card = bridge(
        "0000:03:00.0", bridge("0000:04:00.0", gpu("0000:05:00.0", "1002:744c"), ids="1002:1479"), ids="1002:1478"
    )
    peer = bridge("0000:08:00.0", bridge("0000:09:00.0", gpu("0000:0a:00.0")))
    built = topology(machine(bridge("0000:00:01.0", card), bridge("0000:00:02.0", peer)))
    assert [node.link is not None and node.link.on_card for node in built.devices(Kind.GPU)] == [True, False]
    intel = bridge("0000:00:01.0", gpu("0000:03:00.0", "8086:56a0"), ids="8086:a70d")
    chained = topology(machine(intel, *thunderbolt()))
    assert [n.address for n in chained.nodes() if n.link is not None and n.link.on_card] == []


def test_owners_of_virtual_functions_are_at_the_physical_function() -> None:
    facts = machine(bridge("0000:00:02.0", gpu("0000:04:00.0")))
    virtual = [function(f"0000:04:00.{n}", physical_function="0000:04:00.0") for n in range(1, 7)]
    facts = facts.with_pci((*facts.pci, *host(*virtual).pci))
    owners = {f"0000:04:00.{n}": f"vm{n}" for n in range(2, 7)}
    (device,) = topology(facts).owned(owners).devices(Kind.GPU)
    assert device.owner == "vm2 (0000:04:00.2), vm3 (0000:04:00.3), vm4 (0000:04:00.4), vm5 (0000:04:00.5) and 1 more"


def test_a_device_of_another_node_than_its_port_strays() -> None:
    """An operator may write a node into numa_node of sysfs."""
    built = topology(
        machine(bridge("0000:00:02.0", gpu("0000:05:00.0", numa_node=1), nic("0000:05:00.1"), numa_node=0))
    )
    assert {node.address: (node.numa_node, node.strays) for node in built.nodes()} == {
        "0000:00:02.0": (0, False),
        "0000:05:00.0": (1, True),
        "0000:05:00.1": (0, False),
    }


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
