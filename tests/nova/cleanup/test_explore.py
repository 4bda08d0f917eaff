"""Explore clean-up: each state at the commits of chains on a real Nova, as it is found hours later (``make explore``).

``GPUSTACK_EXPLORE`` is the number of new chains, ``GPUSTACK_SEED`` their seed. Without it the kept chains are replayed.
A chain that fails is shrunk and written to ``chains/``, where every later run replays it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, Phase, example, given, seed, settings

from support.clouds import WORLDS
from support.cloudworld import World
from support.exploration import Explored, Recorder
from support.walks import Step, Walk, walks

CHAINS, SEED = int(os.environ.get("GPUSTACK_EXPLORE", "0")), int(os.environ.get("GPUSTACK_SEED", "1"))
PAGE = os.environ.get("GPUSTACK_EXPLORED")
KEPT = Path(__file__).parent / "chains"
EVERY = 1 if CHAINS else 6
"""Without new chains, only every sixth state is judged: CI has 30 seconds."""
pytestmark = pytest.mark.parametrize(
    "cloud", [world for world in WORLDS if world.values[0][2] is None][:1], indirect=True
)
explored = Explored()


def kept(test: Callable[..., None]) -> Callable[..., None]:
    """Let a test replay each kept chain first."""
    for path in sorted(KEPT.glob("*.yaml")):
        test = example([Step(**step) for step in yaml.safe_load(path.read_text(encoding="utf-8"))])(test)
    return test


@settings(
    max_examples=CHAINS or 1,
    database=None,
    deadline=None,
    phases=(Phase.explicit, *((Phase.generate, Phase.shrink) if CHAINS else ())),
    suppress_health_check=list(HealthCheck),
)
@seed(SEED)
@given(walks)
@kept
def test_each_state_of_a_chain(cloud: World, chain: list[Step]) -> None:
    walk = Walk(cloud)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        try:
            with Recorder(walk, Path(directory) / "states") as recorder:
                for step in (Step(act="boot"), Step(act="boot", guest=2, host=1), *chain):
                    walk.take(step)
            for state in recorder.states[::EVERY]:
                explored.judge(state, walk.hosts, Path(directory) / "found")
            explored.chains += 1
        except AssertionError:
            failed = KEPT / f"failed-{SEED}.yaml"
            failed.write_text(yaml.safe_dump([asdict(step) for step in chain]), encoding="utf-8")
            raise
        finally:
            walk.leave()


def test_the_exploration_met_leaks_and_repairs(cloud: World) -> None:
    page = explored.page(SEED, cloud.nova.release)
    print(page)
    if PAGE:
        Path(PAGE).write_text(page, encoding="utf-8")
    assert explored.states > 0
    assert explored.writes, "no leak was repaired: the exploration proves nothing"
