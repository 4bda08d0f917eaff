"""Compare ``gpustack scan`` of 50 hosts over SSH with OpenSSH running ``true`` and ``ansible -m setup`` on these hosts.

The hosts are 50 loopback addresses of real OpenSSH servers. Ansible gets as many forks as gpustack has jobs,
pipelining, and no persistent connections from earlier runs; OpenSSH runs as often at a time. A proxy counts the round
trips of one host.

``true`` does nothing, and here the collectors of 50 hosts share the processor of one machine. So a second comparison
leaves their work out: a stand-in for ``python3`` prints facts that were read before. ``bench/collect.py`` measures the
collector.
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

from gpustack.hosts.facts import bundle
from gpustack_demo.embedded.process import free_port
from support.distance import far
from support.sshd import PATH, Sshd, keygen, program, user

HOSTS = 50
JOBS = 32
ADDRESSES = 12  # per server
BIN = Path(sys.executable).parent


def seconds(command: list[str], given: str = "", **environment: str) -> float:
    """The duration of a command in seconds."""
    start = time.perf_counter()
    ran = subprocess.run(
        command,
        env={**os.environ, **environment},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - start
    if ran.returncode != 0:
        sys.exit(f"{command[0]} ended with {ran.returncode}:\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}")
    return took


@contextlib.contextmanager
def servers(directory: Path, addresses: tuple[str, ...]) -> Iterator[tuple[list[Sshd], str]]:
    """Servers on all addresses and one port: the key of the first may log in to all; and their known hosts."""
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
        yield started, known
    finally:
        for server in started:
            server.stop()


def everywhere(command: list[str], addresses: tuple[str, ...]) -> float:
    """The duration of a command for all addresses, of which ``JOBS`` run at a time."""
    return seconds(["xargs", "-a", "/dev/stdin", "-P", str(JOBS), "-I", "ADDRESS", *command], "\n".join(addresses))


def without_work(directory: Path, all_servers: list[Sshd]) -> Path:
    """A key with which the hosts print the facts of this machine, without reading them again."""
    stand_in = directory / "stand-in" / "python3"
    stand_in.parent.mkdir()
    collector = ["/usr/bin/python3", "-I", "-S", "-"]
    facts = subprocess.run(collector, input=bundle.program().encode(), capture_output=True, check=True).stdout
    (directory / "facts.json").write_bytes(facts)
    stand_in.write_text(f"#!/bin/sh\ncat >/dev/null\nexec cat {directory}/facts.json\n")
    stand_in.chmod(0o755)
    key = keygen(directory / "without_work")
    for server in all_servers:
        server.allow(key, path=f"{stand_in.parent}:{PATH}")
    return key


def main() -> None:
    """Print both times, and compare the ratio with its limit."""
    addresses = tuple(f"127.0.0.{n}" for n in range(1, HOSTS + 1))
    with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as directory:
        top = Path(directory)
        known, saved, inventory = top / "known_hosts", top / "fleet.json", top / "inventory"
        inventory.write_text("\n".join(addresses) + "\n")
        (top / "ansible.cfg").touch()
        with servers(top, addresses) as (all_servers, known_hosts):
            server = all_servers[0]
            known.write_text(known_hosts)
            log_in = ["--save", str(saved), "--identity", str(server.client_key), "--known-hosts", str(known)]
            options = [*log_in, "--jobs", str(JOBS), "--port", str(server.port)]
            scan = [str(BIN / "gpustack"), "scan", f"127.0.0.[1:{HOSTS}]", *options]
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
            ssh = [program("ssh"), "-F", "none", "-l", user(), "-i", str(server.client_key)]
            ssh += ["-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes"]
            true = [*ssh, "-p", str(server.port), "ADDRESS", "true"]
            key = str(without_work(top, all_servers))
            quick = [key if word == str(server.client_key) else word for word in scan]
            runs = [(seconds(scan), seconds(quick), everywhere(true, addresses)) for _ in range(3)]
            ours, alone, plain = (min(times) for times in zip(*runs, strict=True))
            with far(server.port) as place:
                known.write_text(known_hosts + server.known(f"[127.0.0.1]:{place.port}"))
                seconds([*ssh, "-p", str(place.port), "127.0.0.1", "true"])
                trips = place.round_trips
                seconds([*scan[:2], "127.0.0.1", *log_in, "--port", str(place.port)])
                of_scan = place.round_trips - trips
            of_inventory = [*scan[:2], "-i", str(inventory), *options]
            from_inventory = min(seconds(of_inventory, ANSIBLE_CONFIG=ansible["ANSIBLE_CONFIG"]) for _ in range(2))
            listing = [str(BIN / "ansible-inventory"), "-i", str(inventory), "--list"]
            by_name = ours + min(seconds(listing, ANSIBLE_CONFIG=ansible["ANSIBLE_CONFIG"]) for _ in range(2))
            read = len(json.loads(saved.read_text())["hosts"])
            theirs = seconds(setup, **ansible)
    print(f"gpustack scan of {read} hosts over SSH: {ours:.1f} s; ansible -m setup of the same: {theirs:.1f} s")
    assert read == HOSTS
    print(f"without the work of the hosts: {alone:.1f} s; OpenSSH running true on the same: {plain:.1f} s")
    print(f"round trips of one host: {of_scan} and {trips}")
    print(f"scan -i: {from_inventory:.1f} s; ansible-inventory --list and scan by name: {by_name:.1f} s")
    limits.end(
        limits.check("scan_ssh.time", ours / theirs),
        limits.check("scan_ssh.true", ours / plain),
        limits.check("scan_ssh.without_work", alone / plain),
        limits.check("scan_ssh.round_trips", of_scan / trips),
        limits.check("scan_ssh.inventory", from_inventory / by_name),
    )


if __name__ == "__main__":
    main()
