"""A host that systemd-boot starts: arguments in /etc/kernel/cmdline, entries and images that kernel-install makes."""

from __future__ import annotations

from .conftest import Lab
from .machine import Machine
from .observe import disk_state
from .playbooks import play
from .test_addresses import configuration
from .test_prepare import assert_prepared, assert_untouched
from .topology import Shape

ENTRIES = "/boot/efi/loader/entries"
WANTED = {"intel_iommu=on", "iommu=pt"}


def arguments(host: Machine) -> list[str]:
    """What the running kernel was started with; systemd-boot names the initramfs there, GRUB does not."""
    assert "systemd-boot" in host.ssh(["bootctl", "status", "--no-pager"]).partition("Available Boot Loaders")[0]
    command_line = host.ssh(["cat", "/proc/cmdline"]).split()
    assert command_line.count("mitigations=off") == 1, command_line
    return command_line


def test_a_host_with_systemd_boot_and_back(systemd_boot_lab: Lab) -> None:
    with systemd_boot_lab.booted("systemd-boot", Shape()) as host:
        assert_untouched(host)
        first = arguments(host)
        assert not WANTED & set(first)
        before = configuration(host, ENTRIES)

        systemd_boot_lab.report("prepare.yml with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 2
        assert_prepared(host)
        assert "bochs-drm" not in host.ssh(["dmesg"])
        assert sorted(arguments(host)) == sorted([*first, *WANTED])
        assert set(host.ssh(["cat", "/etc/kernel/cmdline"]).split()) >= WANTED

        systemd_boot_lab.report("verify.yml, and prepare.yml again")
        run = play(host, "verify.yml")
        assert run.code == 0, run.output
        prepared = disk_state(host), configuration(host, ENTRIES)
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
        assert host.boots() == 2
        assert (disk_state(host), configuration(host, ENTRIES)) == prepared

        systemd_boot_lab.report("undo.yml with a reboot")
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 3
        assert_untouched(host)
        assert arguments(host) == first
        assert configuration(host, ENTRIES) == before
        run = play(host, "undo.yml")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
