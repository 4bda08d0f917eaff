"""GPUs are put together from functions: slot and group decide what belongs to one."""

from __future__ import annotations

import sys

import pytest

from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.store import parse_host
from support.host_samples import function, host, snapshot

AUDIO = {"ids": "10de:0e0a", "pci_class": "040300"}


def addresses(facts):
    return [[f.address for f in gpu.functions] for gpu in gpus(facts)]


def test_the_functions_of_a_slot_are_one_gpu():
    facts = host(function("0000:88:00.0"), function("0000:88:00.1", **AUDIO), function("0000:84:00.0", iommu_group=2))
    assert addresses(facts) == [["0000:84:00.0"], ["0000:88:00.0", "0000:88:00.1"]]


def test_a_card_may_have_functions_of_two_vendors_but_an_apu_shares_its_slot():
    """As emulated cards have."""
    emulated = host(
        function("0000:01:00.0", ids="1234:1111", pci_class="038000"),
        function("0000:01:00.1", ids="8086:2668", pci_class="040300"),
    )
    assert addresses(emulated) == [["0000:01:00.0", "0000:01:00.1"]]
    apu = host(
        function("0000:c4:00.0", ids="1002:ffff", pci_class="030000"),
        function("0000:c4:00.1", ids="1002:1640", pci_class="040300"),
        function("0000:c4:00.3", ids="1022:15b9", pci_class="0c0330"),
        function("0000:c4:00.6", ids="1022:15e3", pci_class="040300"),
    )
    assert addresses(apu) == [["0000:c4:00.0", "0000:c4:00.1"]]


def test_other_members_of_the_group_are_neighbours_or_bridges():
    facts = host(
        function("0000:80:01.0", ids="8086:6f02", pci_class="060400", driver="pcieport"),
        function("0000:81:00.0"),
        function("0000:82:00.0", ids="8086:1572", pci_class="020000", driver="i40e"),
    )
    (gpu,) = gpus(facts)
    assert gpu.functions == (gpu.main,)
    assert [f.address for f in gpu.neighbours] == ["0000:82:00.0"]
    assert [f.address for f in gpu.bridges] == ["0000:80:01.0"]


SAME_SLOT = ("10de:15f8", "0000:01:00.1", "0000:01:00.2", "0000:01:00.3", "0000:01:00.4")
"""QEMU's NVMe drive with sriov_max_vfs=4: the virtual functions have the ids and the slot of the physical function."""
OTHER_SLOTS = ("10de:10ca", "0000:01:10.0", "0000:01:10.2", "0000:01:10.4", "0000:01:11.0")
"""QEMU's igb: other ids, other slots."""


@pytest.mark.parametrize("layout", [SAME_SLOT, OTHER_SLOTS])
@pytest.mark.parametrize("group", [40, 7])
def test_virtual_functions_belong_to_their_card_in_any_slot(layout: tuple[str, ...], group: int) -> None:
    ids, *places = layout
    physical = function("0000:01:00.0", sriov_totalvfs=4, sriov_numvfs=4, iommu_group=7)
    parts = [function(a, ids=ids, physical_function="0000:01:00.0", iommu_group=group) for a in places]
    other = function("0000:02:00.0", ids=ids, physical_function="0000:09:00.0", iommu_group=8)
    (gpu,) = gpus(host(physical, *parts, other))
    assert gpu.companions == gpu.neighbours == ()
    assert [f.address for f in gpu.virtual] == places
    assert gpu.addresses == {"0000:01:00.0", *places}


def test_consoles_and_virtual_functions_are_no_gpus():
    facts = host(
        function("0000:03:00.0", ids="1a03:2000", pci_class="030000", iommu_group=3),
        function("0000:88:00.0", sriov_totalvfs=16, sriov_numvfs=1, virtual_functions=["0000:88:00.4"]),
        function("0000:88:00.4", physical_function="0000:88:00.0"),
    )
    assert addresses(facts) == [["0000:88:00.0"]]


def test_two_display_functions_of_a_slot_are_one_gpu():
    facts = host(function("0000:00:02.0", pci_class="030000"), function("0000:00:02.1", pci_class="038000"))
    assert addresses(facts) == [["0000:00:02.0", "0000:00:02.1"]]


def test_the_capability_decides_how_nova_lists_it():
    assert gpus(host(function("0000:88:00.0")))[0].dev_type == "type-PCI"
    assert gpus(host(function("0000:88:00.0", sriov_totalvfs=0)))[0].dev_type == "type-PF"


def test_an_unknown_card_has_a_name_all_the_same():
    assert gpus(host(function("0000:88:00.0", ids="10de:ffff")))[0].name == "NVIDIA 3D controller [10de:ffff]"


def test_the_gpus_of_real_hosts():
    assert addresses(parse_host(snapshot("k4200"), "k4200")) == [
        ["0000:84:00.0", "0000:84:00.1"],
        ["0000:88:00.0", "0000:88:00.1"],
    ]
    assert len(gpus(parse_host(snapshot("nvswitch"), "nvswitch"))) == 8
    assert addresses(parse_host(snapshot("laptop"), "laptop")) == [
        ["0000:00:02.0"],
        ["0000:01:00.0", "0000:01:00.1", "0000:01:00.2", "0000:01:00.3"],
    ]


@pytest.mark.parametrize("behind_a_switch", [False, True])
def test_many_gpus_of_one_group_are_read_in_linear_time(behind_a_switch):
    """Counted in calls: twice as many GPUs take twice as many."""

    def calls(number):
        switch = [
            function("0000:01:00.0", ids="8086:4fa0", pci_class="060400", parent="0000:00:01.0"),
            function("0000:00:01.0", ids="8086:2030", pci_class="060400"),
        ]
        port = {"parent": "0000:01:00.0"} if behind_a_switch else {}
        cards = [function(f"0000:{bus:02x}:00.0", **port) for bus in range(2, 2 + number)]
        facts = host(*(switch if behind_a_switch else ()), *cards)
        count = 0

        def counted(_frame, event, _argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            assert len(gpus(facts)) == number
        finally:
            sys.setprofile(None)
        return count

    assert calls(120) < 2.5 * calls(60)
