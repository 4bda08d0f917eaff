"""A card is added on the running host: in use, it is left alone; free, it is bound without a reboot."""

from __future__ import annotations

from .conftest import Lab
from .machine import Machine
from .observe import Function
from .playbooks import play
from .test_addresses import slot
from .test_prepare import HOST_DRIVERS, assert_prepared, assert_untouched, gpu_functions
from .topology import Shape

# Opens a device node and keeps it open until it is told to end.
HOLD = """\
import os, subprocess, sys
code = "import os, time; os.open({!r}, os.O_RDWR); print('open', flush=True); time.sleep(3600)"
child = subprocess.Popen(
    [sys.executable, "-c", code.format(sys.argv[1])],
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
)
assert child.stdout.readline() == b"open\\n"
print(child.pid)
"""


def node(host: Machine, function: Function) -> str:
    """The display node of a card."""
    names = host.ssh(["ls", f"/sys/bus/pci/devices/{function.address}/drm"]).split()
    return f"/dev/dri/{next(name for name in names if name.startswith('card'))}"


def test_a_card_is_added_without_a_reboot(lab: Lab) -> None:
    with lab.booted("live", Shape()) as host:
        assert_untouched(host)
        first, *_, last = gpu_functions(host)
        second = next(f for f in gpu_functions(host) if slot(f) == slot(last))

        lab.report("the first card, with a reboot")
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true", addresses=[first.address])
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 2

        lab.report("both cards without a reboot, while a process has the second open")
        path = node(host, second)
        process = host.ssh(["python3", "-", path], stdin=HOLD).strip()
        run = play(host, "prepare.yml", "-e", "gpustack_live=true")
        assert run.code == 0, run.output
        assert "GPU181" in run.output
        assert f"({process}) has {path} open" in run.output
        assert "needs a reboot" in run.output
        for function in gpu_functions(host):
            expected = "vfio-pci" if slot(function) == slot(first) else HOST_DRIVERS[function.id]
            assert function.driver == expected, function

        lab.report("again, with the card free")
        host.ssh(["kill", process])
        run = play(host, "prepare.yml", "-e", "gpustack_live=true")
        assert run.code == 0, run.output
        assert ": ready," in run.output
        assert_prepared(host)
        assert host.boots() == 2
        run = play(host, "prepare.yml", "-e", "gpustack_live=true")
        assert run.code == 0, run.output
        assert run.count("changed") == 0, run.output

        lab.report("a reboot, after which it is the same")
        host.reboot()
        assert_prepared(host)
        run = play(host, "verify.yml")
        assert run.code == 0, run.output

        lab.report("undo.yml with a reboot")
        run = play(host, "undo.yml", "-e", "gpustack_reboot=true")
        assert run.code == 0, run.output
        host.wait_ssh()
        assert_untouched(host)
