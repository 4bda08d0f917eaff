"""How long commands take for a fleet in a snapshot, beside ``json.load`` of the same file.

Run it with ``python bench/fleet.py`` for 1,000 servers of twelve kinds, or ``make bench-fleet`` for 5,000. Times are
processor time of the complete command, with its start.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import limits
import yaml

TOP = Path(__file__).parents[1]
sys.path.insert(0, str(TOP / "tests"))

from gpustack.hosts.facts.store import save_snapshot  # noqa: E402
from support import server_fleets  # noqa: E402

HOSTS = int(os.environ.get("GPUSTACK_BENCH_HOSTS", "1000"))


def seconds_of(arguments: Sequence[str]) -> float:
    """The processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([sys.executable, "-m", "gpustack", *arguments], check=False, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise SystemExit(f"{' '.join(arguments[:2])} ended with {ran.returncode}: {ran.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
        save_snapshot(snapshot, server_fleets.fleet(HOSTS))
        peer = load(snapshot)
        facts = ("--snapshot", str(snapshot))
        commands = {
            "scan": ("scan", *facts),
            "scan_json": ("scan", *facts, "-f", "json"),
            "host_plan": ("host", "plan", str(spec), *facts),
            "nova_render": ("nova", "render", str(spec), *facts, "--out", str(out)),
            "nova_lint": ("nova", "lint", str(out), "--spec", str(spec), *facts),
        }
        results = []
        for name, arguments in commands.items():
            seconds = seconds_of(arguments)
            print(f"{name}, {HOSTS} hosts: {seconds:.1f} s; json.load {peer:.1f} s", flush=True)
            results.append(limits.check(f"fleet.{name}", seconds / peer))
    limits.end(*results)


if __name__ == "__main__":
    main()
