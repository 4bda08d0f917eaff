"""How long a second ``prepare.yml`` run takes, which has nothing to do, against the first on the same example host.

Run it with ``python bench/prepare.py``. The first run writes the files, builds the initramfs images and the boot
menu, boots and verifies, all through the stand-ins, which are faster than the real tools: on a real host the ratio
is far smaller still. Times are processor time (user and system) of ``ansible-playbook`` and all that it starts,
the best of several rounds.

The share of the frozen settings is measured with a copy of the collection, whose settings are resolved several times.

The round trips are those of one host behind a real OpenSSH server and a proxy that delays data by 50 ms, each run with
connections of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpustack.base.files import collection_dir
from gpustack.connect.playbooks.inventory import interpreter
from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host
from support.distance import far
from support.sshd import Sshd, user

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu01: [k4200]}\n'


def inventory(root: Path) -> dict[str, Any]:
    """An inventory with one example host, on this machine."""
    standin = [sys.executable, "-m", "gpustack_demo.examples.standin", "--root", str(root)]
    variables = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": interpreter(),
        "gpustack_root": str(root),
        "gpustack_command_prefix": standin,
        "gpustack_reboot_command": [*standin, "reboot"],
    }
    return {"all": {"hosts": {"gpu01": variables}}}


COLLECTION = "ansible_collections/nova_gpustack/passthrough"
MORE = 20
"""How often the copy of the collection resolves the settings in addition."""


def repeating(directory: Path) -> Path:
    """A copy of the collection that resolves the settings more often, each time."""
    copy = directory / COLLECTION
    shutil.copytree(collection_dir(), copy)
    settings = copy / "roles/gpustack/tasks/settings.yml"
    head, _, task = settings.read_text(encoding="utf-8").partition("- name:")
    settings.write_text(head + f"- name:{task}" * (1 + MORE), encoding="utf-8")
    return copy


def prepare(directory: Path, collection: Path, **more: str) -> tuple[float, int]:
    """Run the playbook; return the CPU time in seconds, and the number of changed tasks."""
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("-i", "inventory.json", str(collection / "playbooks" / "prepare.yml")),
        *("-e", "gpustack_spec=gpustack.yaml", "-e", "gpustack_reboot=true"),
    ]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(directory / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment |= {"ANSIBLE_COLLECTIONS_PATH": str(collection.parents[2]), **more}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=directory, env=environment, check=False, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    changed = re.search(r"changed=(\d+)", done.stdout)
    assert changed is not None, done.stdout
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, int(changed.group(1))


def write(directory: Path, **variables: object) -> None:
    """Write the example host, the spec, and an inventory."""
    document = inventory(write_host(directory / "gpu01", hosts.talk_host()))
    document["all"]["hosts"]["gpu01"] |= variables
    (directory / "ansible.cfg").touch()
    (directory / "gpustack.yaml").write_text(SPEC, encoding="utf-8")
    (directory / "inventory.json").write_text(json.dumps(document), encoding="utf-8")


def at_a_distance() -> list[limits.Result]:
    """The round trips and the duration of a first run, and the round trips of a second one."""
    with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as name:
        directory = Path(name)
        server = Sshd(directory=directory / "sshd")
        server.start()
        try:
            with far(server.port) as place:
                known = directory / "known_hosts"
                known.write_text(server.known(f"[127.0.0.1]:{place.port}"), encoding="utf-8")
                write(
                    directory,
                    ansible_connection="ssh",
                    ansible_host="127.0.0.1",
                    ansible_port=place.port,
                    ansible_user=user(),
                    ansible_ssh_private_key_file=str(server.client_key),
                    ansible_ssh_common_args=f"-o UserKnownHostsFile={known}",
                )
                trips, seconds = [], []
                for run in ("first", "again"):
                    before, began = place.round_trips, time.perf_counter()
                    prepare(directory, collection_dir(), ANSIBLE_SSH_CONTROL_PATH_DIR=str(directory / run))
                    trips.append(place.round_trips - before)
                    seconds.append(time.perf_counter() - began)
        finally:
            server.stop()
    print(f"behind 50 ms: {trips[0]} round trips and {seconds[0]:.1f} s, then {trips[1]} round trips")
    return [
        limits.check("prepare.round_trips", trips[0] / 120),
        limits.check("prepare.unchanged_round_trips", trips[1] / 12),
        limits.check("prepare.far", seconds[0] / 40),
    ]


def main() -> None:
    """Print the figures, as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    first = second = repeated = float("inf")
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as name:
            directory = Path(name)
            write(directory)
            once, changed = prepare(directory, collection_dir())
            assert changed == 5, "the first run writes, runs three commands and reboots"
            again, changed = prepare(directory, collection_dir())
            assert changed == 0, "the second changes nothing"
            more, _ = prepare(directory, repeating(directory))
            first, second, repeated = min(first, once), min(second, again), min(repeated, more)
    settings = (repeated - second) / MORE / second
    figures = {
        "prepare_first_seconds": round(first, 2),
        "prepare_second_seconds": round(second, 2),
        "prepare_second_to_first": round(second / first, 2),
        "prepare_settings_to_second": round(settings, 3),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:<32} {figure:>8}")
    local = (limits.check("prepare.second", second / first), limits.check("prepare.settings", settings))
    limits.end(*local, *at_a_distance())


if __name__ == "__main__":
    main()
