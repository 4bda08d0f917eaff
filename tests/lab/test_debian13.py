"""A host of Debian 13: its kernel, GRUB and initramfs-tools; prepared, verified, restored."""

from __future__ import annotations

from .cloud.kept import SHAPE
from .conftest import Lab
from .guest import functions_in_guest
from .observe import disk_state
from .playbooks import play
from .test_addresses import configuration
from .test_prepare import assert_prepared, assert_untouched, gpu_functions
from .topology import AUDIO_ID, GPU_ID


def test_a_host_of_debian_13_and_back(debian13_lab: Lab) -> None:
    with debian13_lab.booted("debian13", SHAPE) as host:
        assert "VERSION_CODENAME=trixie" in host.ssh(["cat", "/etc/os-release"])
        assert_untouched(host)
        first = host.ssh(["cat", "/proc/cmdline"])
        before = configuration(host)

        debian13_lab.report("prepare.yml with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 2
        assert_prepared(host)
        assert {"intel_iommu=on", "iommu=pt"} <= set(host.ssh(["cat", "/proc/cmdline"]).split()) - set(first.split())
        # The initramfs has them, not only the root file system: nothing of the host's ever held the cards.
        assert "bochs-drm" not in host.ssh(["dmesg"])

        debian13_lab.report("verify.yml, and prepare.yml again")
        run = play(host, "verify.yml")
        assert run.code == 0, run.output
        prepared = disk_state(host)
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
        assert host.boots() == 2
        assert disk_state(host) == prepared

        debian13_lab.report("a guest with the first GPU")
        addresses = [function.address for function in gpu_functions(host)[:2]]
        visible = functions_in_guest(host, addresses)
        assert [identifier for address, identifier in visible.items() if ":05." in address] == [GPU_ID, AUDIO_ID]

        debian13_lab.report("undo.yml with a reboot")
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 3
        assert_untouched(host)
        assert host.ssh(["cat", "/proc/cmdline"]) == first
        assert configuration(host) == before
        run = play(host, "undo.yml")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
