"""Compare ``gpustack scan`` of 50 hosts over SSH with ``ansible -m setup`` on the same hosts: at least 5 times faster.

The hosts are 50 loopback addresses of real OpenSSH servers. Ansible gets as many forks as gpustack has jobs,
pipelining, and no persistent connections from earlier runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpustack_demo.embedded.process import free_port
from support.sshd import Sshd, user

HOSTS = 50
JOBS = 32
ADDRESSES = 12  # per server
BIN = Path(sys.executable).parent


def seconds(command: list[str], **environment: str) -> float:
    """The duration of a command in seconds."""
    start = time.perf_counter()
    ran = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - start
    if ran.returncode != 0:
        sys.exit(f"{command[0]} ended with {ran.returncode}:\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}")
    return took


@contextlib.contextmanager
def servers(directory: Path, addresses: tuple[str, ...]) -> Iterator[tuple[Sshd, str]]:
    """Servers on all addresses and one port: the first of them, whose key may log in to all, and their known hosts."""
    port = free_port()
    started: list[Sshd] = []
    known = ""
    try:
        for start in range(0, len(addresses), ADDRESSES):
            part = addresses[start : start + ADDRESSES]
            server = Sshd(directory=directory / f"server{start}", addresses=part, port=port)
            server.start()
            started.append(server)
            server.allow(started[0].client_key)
            known += server.known(*(f"[{address}]:{port}" for address in part))
        yield started[0], known
    finally:
        for server in started:
            server.stop()


def main() -> None:
    """Print both times, and compare the ratio with its limit."""
    addresses = tuple(f"127.0.0.{n}" for n in range(1, HOSTS + 1))
    with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as directory:
        top = Path(directory)
        known, saved, inventory = top / "known_hosts", top / "fleet.json", top / "inventory"
        inventory.write_text("\n".join(addresses) + "\n")
        (top / "ansible.cfg").touch()
        with servers(top, addresses) as (server, known_hosts):
            known.write_text(known_hosts)
            scan = [str(BIN / "gpustack"), "scan", f"127.0.0.[1:{HOSTS}]", "--save", str(saved), "--jobs", str(JOBS)]
            scan += ["--port", str(server.port), "--identity", str(server.client_key), "--known-hosts", str(known)]
            setup = [str(BIN / "ansible"), "all", "-i", str(inventory), "-m", "ansible.builtin.setup", "-f", str(JOBS)]
            setup += ["-u", user(), "--private-key", str(server.client_key), "-e", f"ansible_port={server.port}"]
            ansible = {
                "ANSIBLE_CONFIG": str(top / "ansible.cfg"),
                "ANSIBLE_HOME": str(top / "ansible"),
                "ANSIBLE_PIPELINING": "true",
                "ANSIBLE_SSH_CONTROL_PATH_DIR": str(top / "cp"),
                "ANSIBLE_SSH_ARGS": f"-C -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={known}",
                "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
            }
            ours = min(seconds(scan) for _ in range(2))
            of_inventory = [*scan[:2], "-i", str(inventory), *scan[3:]]
            from_inventory = min(seconds(of_inventory, ANSIBLE_CONFIG=ansible["ANSIBLE_CONFIG"]) for _ in range(2))
            listing = [str(BIN / "ansible-inventory"), "-i", str(inventory), "--list"]
            by_name = ours + min(seconds(listing, ANSIBLE_CONFIG=ansible["ANSIBLE_CONFIG"]) for _ in range(2))
            read = len(json.loads(saved.read_text())["hosts"])
            theirs = seconds(setup, **ansible)
    print(f"gpustack scan of {read} hosts over SSH: {ours:.1f} s; ansible -m setup of the same: {theirs:.1f} s")
    assert read == HOSTS
    print(f"scan -i: {from_inventory:.1f} s; ansible-inventory --list and scan by name: {by_name:.1f} s")
    limits.end(
        limits.check("scan_ssh.time", ours / theirs), limits.check("scan_ssh.inventory", from_inventory / by_name)
    )


if __name__ == "__main__":
    main()
