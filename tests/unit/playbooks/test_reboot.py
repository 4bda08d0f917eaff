"""The action that reboots a host: a real sshd goes away and comes back, and connections from before never answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.sshd import Sshd, user

PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - nova_gpustack.passthrough.gpustack_reboot_host:
        reboot_timeout: {timeout}
        boot_time_command: {place}/look
        reboot_command: {place}/shutdown -r 0
"""
LOOK = """\
#!/bin/sh
echo >>{place}/looks
while [ -e {place}/hold ] && [ "$(wc -l <{place}/looks)" -gt 1 ]; do sleep 0.1; done
cat {place}/boot_id
"""
AWAY = 3.0  # seconds
MOST = 240.0  # far more than a busy machine needs, and less than TCP takes to give up a connection


class Host:
    """An sshd that is asked to reboot. Its sessions then stand still, like those of a host that is gone."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.sshd = Sshd(directory=place / "sshd")
        self.gone: list[int] = []
        self.back = 0.0
        self.sshd.start()
        (place / "boot_id").write_text("one\n")
        for name, text in (("shutdown", f"#!/bin/sh\ntouch {place}/asked\n"), ("look", LOOK.format(place=place))):
            (place / name).write_text(text)
            (place / name).chmod(0o755)

    def reboot(self, *, looked_at: bool) -> None:
        """Wait for the order, go away for a while, and come back as another boot.

        :param looked_at: go while the action reads the boot id for the second time, and not at once.
        """
        hold = self.place / "hold"
        if looked_at:
            hold.touch()
        self._until((self.place / "asked").exists)
        if looked_at:
            self._until(lambda: len((self.place / "looks").read_text().splitlines()) > 1)
        self.gone = self.sshd.freeze()
        hold.unlink(missing_ok=True)
        time.sleep(AWAY)
        (self.place / "boot_id").write_text("two\n")
        self.sshd.serve()
        self.back = time.monotonic()

    def _until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + MOST
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.05)

    def end(self) -> None:
        """Leave no process behind."""
        for process in self.gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.sshd.stop()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    machine = Host(tmp_path)
    yield machine
    machine.end()


def play(host: Host, timeout: int) -> subprocess.CompletedProcess[str]:
    """Reboot it with the action, over real SSH."""
    place, sshd = host.place, host.sshd
    (place / "play.yml").write_text(PLAY.format(place=place, timeout=timeout))
    (place / "known_hosts").write_text(sshd.known())
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_port": sshd.port,
        "ansible_user": user(),
        "ansible_timeout": 60,
        "ansible_ssh_private_key_file": str(sshd.client_key),
        "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={place}/known_hosts",
    }
    (place / "inventory.json").write_text(json.dumps({"all": {"hosts": {"one": variables}}}))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.json", "play.yml"],
        cwd=place,
        env=inherited
        | {
            "ANSIBLE_HOME": str(place / ".ansible"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(place / "c"),
            "PYTHONWARNINGS": "ignore",
        },
        capture_output=True,
        text=True,
        timeout=MOST,
        check=False,
    )


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_host_that_comes_back_is_noticed_soon(host: Host, looked_at: bool) -> None:
    rebooting = threading.Thread(target=host.reboot, kwargs={"looked_at": looked_at})
    rebooting.start()
    process = play(host, timeout=150)
    late = time.monotonic() - host.back
    rebooting.join()
    assert process.returncode == 0, process.stdout + process.stderr
    assert "changed=1" in process.stdout
    # Where the host goes at once, the connection may end before the machine that runs this test notices.
    assert host.gone or not looked_at, "no connection of the boot before was left"
    assert late < 120


def test_a_host_that_does_not_reboot_is_not_taken_for_rebooted(host: Host) -> None:
    process = play(host, timeout=4)
    assert process.returncode != 0
    assert "timed out after 4" in process.stdout
    assert "boot time has not changed" in process.stdout
