"""Power cuts in the middle of prepare.yml: the host comes up each time, and a run that nobody cuts does the rest."""

from __future__ import annotations

import os
import random
import threading

from .conftest import Lab
from .machine import Machine
from .playbooks import last_task, play
from .test_prepare import assert_prepared, assert_untouched
from .topology import Shape

CUTS = int(os.environ.get("GPUSTACK_LAB_CUTS", "20"))
SEED = int(os.environ.get("GPUSTACK_LAB_SEED", "1"))
# From the first connection to well into the work on the initramfs; beyond that a run has most often ended.
LONGEST = float(os.environ.get("GPUSTACK_LAB_LONGEST", "150"))
FROM_THE_START = 5  # how often the host begins as it was installed, so that every phase is cut


def cut_during_prepare(host: Machine, seconds: float) -> bool:
    """Starts prepare.yml and cuts the host's power so many seconds later; whether the run was still going on."""
    timer = threading.Timer(seconds, host.kill)
    timer.start()
    try:
        run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
    finally:
        is_cut = not timer.is_alive()
        timer.cancel()
        timer.join()
    return is_cut and run.code != 0


def test_power_cuts_during_prepare(lab: Lab) -> None:
    moments = random.Random(SEED)  # noqa: S311  (a repeatable choice, no secret)
    done = 0
    while done < CUTS:
        with lab.host(f"cut{done}", Shape()) as host:
            assert_untouched(host)
            for _ in range(min(CUTS - done, -(-CUTS // FROM_THE_START))):
                seconds = moments.uniform(3, LONGEST)
                is_cut = cut_during_prepare(host, seconds)
                done += is_cut
                phase = last_task(host)
                lab.report(f"{done}: power cut after {seconds:.0f} s, in '{phase}'" if is_cut else "the run had ended")
                host.power_on()
                host.wait_ssh()
                assert host.ssh(["systemctl", "--failed", "--plain", "--no-legend"]).strip() == ""
                if not is_cut:
                    break
            lab.report("prepare.yml to its end")
            run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
            assert run.code == 0, run.output
            host.wait_ssh()
            assert_prepared(host)
            run = play(host, "verify.yml")
            assert run.code == 0, run.output
