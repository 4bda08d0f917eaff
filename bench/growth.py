"""How processor time grows from 1,000 to 4,000 hosts, for the commands that tests/unit/growth measures.

Run it with ``python bench/growth.py [COMMAND…]``. The tests count the instructions of Python; this also measures loops
inside C (``in`` of a list, sorting, regular expressions, JSON) and the garbage collector. Each host has a line of its
own in the spec and a GPU out of service, so that no two hosts are decided together. Nova and Placement are stand-ins.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import limits
import yaml
from fleet import TOP, seconds_with_cloud

from support import growing_fleets
from support.growing_fleets import Sizes

HOSTS = int(os.environ.get("GPUSTACK_BENCH_HOSTS", "1000"))
TABLE = TOP / "tests" / "unit" / "growth" / "commands.yaml"


def seconds(entry: dict[str, Any], hosts: int) -> float:
    """The processor time of a command."""
    sizes = Sizes(hosts=hosts)
    with tempfile.TemporaryDirectory() as directory:
        places = {**growing_fleets.written(Path(directory), sizes)}
        if "{nova_conf}" in entry["arguments"]:
            places["nova_conf"] = growing_fleets.databases(Path(directory), sizes)
        cloud = growing_fleets.cloud(sizes)
        before, arguments = (entry.get(key, "").format(**places).split() for key in ("before", "arguments"))
        if before:
            seconds_with_cloud(cloud, before)
        return float(seconds_with_cloud(cloud, arguments))


def main() -> None:
    """Measure the commands whose work grows with the hosts, and compare the worst with the limit."""
    measured = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["measured"]
    names = sys.argv[1:] or [name for name, entry in measured.items() if "hosts" in entry["dimensions"]]
    growth = {}
    for name in names:
        few, many = (seconds(measured[name], size) for size in (HOSTS, 4 * HOSTS))
        growth[name] = many / few
        print(f"{name}: {few:.1f} s for {HOSTS} hosts, {many:.1f} s for {4 * HOSTS}", flush=True)
    worst = max(growth, key=lambda name: growth[name])
    print(f"{worst} grows most", flush=True)
    limits.end(limits.check("growth.hosts", growth[worst]))


if __name__ == "__main__":
    main()
