"""How long commands take for a fleet in a snapshot, beside ``json.load`` of the same file.

Run it with ``python bench/fleet.py`` for 1,000 servers of twelve kinds, or ``make bench-fleet`` for 5,000. Times are
processor time of the complete command, with its start. Nova and Placement are stand-ins in the process of the command:
only gpustack's own work is measured. :file:`gpu_list.py` and :file:`cleanup.py` measure it beside real servers.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import limits
import yaml

TOP = Path(__file__).parents[1]
sys.path.insert(0, str(TOP / "tests"))

from gpustack.cli.app import main as gpustack  # noqa: E402
from gpustack.cli.cloud import OpenStackCommand  # noqa: E402
from gpustack.hosts.facts.store import save_snapshot  # noqa: E402
from support import growing_fleets, server_fleets  # noqa: E402
from support.fleet_cloud import StandIn  # noqa: E402

HOSTS = int(os.environ.get("GPUSTACK_BENCH_HOSTS", "1000"))


def seconds_of(arguments: Sequence[str]) -> float:
    """The processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([sys.executable, "-m", "gpustack", *arguments], check=False, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise SystemExit(f"{' '.join(arguments[:2])} ended with {ran.returncode}: {ran.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


PEAK = """
import pathlib, re, sys
from gpustack.cli.app import main
sys.stdout = open(sys.argv.pop(1), "w")
code = main(sys.argv[1:])
sys.__stdout__.write(re.search(r"VmHWM:\\s+([0-9]+)", pathlib.Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


def peak_of(arguments: Sequence[str]) -> int:
    """The largest resident memory of a command, in bytes. ``ru_maxrss`` would count that of this process too."""
    command = [sys.executable, "-c", PEAK, os.devnull, *arguments]
    return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def seconds_with_cloud(cloud: StandIn, arguments: Sequence[str]) -> float:
    """The processor time of a command that asks a cloud, in a process of its own."""
    seconds, requests = multiprocessing.get_context("fork").Pool(1).apply(_run, (cloud, arguments))
    print(f"{' '.join(arguments[:2])}: {requests} requests", flush=True)
    return seconds


def _run(cloud: StandIn, arguments: Sequence[str]) -> tuple[float, int]:
    OpenStackCommand.connection = lambda *_arguments, **_options: cloud  # type: ignore[method-assign,assignment]
    began = time.process_time()
    sys.stdout = sys.stderr = io.StringIO()
    code = gpustack(list(arguments))
    seconds = time.process_time() - began
    if code:
        raise SystemExit(f"{' '.join(arguments[:2])} ended with {code}")
    return seconds, len(cloud.requests)


def cloud_of(hosts: Sequence[dict[str, Any]]) -> StandIn:
    """A cloud with the GPUs of these hosts."""
    ids = {kind.ids for kind in server_fleets.KINDS}
    return growing_fleets.cloud_of(
        {
            host["hostname"]: [
                (f["address"], f"CUSTOM_PCI_{f['vendor']}_{f['product']}".upper())
                for f in host["pci"]
                if f"{f['vendor']}:{f['product']}" in ids
            ]
            for host in hosts
        }
    )


def load(snapshot: Path) -> float:
    """The processor time of ``json.load``, the best of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        with snapshot.open(encoding="utf-8") as stream:
            json.load(stream)
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    """Measure the commands that read a snapshot of equal servers."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        spec, out = place / "gpustack.yaml", place / "out"
        spec.write_text(yaml.safe_dump(server_fleets.spec(HOSTS), sort_keys=False), encoding="utf-8")
        snapshot = place / "fleet.json"
        hosts = server_fleets.fleet(HOSTS)
        save_snapshot(snapshot, hosts)
        cloud = cloud_of(hosts)
        del hosts
        peer = load(snapshot)
        facts = ("--snapshot", str(snapshot))
        commands = {
            "scan": ("scan", *facts),
            "scan_json": ("scan", *facts, "-f", "json"),
            "host_plan": ("host", "plan", str(spec), *facts),
            "nova_render": ("nova", "render", str(spec), *facts, "--out", str(out)),
            "nova_lint": ("nova", "lint", str(out), "--spec", str(spec), *facts),
        }
        of_cloud = {
            "gpu_list": ("gpu", "list", "--spec", str(spec), *facts, "-f", "json"),
            "capacity": ("capacity", str(spec), *facts, "-f", "json"),
            "report": ("report", "--spec", str(spec), *facts, "--out", str(place / "page")),
        }
        results = []
        for name, arguments in (commands | of_cloud).items():
            seconds = seconds_with_cloud(cloud, arguments) if name in of_cloud else seconds_of(arguments)
            print(f"{name}, {HOSTS} hosts: {seconds:.1f} s; json.load {peer:.1f} s", flush=True)
            results.append(limits.check(f"fleet.{name}", seconds / peer))
        fewer = place / "fewer.json"
        save_snapshot(fewer, server_fleets.fleet(HOSTS // 2))
        peaks = [peak_of(("scan", "--snapshot", str(path))) for path in (fewer, snapshot)]
        each_host = (peaks[1] - peaks[0]) / (HOSTS - HOSTS // 2)
        print(f"memory of scan: {each_host / 1000:.0f} kB for each further host", flush=True)
        results.append(limits.check("fleet.memory", each_host / 60_000))
        plan = commands["host_plan"]
        grouped, each = (min(seconds_of((*plan, *option)) for _ in range(2)) for option in ((), ("--each",)))
        results.append(limits.check("fleet.grouping", grouped / each))
    limits.end(*results)


if __name__ == "__main__":
    main()
