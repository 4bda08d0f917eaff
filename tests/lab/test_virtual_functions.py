"""Cards with SR-IOV: virtual functions exist before libvirt starts, and those of a network card before the network."""

from __future__ import annotations

import subprocess

import pytest

from gpustack.prepare.host.own_files import VFS_NETWORK_UNIT, VFS_UNIT

from . import playbooks
from .commands import SSH_OPTIONS, gpustack
from .conftest import Lab
from .guest import functions_in_guest
from .machine import Machine
from .observe import disk_state, functions
from .playbooks import Run, play
from .recipe import HOST_NAME
from .test_addresses import configuration
from .topology import GPU_COUNT, IGB, NVME, SHARED_CARD, Shape, SharedCard

# What libvirt does with the function of an instance, before and after it.
BIND = "cd /sys/bus/pci; modprobe vfio-pci; echo vfio-pci >devices/$1/driver_override; echo $1 >drivers_probe"
RELEASE = "cd /sys/bus/pci/devices/$1; echo $1 >driver/unbind; echo >driver_override"
UNIT = VFS_UNIT.rpartition("/")[2]
NETWORK_UNIT = VFS_NETWORK_UNIT.rpartition("/")[2]
REBOOT = ("-e", "gpustack_reboot=true")


def spec(card: SharedCard) -> str:
    """A gpustack.yaml that shares the card."""
    vendor, product = card.id.split(":")
    virtual = card.virtual_id.partition(":")[2]
    return f"""\
version: 1
models:
  part: {{match: {{vendor: "{vendor}", product: "{product}"}}, vfs: {{count: {card.count}, product: "{virtual}"}}}}
hosts:
  {HOST_NAME}: [part]
"""


def drivers(host: Machine, card: SharedCard) -> dict[str, str | None]:
    """The drivers of the card and of its virtual functions, by address."""
    return {
        function.address: function.driver for function in functions(host) if function.id in (card.id, card.virtual_id)
    }


def offered(card: SharedCard) -> bool:
    """Whether QEMU has such a device. Its exit code is 0 in any case."""
    argv = ["qemu-system-x86_64", "-device", f"{card.device},help"]
    return f"{card.device} options:" in subprocess.run(argv, capture_output=True, text=True, check=True).stdout


needs_igb = pytest.mark.skipif("not offered(IGB)", reason="QEMU has no device igb (QEMU 8.0 and later)")


def started(host: Machine, unit: str, event: str) -> int:
    """When something happened to a unit since the kernel's start, in microseconds; 0 if it has not."""
    return int(host.ssh(["systemctl", "show", "--value", "-p", f"{event}TimestampMonotonic", unit]))


def prepare(lab: Lab, host: Machine, text: str, card: SharedCard) -> tuple[Run, list[str]]:
    """Prepare the host, with a reboot; return the run and the addresses of the virtual functions, without a driver."""
    (address,) = drivers(host, card)
    lab.report("prepare.yml with a reboot")
    run = play(host, "prepare.yml", *REBOOT, text=text)
    assert run.code == 0, run.output
    host.wait_ssh()
    assert host.boots() == 2
    shared = drivers(host, card)
    virtual = [function for function in shared if function != address]
    assert shared == {address: card.driver} | dict.fromkeys(virtual)
    assert len(virtual) == card.count
    return run, virtual


def verify_and_prepare_again(lab: Lab, host: Machine, text: str) -> None:
    """Verify the host, and check that a second run changes nothing."""
    lab.report("verify.yml, and prepare.yml again")
    run = play(host, "verify.yml", text=text)
    assert run.code == 0, run.output
    prepared = disk_state(host)
    run = play(host, "prepare.yml", *REBOOT, text=text)
    assert run.code == 0, run.output
    assert run.count("changed") == 0, run.output
    assert host.boots() == 2
    assert disk_state(host) == prepared


def undo(host: Machine, text: str) -> None:
    """Undo the preparation, with a reboot."""
    run = play(host, "undo.yml", *REBOOT, text=text)
    assert run.code == 0, run.output
    host.wait_ssh()
    assert host.boots() == 3


@pytest.mark.parametrize("card", [NVME, pytest.param(IGB, marks=needs_igb)], ids=lambda card: card.device)
def test_virtual_functions_at_boot_and_in_a_guest(compute_lab: Lab, card: SharedCard) -> None:
    lab, text = compute_lab, spec(card)
    name = f"sriov-{card.device}"
    with lab.machine(name, Shape(shared_card=card)) as host:
        lab.report(f"{name}: power on; logs in {host.directory}")
        if card == IGB:
            # The host would give its only address to this card too.
            host.pull_cable(SHARED_CARD)
        host.wait_ssh()
        (address,) = bare = drivers(host, card)
        assert bare == {address: card.driver}
        before = configuration(host)
        _, virtual = prepare(lab, host, text, card)
        assert 0 < started(host, UNIT, "ActiveEnter") < started(host, "libvirtd.service", "ExecMainStart")
        verify_and_prepare_again(lab, host, text)

        lab.report("a guest with one virtual function")
        host.ssh(["sh", "-c", BIND, "sh", virtual[1]])
        visible = functions_in_guest(host, [virtual[1]])
        assert [identifier for slot, identifier in visible.items() if ":05." in slot] == [card.virtual_id]

        lab.report("undo.yml, refused while the function is bound; and with a reboot")
        run = play(host, "undo.yml", *REBOOT, text=text)
        assert run.code != 0, run.output
        assert "GPU876" in run.output
        host.ssh(["sh", "-c", RELEASE, "sh", virtual[1]])
        undo(host, text)
        assert drivers(host, card) == bare
        assert configuration(host) == before


@needs_igb
def test_network_card_of_the_default_route(lab: Lab) -> None:
    """The host's only network card gets virtual functions before the network starts, and stays the host's."""
    with lab.host("sriov-network", Shape(shared_card=IGB, only_network_card=True)) as host:
        bare, before = drivers(host, IGB), configuration(host)
        interfaces = host.ssh(["ls", "/sys/class/net"]).split()
        (interface,) = (name for name in interfaces if name != "lo")
        network = f"{{match: {{interfaces: [{interface}]}}, physical_network: fabric, vfs: {IGB.count}}}"
        text = playbooks.spec(sections=f"networks:\n  rdma: {network}\n")
        run, _ = prepare(lab, host, text, IGB)
        assert "GPU891" in run.output
        assert f"{interface} (the default route)" in run.output
        network_start = started(host, "systemd-networkd.service", "ExecMainStart")
        order = [started(host, unit, "ActiveEnter") for unit in (NETWORK_UNIT, "network-pre.target")]
        assert 0 < order[0] < order[1] < network_start
        log = host.ssh(["dmesg"])
        assert 0 < log.find(f"{IGB.count} VFs allocated") < log.find("NIC Link is Up")
        assert host.ssh(["ls", "/sys/class/net"]).split() == interfaces
        verify_and_prepare_again(lab, host, text)

        run = gpustack(host, "scan", HOST_NAME, *SSH_OPTIONS, "-c", "address", "-c", "nics", spec_text=text)
        assert run.output.count(f" {interface} PHB ") == GPU_COUNT, run.output

        lab.report("undo.yml with a reboot")
        undo(host, text)
        assert drivers(host, IGB) == bare
        assert configuration(host) == before
