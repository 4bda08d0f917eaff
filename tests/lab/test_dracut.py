"""A host whose initramfs dracut makes: one of two identical cards by its address, then both by id, then given back."""

from __future__ import annotations

from .conftest import Lab
from .machine import Machine
from .observe import disk_state
from .playbooks import play
from .test_addresses import configuration, slot
from .test_prepare import HOST_DRIVERS, assert_prepared, assert_untouched, gpu_functions
from .topology import Shape


def assert_nothing_changes(host: Machine, addresses: tuple[str, ...] = ()) -> None:
    before, boots = disk_state(host), host.boots()
    run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", addresses=addresses)
    assert run.code == 0, run.output
    assert run.count("changed") == 0, run.output
    assert host.boots() == boots
    assert disk_state(host) == before


def test_a_host_with_dracut_and_back(dracut_lab: Lab) -> None:
    with dracut_lab.host("dracut", Shape()) as host:
        assert_untouched(host)
        before = configuration(host)
        assert "90-gpustack.conf" not in "".join(before)
        first = gpu_functions(host)[0]

        dracut_lab.report("prepare.yml for one of the two cards, with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", addresses=[first.address])
        assert run.code == 0, run.output
        assert "GPU113" in run.output
        host.wait_ssh()
        assert host.boots() == 2
        for function in gpu_functions(host):
            wanted = "vfio-pci" if slot(function) == slot(first) else HOST_DRIVERS[function.id]
            assert function.driver == wanted, function
        assert f"gpustack: {first.address} is kept for vfio-pci" in host.ssh(["dmesg"])
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
