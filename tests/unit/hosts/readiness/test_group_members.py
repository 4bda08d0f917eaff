"""What a host needs of a GPU's group, and what merely goes along."""

from __future__ import annotations

import pytest

from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.readiness.group_members import idle, needs, peers
from support.host_samples import first_gpu, function, host, snapshot

GPU = function("0000:88:00.0")
NIC = {"ids": "8086:1572", "pci_class": "020000"}
USB = {"ids": "10de:1ad8", "pci_class": "0c0330", "driver": "xhci_hcd"}


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        pytest.param(
            function("0000:89:00.0", **NIC, driver="i40e", uses={"net": [{"name": "ens3f0", "state": "up"}]}),
            "0000:89:00.0 (network controller, driver i40e, interface ens3f0 (up))",
            id="network in another slot",
        ),
        pytest.param(
            function("0000:88:00.1", **NIC, driver="mlx5_core"),
            "0000:88:00.1 (network controller, driver mlx5_core)",
            id="network in the GPU's own slot",
        ),
        pytest.param(function("0000:89:00.0", **NIC, driver=None), None, id="network without a driver"),
        pytest.param(function("0000:89:00.0", **NIC, driver="vfio-pci"), None, id="network bound for guests"),
        pytest.param(
            function("0000:89:00.0", ids="144d:a808", pci_class="010802", driver="nvme", uses={"block": ["nvme0n1"]}),
            "0000:89:00.0 (storage controller, driver nvme, disk nvme0n1)",
            id="storage",
        ),
        pytest.param(function("0000:88:00.2", **USB), None, id="the card's USB controller, nothing behind it"),
        pytest.param(
            function("0000:88:00.2", **USB, uses={"usb": ["ACME Keyboard"], "input": ["event3"]}),
            "0000:88:00.2 (USB controller, driver xhci_hcd, USB: ACME Keyboard, input event3)",
            id="the card's USB controller with the keyboard",
        ),
        pytest.param(
            function("0000:88:00.2", **USB, uses={"usb": ["FTDI FT232R USB UART"]}),
            "0000:88:00.2 (USB controller, driver xhci_hcd, USB: FTDI FT232R USB UART)",
            id="the card's USB controller with a serial adapter",
        ),
        pytest.param(
            function("0000:00:14.0", **USB), "0000:00:14.0 (USB controller, driver xhci_hcd)", id="the board's USB"
        ),
        pytest.param(
            function("0000:88:00.1", ids="10de:0e0a", pci_class="040300", driver="snd_hda_intel"),
            None,
            id="the card's audio",
        ),
        pytest.param(
            function("0000:00:1f.4", ids="8086:a323", pci_class="0c0500", driver="i801_smbus"),
            "0000:00:1f.4 (SMBus controller, driver i801_smbus)",
            id="anything else of the board",
        ),
        pytest.param(
            function("0000:03:00.0", ids="1a03:2000", pci_class="030000", driver="ast"),
            "0000:03:00.0 (VGA controller, driver ast)",
            id="the console",
        ),
        pytest.param(
            function("0000:c4:00.0", ids="10de:1af1", pci_class="068000", driver="nvidia-nvswitch"), None, id="NVSwitch"
        ),
        pytest.param(
            function("0000:00:00.0", ids="8086:3e30", pci_class="060000", driver="ie31200_edac"),
            "0000:00:00.0 (host bridge, driver ie31200_edac)",
            id="a host bridge that a driver has",
        ),
        pytest.param(
            function("0000:87:00.0", ids="8086:6f02", pci_class="060400", driver="pcieport"), None, id="a bridge"
        ),
    ],
)
def test_one_other_member_of_the_group(member, expected):
    facts = host(GPU, member)
    gpu = next(g for g in gpus(facts) if g.main.address == "0000:88:00.0")
    assert [str(need) for need in needs(facts, gpu)] == ([expected] if expected else [])


def test_another_gpu_is_a_peer_and_its_audio_goes_along():
    facts = host(
        GPU,
        function("0000:84:00.0", driver="nouveau"),
        function("0000:84:00.1", ids="10de:0e0a", pci_class="040300", driver="snd_hda_intel"),
    )
    gpu = gpus(facts)[1]
    assert gpu.main.address == "0000:88:00.0"
    assert needs(facts, gpu) == ()
    assert [f.address for f in peers(gpu)] == ["0000:84:00.0"]


def test_virtual_functions_of_a_peer_are_no_members_without_a_driver():
    peer = function("0000:89:00.0", sriov_totalvfs=16, sriov_numvfs=1)
    part = function("0000:89:00.4", driver=None, physical_function="0000:89:00.0")
    other = function("0000:8a:00.0", **NIC, driver=None)
    facts = host(GPU, peer, part, other)
    assert [f.address for f in idle(facts, gpus(facts)[0])] == ["0000:8a:00.0"]


def test_the_nic_of_a_shared_group_is_named():
    facts = parse_host(snapshot("shared-nic"), "shared-nic")
    assert [need.function.address for need in needs(facts, first_gpu(facts))] == ["0000:1b:00.0"]
    assert needs(facts, gpus(facts)[1]) == ()
