"""A bare host becomes a passthrough host: real playbooks, real GRUB, real reboot, real guest."""

from __future__ import annotations

import re

from .conftest import Lab
from .guest import functions_in_guest
from .machine import Machine
from .observe import Function, disk_state, functions
from .playbooks import play
from .topology import AUDIO_ID, GPU_COUNT, GPU_ID, Shape

HOST_DRIVERS = {GPU_ID: "bochs-drm", AUDIO_ID: "snd_hda_intel"}


def gpu_functions(host: Machine) -> list[Function]:
    """The functions of the GPUs' slots: a display controller and an audio controller each."""
    return [function for function in functions(host) if function.id in HOST_DRIVERS]


def assert_untouched(host: Machine) -> None:
    """Every function is held by the driver that the kernel gives it by itself."""
    functions = gpu_functions(host)
    assert [function.id for function in functions] == [GPU_ID, AUDIO_ID] * GPU_COUNT
    assert {function.id: function.driver for function in functions} == HOST_DRIVERS


def assert_prepared(host: Machine) -> None:
    """Every function is held by vfio-pci."""
    functions = gpu_functions(host)
    assert [function.id for function in functions] == [GPU_ID, AUDIO_ID] * GPU_COUNT
    assert {function.driver for function in functions} == {"vfio-pci"}


def test_bare_host_to_guest_with_gpu(lab: Lab) -> None:
    with lab.host("intel", Shape()) as host:
        assert_untouched(host)
        before = disk_state(host)

        lab.report("prepare.yml --check --diff")
        run = play(host, "prepare.yml", "--check", "--diff")
        assert run.code == 0, run.output
        assert run.count("changed") > 0, run.output
        assert "vfio-pci" in run.output
        assert disk_state(host) == before

        lab.report("prepare.yml with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        assert run.count("changed") > 0
        host.wait_ssh()
        assert host.boots() == 2
        assert_prepared(host)
        arguments = host.ssh(["cat", "/proc/cmdline"]).split()
        assert "intel_iommu=on" in arguments
        assert arguments.count("mitigations=off") == 1

        lab.report("verify.yml")
        run = play(host, "verify.yml")
        assert run.code == 0, run.output

        lab.report("prepare.yml again")
        prepared = disk_state(host)
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
        assert host.boots() == 2
        assert disk_state(host) == prepared

        lab.report("a guest with the first GPU")
        gpu = gpu_functions(host)[:2]
        assert gpu[0].group == gpu[1].group
        visible = functions_in_guest(host, [function.address for function in gpu])
        assert [identifier for address, identifier in visible.items() if ":05." in address] == [GPU_ID, AUDIO_ID]


def test_amd_host_whose_firmware_draws_on_a_gpu(lab: Lab) -> None:
    """The boot framebuffer keeps the first GPU's memory until the kernel is told to leave it alone."""
    with lab.host("amd", Shape(cpu_vendor="amd", console="gpu")) as host:
        assert_untouched(host)
        first = gpu_functions(host)[0].address

        lab.report("prepare.yml with a reboot, whose verification must find the framebuffer")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        host.wait_ssh()
        assert host.boots() == 2
        assert_prepared(host)
        assert "intel_iommu" not in host.ssh(["cat", "/proc/cmdline"])
        assert run.code != 0, run.output
        assert "GPU208" in run.output
        assert re.search(rf"{first}\b.*\befifb\b", run.output), run.output

        lab.report("the remedy that the finding names, and a reboot")
        drop_in = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX video=efifb:off"\n'
        host.ssh(["tee", "/etc/default/grub.d/50-console.cfg"], stdin=drop_in)
        host.ssh(["update-grub"])
        host.reboot()

        lab.report("verify.yml")
        run = play(host, "verify.yml")
        assert run.code == 0, run.output
        assert_prepared(host)


def test_group_with_the_network_card_is_refused(lab: Lab) -> None:
    with lab.host("shared", Shape(shared_group=True)) as host:
        assert_untouched(host)
        gpu = gpu_functions(host)[-1]
        interface = host.ssh(["ip", "-brief", "route", "show", "default"]).split("dev ")[1].split()[0]
        card = host.ssh(["readlink", "-f", f"/sys/class/net/{interface}/device"]).strip().split("/")
        address = next(part for part in reversed(card) if part.count(":") == 2)
        groups = {function.address: function.group for function in functions(host)}
        assert groups[address] == gpu.group, "the lab's topology does not put them in one group"
        before = disk_state(host)

        lab.report("prepare.yml, which must refuse")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
        assert run.code != 0, run.output
        assert run.count("failed") == 1, run.output
        assert gpu.address in run.output
        assert address in run.output
        assert interface in run.output
        assert disk_state(host) == before
        assert host.boots() == 1
        assert_untouched(host)
