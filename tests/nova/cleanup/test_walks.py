"""Random walks: whatever happened, what ``apply`` frees is free, and nothing leaked stays unreported.

``GPUSTACK_WALKS`` says how many walks there are (``make walks``: anew each time); a few, always the same, without it.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from cloudworld import WORLDS, World
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from walks import Step, Walk, steps

WALKS = int(os.environ.get("GPUSTACK_WALKS", "0"))
NO_LIVE = ("yoga", "2023.1")
LIVE = [
    pytest.param(values if values[0] in NO_LIVE else (*values, "live"), id=one.id)
    for one in WORLDS
    for values in one.values
]
# The short form is of the first release alone: a walk takes a quarter of a minute.
pytestmark = pytest.mark.parametrize("cloud", LIVE if WALKS else LIVE[:1], indirect=True)
PHASES = (Phase.explicit, Phase.generate, *((Phase.shrink,) if WALKS else ()))
seen: Counter[str] = Counter()


@settings(
    max_examples=WALKS or 2,  # the first is the simplest there is
    derandomize=not WALKS,
    database=None,
    deadline=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(st.lists(steps, min_size=6, max_size=14))
@example(
    [
        Step(act="migrate", host=2),
        Step(act="confirm", fault="confirm"),
        Step(act="reset"),
        Step(act="die", host=1),
        Step(act="evacuate"),
    ]
)
def test_a_walk(cloud: World, walk: list[Step]) -> None:
    try:
        walked = Walk(cloud)
        for step in (Step(act="boot"), Step(act="boot", guest=2, host=1), *walk):
            walked.take(step)
        with tempfile.TemporaryDirectory() as directory:
            seen.update(walked.check(Path(directory)))
            print(f"walk {len(walked.done)}: {'; '.join(walked.done)}", flush=True) if WALKS else None
    finally:
        cloud.tidy()


def test_the_walks_met_leaks(cloud: World) -> None:
    """Walks on which nothing is ever repaired would prove nothing."""
    print(f"repaired: {dict(seen)}")
    assert seen
