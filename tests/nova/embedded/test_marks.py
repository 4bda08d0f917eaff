"""What runs for a service keeps that service's configuration, whatever native threads do meanwhile."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpustack_demo import embedded
from gpustack_demo.embedded.environment import ensure


def test_a_thread_keeps_its_mark_beside_native_threads(release_name: str) -> None:
    environment = ensure(release_name)
    marks = Path(embedded.__file__).with_name("inside") / "marks.py"
    command = [str(environment.program("python")), str(Path(__file__).with_name("judge_marks.py")), str(marks)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment.variables(), check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["0"]
