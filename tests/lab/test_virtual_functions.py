"""A card that is shared by SR-IOV: its virtual functions exist before libvirt starts, and one is given to a guest."""

from __future__ import annotations

from gpustack.host.own_files import VFS_UNIT

from .conftest import Lab
from .guest import functions_in_guest
from .machine import Machine
from .observe import disk_state, functions
from .playbooks import play
from .recipe import HOST_NAME
from .test_addresses import configuration
from .topology import NVME_ID, Shape

COUNT = 4
VENDOR, PRODUCT = NVME_ID.split(":")
SPEC = f"""\
version: 1
models:
  quarter: {{match: {{vendor: "{VENDOR}", product: "{PRODUCT}"}}, vfs: {COUNT}}}
hosts:
  {HOST_NAME}: [quarter]
"""
# What libvirt does with the function of an instance, before and after it.
BIND = "cd /sys/bus/pci; modprobe vfio-pci; echo vfio-pci >devices/$1/driver_override; echo $1 >drivers_probe"
RELEASE = "cd /sys/bus/pci/devices/$1; echo $1 >driver/unbind; echo >driver_override"
UNIT = VFS_UNIT.rpartition("/")[2]


def drivers(host: Machine) -> dict[str, str | None]:
    """The drivers of the controller and of its virtual functions, by address."""
    return {function.address: function.driver for function in functions(host) if function.id == NVME_ID}


def started(host: Machine, unit: str, event: str) -> int:
    """When something happened to a unit since the kernel's start, in microseconds; 0 if it has not."""
    return int(host.ssh(["systemctl", "show", "--value", "-p", f"{event}TimestampMonotonic", unit]))


def test_virtual_functions_at_boot_and_in_a_guest(compute_lab: Lab) -> None:
    lab = compute_lab
    with lab.host("sriov", Shape(virtual_functions=COUNT)) as host:
        (card,) = bare = drivers(host)
        assert bare == {card: "nvme"}
        before = configuration(host)

        lab.report("prepare.yml with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", text=SPEC)
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 2
        shared = drivers(host)
        virtual = [address for address in shared if address != card]
        assert shared == {card: "nvme"} | dict.fromkeys(virtual)
        assert len(virtual) == COUNT
        assert 0 < started(host, UNIT, "ActiveEnter") < started(host, "libvirtd.service", "ExecMainStart")

        lab.report("verify.yml, and prepare.yml again")
        run = play(host, "verify.yml", text=SPEC)
        assert run.code == 0, run.output
        prepared = disk_state(host)
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", text=SPEC)
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
        assert host.boots() == 2
        assert disk_state(host) == prepared

        lab.report("a guest with one virtual function")
        host.ssh(["sh", "-c", BIND, "sh", virtual[1]])
        visible = functions_in_guest(host, [virtual[1]])
        assert [identifier for address, identifier in visible.items() if ":05." in address] == [NVME_ID]

        lab.report("undo.yml, refused while the function is bound; and with a reboot")
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true", text=SPEC)
        assert run.code != 0, run.output
        assert "GPU876" in run.output
        host.ssh(["sh", "-c", RELEASE, "sh", virtual[1]])
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true", text=SPEC)
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 3
        assert drivers(host) == bare
        assert configuration(host) == before
