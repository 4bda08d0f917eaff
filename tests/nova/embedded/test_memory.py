"""A cloud that runs for hours keeps what it has in memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import gpustack_demo
from gpustack_demo.embedded.environment import ensure


def test_placement_in_memory_outlives_the_age_of_its_connection(release_name: str) -> None:
    environment = ensure(release_name)
    command = [str(environment.program("python")), str(Path(__file__).with_name("judge_memory.py"))]
    variables = environment.variables() | {"PYTHONPATH": str(Path(gpustack_demo.__file__).parents[1])}
    process = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["0", "allocations"], "without the pool, and with it"
