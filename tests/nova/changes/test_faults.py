"""Faults at each point of ``cloud apply`` on a real cloud: ``undo`` then restores exactly the state before.

CI tries a few points; ``make changes`` tries all, or so many of each kind: ``make changes POINTS=5``. Each point
that is not restored is listed, and the others are tried all the same.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import pytest

from gpustack.base.files import state_dir
from gpustack.changes import journal, lock
from gpustack.changes.run import recorded_run
from gpustack.cloud import placement
from gpustack.cloud.limits import LimitsCloud
from support.change_points import ChangePoints
from support.changing_cloud import AFTER, ChangingCloud
from support.clouds import NAMED
from support.cloudworld import Ran

POINTS = os.environ.get("GPUSTACK_CHANGES", "")
_EACH = bool(POINTS) or "GPUSTACK_NOVA_RELEASES" in os.environ
# tests/nova/embedded/test_changes.py has the other release.
_RELEASES = NAMED if _EACH else NAMED[-1:]
CLOUDS = pytest.mark.parametrize("cloud", [pytest.param(name, id=name) for name in _RELEASES], indirect=True)
INTERRUPTED, QUICK, PATIENT = 130, 3.0, 30.0
ROOTS = {"GET /", "GET /v2.1", "GET /v3", "GET /v3/"}
STRANGER, TRAIT = "f" * 32, "CUSTOM_GPU_HOST"


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


class Faults:
    """A saved plan, and runs of it with a fault each."""

    def __init__(self, cloud: ChangingCloud) -> None:
        self.cloud = cloud
        self.counts: dict[str, int] = {}
        self._plan()
        if POINTS:
            self._count()

    def _plan(self) -> None:
        cloud, self.before = self.cloud, self.cloud.dump()
        plan = str(cloud.directory / "change.plan")
        ran = cloud.run("cloud", "plan", cloud.spec(AFTER), "--prune", "--out", plan)
        assert ran.code == 0, ran
        shutil.rmtree(state_dir() / "changes")
        self.command = ("cloud", "apply", plan, "--yes", "--jobs", "1")

    def _count(self) -> None:
        """Count the points, the operations and the requests of a run without faults."""
        points, operations = ChangePoints(), ChangePoints(operations=True)
        self.cloud.traffic.calm()
        with points.watched(), operations.watched():
            ran = self.cloud.run(*self.command)
        assert ran.code == 0, ran
        self.counts = {
            "points": points.count,
            "operations": operations.count,
            "requests": len(self.cloud.traffic.requests),
        }
        assert not self.undone()

    def undone(self) -> str:
        """Undo what was recorded since the last call; return how the state differs from the one before."""
        self.cloud.traffic.calm()
        self.cloud.forget_unnamed_lock()
        problem = ""
        for run in [path.stem for path, _ in journal.records()]:
            ran = self.cloud.run("undo", run, "--yes")
            problem = problem or (f"undo: {ran}" if ran.code else "")
        shutil.rmtree(state_dir() / "changes", ignore_errors=True)
        after = self.cloud.dump()
        return problem or "; ".join(
            f"{name}: {set(rows) ^ set(after[name])}" for name, rows in self.before.items() if after[name] != rows
        )

    def reset(self) -> None:
        """Restore the state before, and plan again: the flavors have new ids."""
        self.cloud.reset(self.before)
        self._plan()

    def try_all(self, what: str, kind: str, few: Sequence[int], fault: Callable[[int], str]) -> None:
        """Try a fault at each point of a kind, and undo each run.

        :param few: the points in CI, so that nothing has to be counted there.
        :param fault: makes a run with the fault at a point, and returns what was wrong with it.
        """
        every = range(self.counts.get(kind, 0))
        count = len(every) if POINTS == "all" else int(POINTS or 0)
        # In this order, a run that somebody ends early has tried points everywhere.
        chosen = random.Random(count).sample(every, min(count, len(every))) if POINTS else few  # noqa: S311
        problems = []
        for at in chosen:
            self.cloud.traffic.calm()
            wrong = fault(at)
            different = self.undone()
            if wrong or different:
                problems.append(f"{what} at {at}: {wrong}{different}")
            print(f"{self.cloud.cloud.release} {what} at {at}: {'restored' if not wrong + different else problems[-1]}")
            if different:
                self.reset()
        print(f"{self.cloud.cloud.release}: {what} at {len(chosen)} {kind}: {len(chosen) - len(problems)} restored")
        assert not problems, "\n".join(problems)


@pytest.fixture(scope="module")
def planned(cloud: ChangingCloud) -> Faults:
    return Faults(cloud)


@pytest.fixture
def faults(planned: Faults) -> Iterator[Faults]:
    """The saved plan; after a test that leaves another state, the state before is restored."""
    yield planned
    if planned.cloud.dump() != planned.before:
        planned.reset()


def _stopped(faults: Faults, number: int, points: ChangePoints, expected: int) -> str:
    def run() -> int:
        points._fault = lambda: os.kill(os.getpid(), number)
        with points.watched():
            return faults.cloud.run(*faults.command).code

    code = in_a_child(run)
    return "" if code == expected else f"ended with {code}; "


@CLOUDS
def test_a_killed_run_is_undone_exactly(faults: Faults) -> None:
    kill = signal.SIGKILL
    faults.try_all("kill", "points", [30], lambda at: _stopped(faults, kill, ChangePoints(at), -kill))


@CLOUDS
@pytest.mark.skipif(not POINTS, reason="tests/unit/changes/test_run.py has one; all: make changes")
def test_an_interrupted_run_ends_its_operation_and_is_undone_exactly(faults: Faults) -> None:
    def interrupted(at: int) -> str:
        return _stopped(faults, signal.SIGINT, ChangePoints(at, operations=True), INTERRUPTED)

    faults.try_all("Ctrl-C", "operations", [], interrupted)


FAULTS: dict[str, dict[str, Any]] = {
    "409": {"fails_at": 0, "status": 409},
    "500": {"fails_at": 0, "status": 500},
    "504": {"fails_at": 0, "status": 504, "carried_out": True},
    "lost": {"dies_at": 0, "carried_out": True},
    "silent": {"silent_at": 0},
}


@CLOUDS
@pytest.mark.parametrize("fault", FAULTS if POINTS else ["lost"])
def test_a_run_whose_request_fails_is_undone_exactly(faults: Faults, fault: str) -> None:
    def failing(at: int) -> str:
        for name, value in FAULTS[fault].items():
            setattr(faults.cloud.traffic, name, at if name.endswith("_at") else value)
        faults.cloud.limit_time(QUICK if fault == "silent" else PATIENT)
        ran = faults.cloud.run(*faults.command)
        faults.cloud.limit_time(PATIENT)
        return f"{ran}; " if "unexpected" in ran.err or (ran.code and "gpustack: " not in ran.err) else ""

    faults.try_all(fault, "requests", [31], failing)


@CLOUDS
@pytest.mark.skipif(not POINTS, reason="make changes")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_plan_whose_request_fails_changes_nothing(faults: Faults, fault: str) -> None:
    """Before its first write, a run on a spec reads; there, a fault ends it, or it reads again."""
    plan = ("cloud", "plan", faults.cloud.spec(AFTER), "--prune")
    faults.cloud.traffic.calm()
    assert faults.cloud.run(*plan).code == 0
    faults.counts["reads"] = len(faults.cloud.traffic.requests)

    def failing(at: int) -> str:
        for name, value in FAULTS[fault].items():
            setattr(faults.cloud.traffic, name, at if name.endswith("_at") else value)
        faults.cloud.limit_time(QUICK if fault == "silent" else PATIENT)
        ran = faults.cloud.run(*plan)
        faults.cloud.limit_time(PATIENT)
        return f"{ran}; " if "unexpected" in ran.err or faults.cloud.traffic.writes else ""

    faults.try_all(f"{fault} while planning", "reads", [], failing)


def _flavor(admin: Any) -> None:
    (flavor,) = (found for found in admin.compute.flavors(is_public=None) if found.name == "kept")
    admin.compute.create_flavor_extra_specs(flavor, {"hw:cpu_policy": "shared"})


def _limit(admin: Any) -> None:
    limits = LimitsCloud(admin)
    limit = limits.find("CUSTOM_GPU_QUOTA_P100", admin.identity.find_project("research").id)
    assert limit is not None
    limits.change(limit, 7)


def _aggregate(admin: Any) -> None:
    (aggregate,) = (found for found in admin.compute.aggregates() if found.name == "gpu-a")
    admin.compute.set_aggregate_metadata(aggregate, {"filter_tenant_id": STRANGER})


def _trait(admin: Any) -> None:
    """Add it to a host, or remove it: there is no third value."""
    (provider,) = admin.placement.resource_providers(name="gpu3")
    has = provider.id in placement.bearers(admin, TRAIT)
    placement.set_trait(admin, provider.id, TRAIT, wanted=not has)


def _image(admin: Any) -> None:
    (image,) = admin.image.images()
    admin.image.update_image(image, hw_machine_type="pc")


class Others(NamedTuple):
    """A change that somebody else makes, and what a run prints for it before an apply and before an undo.

    :ivar table: the table of the dump that it changes.
    """

    change: Callable[[Any], None]
    table: str
    apply: str
    undo: str


SINCE = "skipped: changed since the plan"
OTHERS = {
    "flavor": Others(
        _flavor,
        "extra specs",
        f"kept: {SINCE}: hw:cpu_policy = shared (was absent)",
        f"kept: {SINCE}: hw:cpu_policy = shared (was dedicated)",
    ),
    "limit": Others(
        _limit,
        "limits",
        f"limit of research for p100: {SINCE}: 7 (was 4)",
        f"limit of research for p100: {SINCE}: 7 (was 1)",
    ),
    "aggregate": Others(
        _aggregate,
        "metadata",
        f"gpu-a: {SINCE}: filter_tenant_id = {STRANGER} (was ",
        f"gpu-a: {SINCE}: filter_tenant_id = {STRANGER} (was ",
    ),
    "trait": Others(_trait, "traits", "1 unchanged", "1 unchanged"),
    "image": Others(
        _image,
        "images",
        f"windows: {SINCE}: hw_machine_type = pc (was absent)",
        f"windows: {SINCE}: hw_machine_type = pc (was q35)",
    ),
}


@CLOUDS
@pytest.mark.parametrize("kind", OTHERS if POINTS else ["limit"])
def test_what_others_change_before_an_apply_is_kept(faults: Faults, kind: str) -> None:
    cloud, others = faults.cloud, OTHERS[kind]
    with cloud.connection() as admin:
        others.change(admin)
    before = cloud.dump()
    ran = cloud.run(*faults.command)
    assert ran.code == (0 if kind == "trait" else 14), ran
    assert others.apply in ran.err, ran
    assert cloud.run("undo", "--yes").code == 0
    assert cloud.dump() == before


@CLOUDS
@pytest.mark.skipif(not POINTS, reason="tests/unit/cli/test_change.py has one; all: make changes")
@pytest.mark.parametrize("kind", OTHERS)
def test_what_others_change_before_an_undo_is_kept(faults: Faults, kind: str) -> None:
    cloud, others = faults.cloud, OTHERS[kind]
    assert cloud.run(*faults.command).code == 0
    applied = cloud.dump()[others.table]
    with cloud.connection() as admin:
        others.change(admin)
    changed = cloud.dump()[others.table]
    preview = cloud.run("undo", "--check")
    ran = cloud.run("undo", "--yes")
    assert ran.code == preview.code == (0 if kind == "trait" else 14), ran
    left = [line for line in ran.err.splitlines() if ": skipped: " in line or ": not begun: " in line]
    assert {re.sub(": (skipped|not begun): ", ": ", line) for line in left} <= set(preview.err.splitlines()), preview
    assert len(left) == (kind != "trait"), left  # nothing else needs it
    assert others.undo in ran.err, ran
    theirs = set(changed) - set(applied)
    assert theirs <= set(cloud.dump()[others.table])
    assert theirs or kind == "trait"


def _in_state(name: str, cloud: ChangingCloud, *command: str) -> Ran:
    """Run as from another machine: with a state directory of its own."""
    with mock.patch.dict(os.environ, XDG_STATE_HOME=str(cloud.directory / name)):
        return cloud.run(*command)


@CLOUDS
def test_each_listing_is_read_once(faults: Faults) -> None:
    """A plan over all groups reads nothing twice, and takes fewer requests than three plans."""
    cloud = faults.cloud
    counts = {}
    for group in ("cloud", *(("flavor", "quota", "tenancy") if POINTS else ())):
        cloud.traffic.calm()
        assert cloud.run(group, "plan", cloud.spec(AFTER), "--prune").code == 0
        counts[group] = [line for line in cloud.traffic.requests if not line.startswith("POST")]
    read = [line for line in counts.pop("cloud") if line not in ROOTS]
    assert sorted(read) == sorted(set(read)), "\n".join(read)
    assert not counts or len(read) < sum(map(len, counts.values()))


@CLOUDS
def test_a_second_apply_waits_for_the_first_and_names_it(faults: Faults) -> None:
    cloud = faults.cloud
    soon = mock.patch.dict(recorded_run.__kwdefaults__, seconds=0.2)
    with cloud.connection() as admin, lock.in_the_cloud(admin, "FIRST", "mara", "node1", print), soon:
        ran = _in_state("second", cloud, *faults.command)
    assert ran.code == 17, ran
    assert "another run changes this cloud: FIRST of mara on node1" in ran.err
    assert cloud.dump() == faults.before


@CLOUDS
def test_two_applies_at_once_end_as_one_and_are_undone_exactly(faults: Faults) -> None:
    """The second plans the same changes, and finds them made when it has the lock."""
    cloud = faults.cloud
    cloud.traffic.calm()
    command = (sys.executable, "-m", "gpustack", "cloud", "apply", cloud.spec(AFTER), "--prune", "--yes")
    cloud_of = {"OS_CLIENT_CONFIG_FILE": str(cloud.clouds_yaml), "OS_CLOUD": "embedded"}
    runs = {
        name: subprocess.Popen(
            command,
            env={**os.environ, **cloud_of, "XDG_STATE_HOME": str(cloud.directory / name)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("first", "second")
    }
    errors = {name: run.communicate()[1] for name, run in runs.items()}
    by_code = sorted(runs, key=lambda name: runs[name].returncode, reverse=True)
    codes = [runs[name].returncode for name in by_code]
    # A slow first run makes the second give up.
    assert codes[0] in (0, 14, 17), errors
    assert codes[1] == 0, errors
    assert cloud.run("cloud", "plan", cloud.spec(AFTER), "--prune", "--exit-code").code == 0
    for name in by_code:
        if runs[name].returncode != 17:
            ran = _in_state(name, cloud, "undo", "--yes")
            assert ran.code == 0, ran
    assert cloud.dump() == faults.before


@pytest.fixture(scope="module")
def applied(planned: Faults) -> list[str]:
    """The requests of a run without faults. The state after it is that of the last tests."""
    planned.cloud.traffic.calm()
    ran = planned.cloud.run(*planned.command)
    assert ran.code == 0, ran
    return list(planned.cloud.traffic.requests)


@CLOUDS
def test_the_lock_takes_three_requests_to_a_run(applied: list[str]) -> None:
    of_aggregates = [line for line in applied if line.split()[1].startswith("/v2.1/os-aggregates")]
    created, named, *others, deleted = of_aggregates
    aggregate = deleted.removeprefix("DELETE ")
    assert (created, named) == ("POST /v2.1/os-aggregates", f"POST {aggregate}/action")
    assert not [line for line in others if aggregate in line.split()[1].removesuffix("/action")]


@CLOUDS
def test_a_check_adds_one_read_to_an_operation(applied: list[str]) -> None:
    """Beside the checks, a deletion asks for instances and projects, and a write to Placement for the generation."""
    reads = [line for line in applied if line.startswith("GET") and line not in ROOTS]
    checks = [line for line in reads if not re.search(r" /v3/(services|endpoints)|/servers\?|/traits$", line)]
    (record,) = [record for _, record in journal.records() if isinstance(record, journal.RunRecord)]
    created = [change for change in record.head.changes if change.kind == "flavor" and change.seen is None]
    private = [change for change in record.head.changes if change.kind == "flavor" and "access" in (change.seen or {})]
    assert created
    assert private
    assert len(checks) == len(record.head.changes) - len(created) + len(private), "\n".join(checks)


@CLOUDS
@pytest.mark.usefixtures("applied")
def test_an_undo_goes_on_without_what_is_gone(planned: Faults) -> None:
    """The last test of the module: its cloud has a project, a host and an image less."""
    faults, cloud = planned, planned.cloud
    with cloud.connection() as admin:
        identity: Any = admin.identity
        gone = identity.find_project("teaching").id
        identity.delete_project(gone)
        (service,) = admin.compute.services(host="gpu1", binary="nova-compute")
        admin.compute.delete_service(service)
        (image,) = admin.image.images()
        admin.image.delete_image(image)
    ran = cloud.run("undo", "--yes")
    assert ran.code == 0, ran
    for change in ("add gpu1 to the aggregate gpu-a", "change windows"):
        assert f"cannot be undone: {change}" in ran.err, ran
    lost = {gone, "gpu1", "windows"}

    def left(tables: dict[str, Any]) -> dict[str, Any]:
        return {name: [row for row in rows if not lost & set(row)] for name, rows in tables.items()}

    assert ("private", gone) in faults.before["access"]
    assert ("gpu-a", "gpu1") in faults.before["hosts"]
    assert left(cloud.dump()) == left(faults.before)
