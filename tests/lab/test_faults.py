"""Power cuts in the middle of prepare.yml: the host comes up from every one, and a next run does the rest."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpustack.prepare.host.own_files import MODPROBE

from .conftest import Lab
from .machine import Machine
from .playbooks import last_task, play
from .test_prepare import assert_prepared, assert_untouched
from .topology import Shape

CUTS = int(os.environ.get("GPUSTACK_LAB_CUTS", "20"))
SEED = int(os.environ.get("GPUSTACK_LAB_SEED", "1"))
# How long a run may be from its first connection to the host's next boot; moments beyond its end are not used.
LONGEST = float(os.environ.get("GPUSTACK_LAB_LONGEST", "200"))
# Of those that were cut in the same task and have files of gpustack's, how many are finished by a next run.
FINISHED = int(os.environ.get("GPUSTACK_LAB_FINISHED", "1"))


@contextmanager
def keeping(host: Machine, moments: list[float], snapshots: dict[Path, str]) -> Iterator[None]:
    """Keeps what power cuts at these moments would leave, while the host goes on; and the task that each is in."""
    over = threading.Event()

    def keep() -> None:
        past = 0.0
        for seconds in moments:
            if over.wait(seconds - past):
                return
            past = seconds
            path = host.directory / f"cut-{seconds:.2f}"
            host.keep(path)
            snapshots[path] = last_task(host)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_power_cuts_during_prepare(lab: Lab) -> None:
    choice = random.Random(SEED)  # noqa: S311  (a repeatable choice, no secret)
    count = 0
    finished: dict[str, int] = {}
    while count < CUTS:
        snapshots: dict[Path, str] = {}
        with lab.booted(f"run{count}", Shape()) as host:
            assert_untouched(host)
            # One in each stretch of the time, so that no phase is left out.
            stretch = LONGEST / (CUTS - count)
            moments = [3 + (index + choice.random()) * stretch for index in range(CUTS - count)]
            with keeping(host, moments, snapshots):
                run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
            assert run.code == 0, run.output
            host.wait_ssh()
            assert_prepared(host)
        for path, task in snapshots.items():
            with lab.host(f"cut{count}", Shape(), moment=path) as host:
                count += 1
                lab.report(f"{count}: came up after {path.name.replace('-', ' at ')} s, in '{task}'")
                assert host.ssh(["systemctl", "--failed", "--plain", "--no-legend"]).strip() == ""
                if not host.ssh(["find", MODPROBE], check=False):
                    continue  # as it was installed
                finished[task] = finished.get(task, 0) + 1
                if finished[task] <= FINISHED:
                    run_to_its_end(lab, host)


def run_to_its_end(lab: Lab, host: Machine) -> None:
    lab.report("prepare.yml to its end")
    run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
    assert run.code == 0, run.output
    host.wait_ssh()
    assert_prepared(host)
    run = play(host, "verify.yml")
    assert run.code == 0, run.output
