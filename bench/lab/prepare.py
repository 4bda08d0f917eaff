"""Compare wall time, SSH commands and reboots of ``prepare.yml`` on the lab's host with a plain script over SSH.

``make lab TEST=bench`` runs it; it takes some ten minutes, so ``make bench`` omits it. Both have the same host: a real
kernel, initramfs and GRUB in QEMU. The script (``by-hand.sh``) follows a guide and checks before it writes; it has no
plan, and verifies little. A round trip is a command that the host's sshd has started.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from lab.accelerator import choose_accelerator  # noqa: E402
from lab.finish import first_boot  # noqa: E402
from lab.image import ensure_image  # noqa: E402
from lab.machine import Machine  # noqa: E402
from lab.playbooks import play  # noqa: E402
from lab.topology import Shape  # noqa: E402

# The journal, with all messages of sshd, is persistent across reboots.
COUNTED = """\
set -eu
echo 'LogLevel VERBOSE' >/etc/ssh/sshd_config.d/10-counted.conf
mkdir -p /var/log/journal
systemctl restart systemd-journald
journalctl --flush
systemctl reload ssh
"""


def say(message: str) -> None:
    """Print progress on stderr."""
    print(message, file=sys.stderr, flush=True)


def with_playbook(host: Machine) -> None:
    """Run prepare.yml once."""
    run = play(host, "prepare.yml", "-e", "gpustack_reboot=true")
    assert run.code == 0, run.output


def with_script(host: Machine) -> None:
    """Run the script once."""
    subprocess.run(["sh", HERE / "by-hand.sh", "ssh", *host.ssh_options(), "root@127.0.0.1"], check=True)


def measured(host: Machine, run: Callable[[Machine], None]) -> dict[str, float]:
    """The cost of one run."""
    boots, before = host.boots(), counted(host)
    started = time.monotonic()
    run(host)
    seconds = time.monotonic() - started
    after = counted(host)
    connections, commands = (after[i] - before[i] for i in range(2))
    return {
        "seconds": round(seconds, 1),
        "connections": connections - 1,  # without the connection that counts
        "commands": commands - 1,
        "reboots": host.boots() - boots,
    }


def counted(host: Machine) -> tuple[int, int]:
    """The number of connections that sshd has accepted, and of commands that it has started."""
    log = host.ssh(["journalctl", "-o", "cat", "-t", "sshd", "--no-pager"])
    return len(re.findall("^Accepted ", log, re.MULTILINE)), len(re.findall("^Starting session", log, re.MULTILINE))


def main() -> int:
    """Print the figures and the ratios."""
    image = ensure_image(lambda unfinished: first_boot(unfinished, choose_accelerator(unfinished)), say)
    accelerator = choose_accelerator(image)
    figures_by_run: dict[str, dict[str, float]] = {}
    for name, run in (("prepare.yml", with_playbook), ("script", with_script)):
        with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as directory:
            machine = Machine(image=image, directory=Path(directory), accelerator=accelerator, shape=Shape())
            with machine as host:
                host.wait_ssh()
                host.ssh(["sh", "-s"], stdin=COUNTED)
                host.wait_ssh()
                for attempt in ("first", "again"):
                    say(f"{name}, {attempt}")
                    figures_by_run[f"{name}, {attempt}"] = measured(host, run)
    for name, figures in figures_by_run.items():
        print(f"{name:<20}", *(f"{key} {value:>6}" for key, value in figures.items()), sep="  ")
    ratios = {
        f"{attempt}_to_script": round(
            figures_by_run[f"prepare.yml, {attempt}"]["seconds"] / figures_by_run[f"script, {attempt}"]["seconds"], 2
        )
        for attempt in ("first", "again")
    }
    ratios["again_to_first"] = round(
        figures_by_run["prepare.yml, again"]["seconds"] / figures_by_run["prepare.yml, first"]["seconds"], 2
    )
    print(json.dumps(ratios))
    assert [figures_by_run[f"prepare.yml, {attempt}"]["reboots"] for attempt in ("first", "again")] == [1, 0]
    return 0


if __name__ == "__main__":
    sys.exit(main())
