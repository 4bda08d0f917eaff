"""Random walks: whatever happened, what ``apply`` frees is free, and nothing leaked stays unreported.

``GPUSTACK_WALKS`` says how many walks there are (``make walks``: new ones each time); without it there are three,
always the same.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from support.books import Books
from support.clouds import BOTH_WAYS, NOT_LIVE, WORLDS
from support.cloudworld import World
from support.walks import Step, Walk, walks

WALKS = int(os.environ.get("GPUSTACK_WALKS", "0"))
LIVE = [
    pytest.param(values if values[0] in NOT_LIVE else (*values, "live"), id=parameter.id)
    for parameter in (BOTH_WAYS if WALKS else WORLDS)
    for values in parameter.values
]
pytestmark = pytest.mark.parametrize("cloud", LIVE, indirect=True)

LEAKS = [
    Step(act="migrate", host=2),
    Step(act="confirm", fault="confirm"),
    Step(act="reset"),
    Step(act="die", host=1),
    Step(act="evacuate"),
]
HANDS = [
    Step(act="edit", guest=3, host=2),
    Step(act="restart", host=2),
    Step(act="die", host=1),
    Step(act="evacuate"),
    Step(act="edit", guest=1, host=1),
    Step(act="forget", host=1),
    Step(act="reinstall", host=1),
    Step(act="shelve"),
    Step(act="unshelve", fault="spawn"),
]
KILLED = [
    Step(act="live", host=1, fault="post_at_destination", kill=True),
    Step(act="resize", guest=1, fault="finish", late=True),
    Step(act="reset"),
    Step(act="back", host=1),
    Step(act="migrate", host=2, fault="copy"),
    Step(act="reset"),
]


def test_walks_leave_no_leak_and_meet_some(cloud: World) -> None:
    """Walks on which nothing is ever repaired would prove nothing."""
    repaired: Counter[str] = Counter()

    @settings(
        max_examples=WALKS or 1,
        database=None,
        deadline=None,
        phases=(Phase.explicit, *((Phase.generate, Phase.shrink) if WALKS else ())),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(walks)
    @example(LEAKS)
    @example(HANDS)
    @example(KILLED)
    def a_walk(walk: list[Step]) -> None:
        walked = Walk(cloud)
        try:
            for step in (Step(act="boot"), Step(act="boot", guest=2, host=1), *walk):
                walked.take(step)
            with tempfile.TemporaryDirectory() as directory:
                repaired.update(Books(walked).check(Path(directory)))
                print(f"walk of {len(walked.history)}: {'; '.join(walked.history)}", flush=True) if WALKS else None
        finally:
            walked.leave()

    a_walk()
    print(f"repaired: {dict(repaired)}")
    assert repaired
