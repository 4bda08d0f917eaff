"""``why flavor`` beside ``capacity --flavor`` on the same hosts, as a table and as JSON with every step.

Run it with ``python bench/why.py``. Nova and Placement are stand-ins; each command runs in a process of its own.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import limits
from fleet import seconds_with_cloud

from support import growing_fleets
from support.growing_fleets import Sizes

HOSTS = int(os.environ.get("GPUSTACK_BENCH_HOSTS", "1000"))
ROUNDS = 3


def main() -> None:
    """Compare the best of some rounds with the limit."""
    sizes = Sizes(hosts=HOSTS)
    with tempfile.TemporaryDirectory() as directory:
        places = growing_fleets.written(Path(directory), sizes)
        facts = ["--snapshot", str(places["snapshot"])]
        commands = {
            "capacity": ["capacity", str(places["spec"]), "--flavor", "one", *facts],
            "why": ["why", "flavor", "one", "--spec", str(places["spec"]), *facts],
        }
        ratios = {}
        for form in ("table", "json"):
            seconds = {
                name: min(seconds_with_cloud(growing_fleets.cloud(sizes), [*words, "-f", form]) for _ in range(ROUNDS))
                for name, words in commands.items()
            }
            ratios[form] = seconds["why"] / seconds["capacity"]
            print(f"{HOSTS} hosts, {form}: capacity {seconds['capacity']:.1f} s, why flavor {seconds['why']:.1f} s")
    limits.end(limits.check("why.time", ratios["table"]), limits.check("why.json", ratios["json"]))


if __name__ == "__main__":
    main()
