"""A host whose initramfs dracut makes: one of two identical cards by its address, then both by id, then given back.

With hostonly=yes, as the lab's image has it, and with hostonly=no: dracut then leaves /etc/modprobe.d behind, and the
initramfs has the drivers of any host, those of the cards among them, for udev to load before there is a root disk.
"""

from __future__ import annotations

import re

import pytest

from .conftest import Lab
from .machine import Machine
from .observe import disk_state
from .playbooks import play
from .test_addresses import configuration, slot
from .test_prepare import HOST_DRIVERS, assert_prepared, assert_untouched, gpu_functions
from .topology import GPU_ID, Shape

# dracut takes DRM and sound drivers into an image for any host only when it is told so, as by its module drm.
ANY_HOST = """\
hostonly=no
add_drivers+=" bochs snd_hda_intel "
"""


def in_initramfs(host: Machine) -> str:
    """The names of all that is in the initramfs of the kernel that runs."""
    return host.ssh(["sh", "-c", "lsinitrd /boot/initrd.img-$(uname -r)"])


def before_the_root_disk(host: Machine) -> str:
    """The kernel's log up to the moment when the system on the root disk took over from that of the initramfs."""
    timestamp = host.ssh(["systemctl", "show", "--value", "--property=UserspaceTimestampMonotonic"])
    lines = re.findall(r"^\[ *([0-9.]+)\] (.*)", host.ssh(["dmesg"]), flags=re.MULTILINE)
    return "\n".join(text for seconds, text in lines if float(seconds) < int(timestamp) / 1e6)


def assert_nothing_changes(host: Machine, addresses: tuple[str, ...] = ()) -> None:
    before, boots = disk_state(host), host.boots()
    run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", addresses=addresses)
    assert run.code == 0, run.output
    assert run.count("changed") == 0, run.output
    assert host.boots() == boots
    assert disk_state(host) == before


@pytest.mark.parametrize("hostonly", ["yes", "no"], ids=["this-host", "any-host"])
def test_a_host_with_dracut_and_back(dracut_lab: Lab, hostonly: str) -> None:
    with dracut_lab.booted(f"dracut-hostonly-{hostonly}", Shape()) as host:
        assert_untouched(host)
        if hostonly == "no":
            host.ssh(["tee", "/etc/dracut.conf.d/20-any-host.conf"], stdin=ANY_HOST)
        before = configuration(host)
        assert "90-gpustack.conf" not in "".join(before)
        first, *_, last = (function for function in gpu_functions(host) if function.id == GPU_ID)

        dracut_lab.report("prepare.yml for one of the two cards, with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", addresses=[first.address])
        assert run.code == 0, run.output
        assert "GPU113" in run.output
        host.wait_ssh()
        assert host.boots() == 2
        for function in gpu_functions(host):
            expected = "vfio-pci" if slot(function) == slot(first) else HOST_DRIVERS[function.id]
            assert function.driver == expected, function
        assert f"gpustack: {first.address} is kept for vfio-pci" in before_the_root_disk(host)
        if hostonly == "no":
            # The race is a real one: a host driver took the other card, of the same id, before there was a root disk.
            assert "/bochs.ko" in in_initramfs(host)
            assert f"bochs-drm {last.address}:" in before_the_root_disk(host)
            assert f"bochs-drm {first.address}:" not in host.ssh(["dmesg"])
            assert "etc/modprobe.d/gpustack.conf" in in_initramfs(host)
        run = play(host, "verify.yml", addresses=[first.address])
        assert run.code == 0, run.output
        assert_nothing_changes(host, (first.address,))

        dracut_lab.report("prepare.yml for both, with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 3
        assert_prepared(host)
        # The initramfs has them, not only the root file system: nothing of the host's ever held the cards.
        if hostonly == "no":
            assert "/bochs.ko" in in_initramfs(host)
            assert "/snd-hda-intel.ko" in in_initramfs(host)
        assert "bochs-drm" not in host.ssh(["dmesg"])
        assert_nothing_changes(host)

        dracut_lab.report("undo.yml with a reboot")
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 4
        assert_untouched(host)
        assert configuration(host) == before
        assert (
            host.ssh(["find", "/usr/lib/dracut/modules.d", "/boot", "-name", "*gpustack*", "-o", "-name", "*.new"])
            == ""
        )
        run = play(host, "undo.yml")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
