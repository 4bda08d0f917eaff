"""Snapshots of realistic hosts, for the tests of this directory."""

import json
from pathlib import Path
from typing import Any

from gpustack.hosts.facts.model import Host

SNAPSHOTS = Path(__file__).parents[1] / "unit" / "data" / "snapshots"


def raw(name: str) -> dict[str, Any]:
    """The first host of a snapshot, as plain data."""
    facts: dict[str, Any] = json.loads((SNAPSHOTS / f"{name}.json").read_text(encoding="utf-8"))["hosts"][0]
    return facts


def host(name: str, **changes: object) -> Host:
    """The first host of a snapshot, with some of its facts changed."""
    return Host.model_validate({**raw(name), **changes})
