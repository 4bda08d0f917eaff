"""The weights of the simulation are those of Nova's own handler, for random hosts and multipliers."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from gpustack.operate.capacity.simulate import Multipliers, chosen, weights
from gpustack_demo.embedded.environment import ensure


@dataclass
class Weighed:
    """A host as Nova's weighers see it."""

    ram: float
    cpus: float
    disk: float
    free: int


def random_host(source: random.Random) -> Weighed:
    """A host; some are overcommitted, some have many devices, many are equal."""
    return Weighed(
        ram=source.choice([-512, 0, 65536, 131072, 1 << 20]),
        cpus=source.choice([-4, 0, 14, 28, 112]),
        disk=source.choice([-1024, 0, 102400, 10_240_000]),
        free=source.choice([0, 1, 2, 4, 8, 99, 100, 300]),
    )


@pytest.mark.parametrize("release", ["2025.2", "2026.2"])
def test_weights_are_those_of_nova(release: str) -> None:
    source = random.Random(20)  # noqa: S311 - repeatable cases
    values = (-1.0, 0.0, 0.5, 1.0, 10.0, 100.0)
    cases = [
        (
            [random_host(source) for _ in range(source.randint(1, 12))],
            Multipliers(
                **{name: source.choice(values) for name in ("ram", "cpu", "disk")},
                pci=source.choice([value for value in values if value >= 0]),  # Nova accepts no other
            ),
        )
        for _ in range(200)
    ]
    environment = ensure(release)
    text = json.dumps([{"hosts": [asdict(h) for h in hosts], "multipliers": asdict(m)} for hosts, m in cases])
    process = subprocess.run(
        [str(environment.program("python")), str(Path(__file__).parent / "judge_weights.py")],
        env={**environment.variables(), "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    for (hosts, multipliers), (first, expected) in zip(cases, json.loads(process.stdout), strict=True):
        assert weights(hosts, multipliers) == pytest.approx(expected, abs=1e-9)
        assert first == f"gpu{chosen(hosts, multipliers)}"
