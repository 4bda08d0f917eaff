"""The limits of the benches (``limits.toml``), and the one place that compares figures with them."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("limits.toml")
RESULTS = "GPUSTACK_BENCH_RESULTS"
"""The file to which each comparison is added as a line of JSON, if set."""
FACTOR = "GPUSTACK_BENCH_FACTOR"
"""A factor of all limits: with 0.5, a bench should fail."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A figure beside its limit.

    :ivar name: ``BENCH.NAME`` in the table.
    :ivar value: the ratio to the peer.
    """

    name: str
    work: str
    peer: str
    value: float
    most: float

    @property
    def kept(self) -> bool:
        """Whether the figure is at most the limit."""
        return self.value <= self.most


def names(bench: str) -> frozenset[str]:
    """The limits of a bench, such as ``render.growth``."""
    return frozenset(f"{bench}.{key}" for key in _table().get(bench, {}))


def check(name: str, value: float) -> Result:
    """Compare a figure with its limit, print both, and record them.

    :raises KeyError: if the table has no such limit.
    """
    bench, key = name.split(".")
    entry = _table()[bench][key]
    result = Result(
        name=name,
        work=entry["work"],
        peer=entry["peer"],
        value=value,
        most=entry["most"] * float(os.environ.get(FACTOR, "1")),
    )
    verdict = "" if result.kept else ": above the limit"
    print(f"{result.work}: {value:.3g} of {result.peer} (at most {result.most:g}){verdict}", flush=True)
    if path := os.environ.get(RESULTS):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
    return result


def end(*results: Result) -> None:
    """End a bench: exit code 1 if a limit is exceeded."""
    sys.exit(int(not all(result.kept for result in results)))


def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))
