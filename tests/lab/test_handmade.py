"""A host that was set up from guides is taken over, and given back byte for byte; all of it with `gpustack host …`."""

from __future__ import annotations

from .commands import gpustack_host
from .conftest import Lab
from .machine import Machine
from .observe import disk_state
from .test_addresses import configuration
from .test_prepare import assert_prepared, assert_untouched, gpu_functions
from .topology import AUDIO_ID, GPU_ID, Shape

IDS = f"{GPU_ID},{AUDIO_ID}"
GRUB = "/etc/default/grub"
MODPROBE = "/etc/modprobe.d/vfio.conf"
MODULES = "/etc/initramfs-tools/modules"
# What guides of three generations say; the line of MODULES is the one with which pci-stub gets the cards.
SET_UP = f"""\
set -eu
arguments="intel_iommu=on vfio_iommu_type1.allow_unsafe_interrupts=1 vfio-pci.ids={IDS}"
sed -i "s/^GRUB_CMDLINE_LINUX_DEFAULT=\\"quiet/& $arguments/" {GRUB}
echo "options vfio-pci ids={IDS} disable_vga=1" >{MODPROBE}
echo "pci_stub ids={IDS}" >>{MODULES}
update-initramfs -u -k all
update-grub
"""


def line_of(host: Machine, path: str, text: str) -> str:
    """A file and the number of the only line that holds a text, as a plan names it."""
    lines = host.ssh(["cat", path]).splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"{path}:{number}"


def drivers(host: Machine) -> set[str | None]:
    return {function.driver for function in gpu_functions(host)}


def test_a_hand_made_host_is_taken_over_and_given_back(lab: Lab) -> None:
    with lab.booted("handmade", Shape()) as host:
        assert_untouched(host)
        lab.report("set up by hand, with a reboot")
        host.ssh(["sh", "-s"], stdin=SET_UP, timeout=900)
        host.reboot()
        assert drivers(host) == {"pci-stub"}
        by_hand, before = configuration(host), disk_state(host)
        places = [line_of(host, GRUB, "vfio-pci.ids"), line_of(host, MODPROBE, "ids="), line_of(host, MODULES, "ids=")]

        lab.report("gpustack host plan and apply, which must refuse")
        for command, options in (("plan", ()), ("apply", ("--reboot", "--yes"))):
            run = gpustack_host(host, command, *options)
            assert run.code == 13, run.output
            assert places[2] in run.output, run.output
        assert disk_state(host) == before

        lab.report("gpustack host plan --adopt")
        run = gpustack_host(host, "plan", "--adopt")
        assert run.code == 0, run.output
        for place in places:
            assert place in run.output, run.output
        assert disk_state(host) == before

        lab.report("gpustack host apply that takes it over, with a reboot")
        run = gpustack_host(host, "apply", "--adopt", "--reboot", "--yes")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 3
        assert_prepared(host)
        arguments = host.ssh(["cat", "/proc/cmdline"]).split()
        assert [argument for argument in arguments if argument.startswith(("vfio", "intel_iommu"))] == [
            "intel_iommu=on"
        ]
        run = gpustack_host(host, "verify")
        assert run.code == 0, run.output
        run = gpustack_host(host, "apply", "--adopt", "--reboot", "--yes")
        assert run.code == 0, run.output
        assert host.boots() == 3

        lab.report("gpustack host undo, with a reboot")
        run = gpustack_host(host, "undo", "--reboot", "--yes")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert configuration(host) == by_hand
        assert drivers(host) == {"pci-stub"}
        assert host.boots() == 4
