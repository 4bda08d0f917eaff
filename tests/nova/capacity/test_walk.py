"""Nova's own code is the reference: its requests to Placement, and how many instances fit on a host.

60 pairs of a host and a flavor in CI; ``make why`` compares 2,000, with GPUSTACK_WHY=N and GPUSTACK_SEED=n.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpustack_demo.embedded.environment import ensure
from support import made_rooms

PAIRS, SEED = int(os.environ.get("GPUSTACK_WHY", "60")), int(os.environ.get("GPUSTACK_SEED", "43"))


@pytest.mark.parametrize("release_name", ["2025.2", "2026.2"])
def test_numbers_and_requests_are_those_of_nova(release_name: str) -> None:
    source = random.Random(SEED)  # noqa: S311 - repeatable cases
    cases = [made_rooms.made(source) for _ in range(PAIRS)]
    answers = judged(release_name, cases)
    differences = [text for case, answer in zip(cases, answers, strict=True) if (text := difference(case, answer))]
    assert not differences, f"{len(differences)} of {PAIRS} differ, the first:\n" + "\n".join(differences[:3])
    booted = [answer["number"] for answer in answers if "number" in answer]
    assert sum(number > 0 for number in booted) > PAIRS // 4, "few fit: the comparison shows nothing"
    assert sum(bool(answer["refused"]) for answer in answers) < PAIRS // 2


def judged(release: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nova's answers."""
    environment = ensure(release)
    process = subprocess.run(
        [str(environment.program("python")), "-W", "ignore", str(Path(__file__).parent / "judge_room.py")],
        env={**environment.variables(), "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(process.stdout)
    return answers


def difference(case: dict[str, Any], answer: dict[str, Any]) -> str:
    """How the engine differs from Nova; empty if it does not."""
    needs = made_rooms.demand(case)
    if needs.refused or answer["refused"]:
        ours, theirs = needs.refused, answer["refused"]
        return "" if ours and theirs else f"refused {ours!r}, by Nova {theirs!r}\n{case['flavor']}\n{case['image']}"
    requests = [
        {
            "amounts": dict(request.amounts),
            "required": sorted(request.required),
            "forbidden": sorted(request.forbidden),
        }
        for request in needs.requests
    ]
    if requests != answer["requests"]:
        return f"requests {requests}\nNova's    {answer['requests']}\n{case['flavor']}\n{case['image']}"
    if "fault" in answer:
        return ""  # Nova's own code fails (processors that are pinned twice), so that it has no number
    least, most = made_rooms.number(case, needs)
    if least == most == answer["number"]:
        return ""
    return f"{least} to {most}, Nova {answer['number']}\n{json.dumps(case)}"
