"""Faults at each point of ``cloud apply`` on a real cloud: ``undo`` then restores exactly the state before.

CI tries a few points; ``make changes`` tries all, or so many of each kind: ``make changes POINTS=5``.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpustack.changes import journal
from support.change_points import ChangePoints
from support.changing_cloud import AFTER, BEFORE, ChangingCloud
from support.clouds import NAMED

POINTS = os.environ.get("GPUSTACK_CHANGES", "")
CLOUDS = pytest.mark.parametrize("cloud", [pytest.param(name, id=name) for name in NAMED], indirect=True)
INTERRUPTED = 130
APPLY = ("--yes", "--prune", "--jobs", "1")


def points(request: pytest.FixtureRequest, kind: str, few: int) -> Sequence[int]:
    """The numbers of the points to try; in CI the point ``few`` only, so that nothing has to be counted."""
    if not POINTS:
        return [few]
    every = range(request.getfixturevalue("counted")[kind])
    return every if POINTS == "all" else sorted(random.sample(every, int(POINTS)))


def apply(cloud: ChangingCloud) -> tuple[str, ...]:
    return ("cloud", "apply", cloud.spec(AFTER), *APPLY)


def in_a_child(run: Callable[[], int]) -> int:
    """Run in a child process, which may be killed; return its exit code, or the signal as a negative number."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = run()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def records() -> set[str]:
    return {path.stem for path, _ in journal.records()}


@pytest.fixture
def restored(cloud: ChangingCloud) -> Iterator[Callable[[], None]]:
    """Undo what was recorded since the test began, or since the last call, and compare with the state before."""
    cloud.traffic.calm()
    before, known = cloud.dump(), records()

    def undo() -> None:
        cloud.traffic.calm()
        cloud.forget_unnamed_lock()
        for new in sorted(records() - known):
            ran = cloud.run("undo", new, "--yes")
            assert ran.code == 0, ran
        known.update(records())
        assert cloud.dump() == before

    yield undo
    undo()


@pytest.fixture(scope="module")
def counted(cloud: ChangingCloud) -> dict[str, int]:
    """The number of points of a run, and that of its requests."""
    counter = ChangePoints()
    cloud.traffic.calm()
    with counter.watched():
        ran = cloud.run(*apply(cloud))
    assert ran.code == 0, ran
    requests = len(cloud.traffic.requests)
    assert cloud.run("undo", "--yes").code == 0
    return {"points": counter.count, "requests": requests}


def stopped(cloud: ChangingCloud, number: int, at: int) -> int:
    """The exit code of a run that gets a signal at a step."""

    def run() -> int:
        with ChangePoints(at, lambda: os.kill(os.getpid(), number)).watched():
            return cloud.run(*apply(cloud)).code

    return in_a_child(run)


@CLOUDS
@pytest.mark.parametrize("number", [signal.SIGKILL, *([signal.SIGINT] if POINTS else [])], ids=str)
def test_a_run_that_is_stopped_is_undone_exactly(
    cloud: ChangingCloud, request: pytest.FixtureRequest, restored: Callable[[], None], number: signal.Signals
) -> None:
    for at in points(request, "points", 83):
        expected = INTERRUPTED if number is signal.SIGINT else -number
        assert stopped(cloud, number, at) == expected, at
        restored()


FAULTS: dict[str, dict[str, Any]] = {
    "409": {"fails_at": 0, "status": 409},
    "500": {"fails_at": 0, "status": 500},
    "lost": {"dies_at": 0, "carried_out": True},
    "dropped": {"dies_at": 0},
    "silent": {"silent_at": 0},
}


@CLOUDS
@pytest.mark.parametrize("fault", FAULTS if POINTS else ["lost"])
def test_a_request_that_fails_is_undone_exactly(
    cloud: ChangingCloud, request: pytest.FixtureRequest, restored: Callable[[], None], fault: str
) -> None:
    for at in points(request, "requests", 61):
        cloud.traffic.calm()
        for name, value in FAULTS[fault].items():
            setattr(cloud.traffic, name, at if name.endswith("_at") else value)
        ran = cloud.run(*apply(cloud))
        assert "unexpected" not in ran.err, (at, ran)
        restored()


def _aggregate(admin: Any) -> None:
    (found,) = (a for a in admin.compute.aggregates() if a.name == "gpu-a")
    admin.compute.set_aggregate_metadata(found, {"filter_tenant_id": "f" * 32})


def _image(admin: Any) -> None:
    (image,) = admin.image.images()
    admin.image.update_image(image, hw_machine_type="pc")


OTHERS: dict[str, Callable[[Any], None]] = {"aggregate": _aggregate, "image": _image}


@CLOUDS
@pytest.mark.parametrize("name", ["aggregate"])
def test_changes_of_others_between_plan_and_apply_are_kept(cloud: ChangingCloud, tmp_path: Path, name: str) -> None:
    plan = str(tmp_path / "change.plan")
    ran = cloud.run("cloud", "plan", cloud.spec(AFTER), "--prune", "--out", plan)
    assert ran.code == 0, ran
    with cloud.connection() as admin:
        OTHERS[name](admin)
    before = cloud.dump()
    ran = cloud.run("cloud", "apply", plan, "--yes", "--jobs", "1")
    assert ran.code == 14, ran
    assert "skipped: changed since the plan" in ran.err
    ran = cloud.run("undo", "--yes")
    assert ran.code == 0, ran
    assert cloud.dump() == before
    cloud.reset(BEFORE)


@CLOUDS
@pytest.mark.parametrize("name", ["image"])
def test_changes_of_others_between_apply_and_undo_are_kept(cloud: ChangingCloud, name: str) -> None:
    before = cloud.dump()
    assert cloud.run(*apply(cloud)).code == 0
    with cloud.connection() as admin:
        OTHERS[name](admin)
    others = cloud.dump()
    ran = cloud.run("undo", "--yes")
    assert ran.code == 14, ran
    assert "skipped: changed since the plan" in ran.err
    after = cloud.dump()
    assert after not in (before, others)
    assert [kind for kind in before if after[kind] != before[kind]] == [f"{name}s"]
    cloud.reset(BEFORE)


@CLOUDS
def test_each_listing_is_read_once(cloud: ChangingCloud) -> None:
    """A plan over all groups takes fewer requests than three plans, and none twice."""
    spec = cloud.spec(AFTER)
    cloud.traffic.calm()
    assert cloud.run("cloud", "plan", spec, "--prune").code == 0
    together = [line for line in cloud.traffic.requests if not line.startswith("POST")]
    roots = {"GET /", "GET /v2.1", "GET /v3", "GET /v3/"}
    read = [line for line in together if line not in roots]
    assert sorted(read) == sorted(set(read)), "\n".join(together)
    cloud.traffic.calm()
    for group in ("flavor", "quota", "tenancy"):
        cloud.run(group, "plan", spec, "--prune")
    assert len(together) < len(cloud.traffic.requests)
