"""Of two identical cards one goes to guests, by its address, and the other stays; then the host is given back."""

from __future__ import annotations

from .conftest import Lab
from .machine import Machine
from .observe import Function, disk_state
from .playbooks import play
from .test_prepare import HOST_DRIVERS, assert_untouched, gpu_functions
from .topology import Shape


def slot(function: Function) -> str:
    return function.address.rpartition(".")[0]


def configuration(host: Machine, menu: str = "/boot/grub/grub.cfg") -> frozenset[str]:
    """All of /etc and the boot menu: kind, mode, owner, target and content of everything there."""
    paths = ["/etc", menu]
    listed = host.ssh(["find", *paths, "-xdev", "-printf", r"%p %y %m %U:%G %l\n"])
    hashed = host.ssh(["find", *paths, "-xdev", "-type", "f", "-exec", "sha256sum", "{}", "+"])
    return frozenset([*listed.splitlines(), *hashed.splitlines()])


def test_one_of_two_identical_cards_and_back(lab: Lab) -> None:
    with lab.booted("addresses", Shape()) as host:
        assert_untouched(host)
        before = configuration(host)
        first, *_, last = gpu_functions(host)
        assert slot(first) != slot(last)

        lab.report("prepare.yml for one of the two cards, with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", addresses=[first.address])
        assert run.code == 0, run.output
        assert "GPU113" in run.output
        host.wait_ssh()
        assert host.boots() == 2
        for function in gpu_functions(host):
            expected = "vfio-pci" if slot(function) == slot(first) else HOST_DRIVERS[function.id]
            assert function.driver == expected, function
        log = host.ssh(["dmesg"])
        assert f"gpustack: {first.address} is kept for vfio-pci" in log
        assert "is left alone" not in log

        lab.report("verify.yml, and prepare.yml again")
        run = play(host, "verify.yml", addresses=[first.address])
        assert run.code == 0, run.output
        prepared = disk_state(host)
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", addresses=[first.address])
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
        assert host.boots() == 2
        assert disk_state(host) == prepared

        lab.report("undo.yml with a reboot")
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 3
        assert_untouched(host)
        assert configuration(host) == before
        run = play(host, "undo.yml")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output
