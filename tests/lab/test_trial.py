"""A trial boot: kernel arguments with which the host does not come back are not there after the next boot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpustack.prepare.host.next_boot.trial import MARKER
from gpustack.prepare.host.own_files import GRUB, TRIAL_ENTRY, TRIAL_UNIT

from .conftest import Lab
from .machine import Machine
from .playbooks import Run, play
from .test_prepare import assert_prepared, assert_untouched
from .topology import Shape

# What stands for firmware that can't do what the argument asks for. Both only do harm to a kernel that has it.
PANIC = "/etc/systemd/system/sysinit.target.d/panic.conf", "[Unit]\nWants=lab-panic.service\n"
PANIC_UNIT = (
    "/etc/systemd/system/lab-panic.service",
    (
        "[Unit]\nDefaultDependencies=no\nConditionKernelCommandLine=intel_iommu=on\n"
        "[Service]\nExecStart=/bin/sh -c 'echo c >/proc/sysrq-trigger'\n"
    ),
)
NO_NETWORK = (
    "/etc/systemd/system/systemd-networkd.service.d/cut.conf",
    "[Unit]\nConditionKernelCommandLine=!intel_iommu=on\n",
)


@contextmanager
def broken_by(host: Machine, *files: tuple[str, str]) -> Iterator[None]:
    """A host that has the given files in the meantime."""
    for path, text in files:
        host.ssh(["mkdir", "-p", path.rpartition("/")[0]])
        host.ssh(["tee", path], stdin=text)
    yield
    host.ssh(["rm", *(path for path, _ in files)])


def arguments(host: Machine) -> list[str]:
    return host.ssh(["cat", "/proc/cmdline"]).split()


def assert_back(host: Machine, run: Run, menu: str) -> None:
    """The host runs its old boot, the next is an old one, too, and the run has said what to do."""
    assert run.code != 0, run.output
    assert "lab1 did not stay up with the new kernel arguments" in run.output
    assert "run prepare.yml again" in run.output
    assert "intel_iommu=on" not in arguments(host)
    assert_next_is_old(host, menu)


def assert_next_is_old(host: Machine, menu: str) -> None:
    assert host.ssh(["grub-editenv", "-", "list"]).strip() == ""
    assert menu_of(host) == menu


def menu_of(host: Machine) -> str:
    """The menu up to what local scripts add to it."""
    return host.ssh(["cat", "/boot/grub/grub.cfg"]).partition("### BEGIN /etc/grub.d/40")[0]


def test_arguments_that_stop_the_host_are_gone_with_the_next_boot(lab: Lab) -> None:
    with lab.booted("trial", Shape()) as host:
        assert_untouched(host)
        old, menu = arguments(host), menu_of(host)
        options = ("-e", "gpustack_reboot=true", "-e", "gpustack_trial=true")

        lab.report("prepare.yml with a trial in which the kernel panics")
        host.panics = 1
        with broken_by(host, PANIC, PANIC_UNIT):
            run = play(host, "prepare.yml", *options)
            host.wait_ssh()
            assert host.panicked() == 1
            assert host.boots() == 3
            assert_back(host, run, menu)
        assert arguments(host) == old

        lab.report("prepare.yml with a trial that cuts the network")
        with broken_by(host, NO_NETWORK):
            run = play(host, "prepare.yml", *options, "-e", "gpustack_trial_seconds=90")
            host.wait_ssh()
            assert host.boots() == 5
            assert_back(host, run, menu)
        assert arguments(host) == old

        lab.report("prepare.yml with a trial that goes well")
        run = play(host, "prepare.yml", *options, "-e", "gpustack_trial_seconds=300")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 6
        assert_prepared(host)
        assert {"intel_iommu=on", MARKER} <= set(arguments(host))
        assert host.ssh(["grub-editenv", "-", "list"]).strip() == ""
        assert host.ssh(["find", GRUB, TRIAL_ENTRY, TRIAL_UNIT], check=False).split() == [GRUB]

        lab.report("a reboot, to see that it is for good")
        host.reboot()
        assert host.boots() == 7
        assert "intel_iommu=on" in arguments(host)
        assert MARKER not in arguments(host)
        run = play(host, "prepare.yml", *options)
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
        assert host.boots() == 7
