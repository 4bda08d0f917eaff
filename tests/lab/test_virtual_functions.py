"""A card that is shared by SR-IOV: its virtual functions exist before libvirt starts, and one is given to a guest."""

from __future__ import annotations

import subprocess

import pytest

from gpustack.host.own_files import VFS_UNIT

from .conftest import Lab
from .guest import functions_in_guest
from .machine import Machine
from .observe import disk_state, functions
from .playbooks import play
from .recipe import HOST_NAME
from .test_addresses import configuration
from .topology import IGB, NVME, SHARED_CARD, Shape, SharedCard

# What libvirt does with the function of an instance, before and after it.
BIND = "cd /sys/bus/pci; modprobe vfio-pci; echo vfio-pci >devices/$1/driver_override; echo $1 >drivers_probe"
RELEASE = "cd /sys/bus/pci/devices/$1; echo $1 >driver/unbind; echo >driver_override"
UNIT = VFS_UNIT.rpartition("/")[2]


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


def has_device(name: str) -> bool:
    """Whether QEMU has such a device. Its exit code is 0 in any case."""
    argv = ["qemu-system-x86_64", "-device", f"{name},help"]
    return f"{name} options:" in subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def started(host: Machine, unit: str, event: str) -> int:
    """When something happened to a unit since the kernel's start, in microseconds; 0 if it has not."""
    return int(host.ssh(["systemctl", "show", "--value", "-p", f"{event}TimestampMonotonic", unit]))


@pytest.mark.parametrize("card", [NVME, IGB], ids=lambda card: card.device)
def test_virtual_functions_at_boot_and_in_a_guest(compute_lab: Lab, card: SharedCard) -> None:
    if not has_device(card.device):
        pytest.skip(f"QEMU has no device {card.device} (igb: QEMU 8.0 and later)")
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

        lab.report("prepare.yml with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", text=text)
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 2
        shared = drivers(host, card)
        virtual = [function for function in shared if function != address]
        assert shared == {address: card.driver} | dict.fromkeys(virtual)
        assert len(virtual) == card.count
        assert 0 < started(host, UNIT, "ActiveEnter") < started(host, "libvirtd.service", "ExecMainStart")

        lab.report("verify.yml, and prepare.yml again")
        run = play(host, "verify.yml", text=text)
        assert run.code == 0, run.output
        prepared = disk_state(host)
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", text=text)
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
        assert host.boots() == 2
        assert disk_state(host) == prepared

        lab.report("a guest with one virtual function")
        host.ssh(["sh", "-c", BIND, "sh", virtual[1]])
        visible = functions_in_guest(host, [virtual[1]])
        assert [identifier for slot, identifier in visible.items() if ":05." in slot] == [card.virtual_id]

        lab.report("undo.yml, refused while the function is bound; and with a reboot")
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true", text=text)
        assert run.code != 0, run.output
        assert "GPU876" in run.output
        host.ssh(["sh", "-c", RELEASE, "sh", virtual[1]])
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true", text=text)
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 3
        assert drivers(host, card) == bare
        assert configuration(host) == before
