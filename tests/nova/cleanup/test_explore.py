"""Explore clean-up: each state at the commits of chains on a real Nova, as it is found hours later (``make explore``).

``GPUSTACK_EXPLORE`` is the number of new chains, ``GPUSTACK_SEED`` their seed; no chain begins when there are
``GPUSTACK_EXPLORE_STATES`` different states. Without new chains the kept ones are replayed.
A chain that fails is shrunk and written to ``chains/``, where every later run replays it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from hypothesis import HealthCheck, Phase, example, given, seed, settings

from gpustack.repair import apply, permission, repair, undo
from gpustack.repair.repair import Change, conditions
from support.clouds import NAMED, NOT_LIVE
from support.cloudworld import World
from support.engines import engines_kept, maintenance
from support.evidence_rule import check, load, small_cloud
from support.exploration import Explored, placement_kept
from support.judged_place import Place
from support.recorded_state import Recorder, State
from support.small_cells import SmallCloud
from support.walks import ACTIONS, INTERLUDES, STORIES, WITHOUT_DEVICES, Step, Walk, walks

CHAINS, SEED = int(os.environ.get("GPUSTACK_EXPLORE", "0")), int(os.environ.get("GPUSTACK_SEED", "1"))
ENOUGH = int(os.environ.get("GPUSTACK_EXPLORE_STATES") or "1000000")
PAGE = os.environ.get("GPUSTACK_EXPLORED")
KEPT = Path(__file__).parent / "chains"
DATABASE = os.environ.get("GPUSTACK_EXPLORE_ON") or None
"""The server on which the states are judged; files of SQLite without it."""
EVERY = 1 if CHAINS else 6
"""Without new chains, only every sixth state is judged: CI has 30 seconds."""
FOUND = [(2, True), (30, False), (2, False), (30, True)]
"""How states are found in turn, to falsify their evidence: the hours since then, and whether the hosts are up."""
FIT = [name for name in NAMED if name not in NOT_LIVE][:1]
CLOUDS = [pytest.param((name, name == "2026.2", None, "live", "defers"), id=name) for name in FIT]
pytestmark = pytest.mark.parametrize("cloud", CLOUDS, indirect=True)
explored = Explored()


@pytest.fixture(autouse=True, scope="module")
def leaks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the states with repairs for the mutants."""
    explored.keep = tmp_path_factory.mktemp("leaks") if CHAINS else None


@pytest.fixture(scope="module")
def server_url(database_url: Callable[[str | None], str | None]) -> sa.URL | None:
    """The database on the server in which states are judged."""
    url = database_url(DATABASE)
    if url is None:
        return None
    server = sa.make_url(url)
    with maintenance(server).connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE judged")
    return server.set(database="judged")


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
def test_each_state_of_a_chain(cloud: World, server_url: sa.URL | None, chain: list[Step]) -> None:
    if len(explored.states) >= ENOUGH:
        return
    walk, explored.repaired, known = Walk(cloud), None, frozenset(explored.states)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        try:
            with Recorder(walk, Path(directory) / "states") as recorder:
                for step in (Step(act="boot"), Step(act="boot", guest=2, host=1), *chain):
                    walk.take(step)
            with engines_kept(), placement_kept(cloud, Path(directory) / "placement.sqlite"):
                # How many states there are depends on Nova's pace; the last one has what the chain left behind.
                for state in (*recorder.states[:-1:EVERY], recorder.states[-1]):
                    explored.judge(state, cloud, Place(Path(directory) / "found", server_url))
            with small_cloud() as small:
                new = [state for state in recorder.states if state.digest not in known]
                for number, state in enumerate(new if CHAINS else recorder.states[-1:]):
                    if CHAINS or not explored.falsified:  # seconds each
                        _hold_the_evidence_rule(small, state, *FOUND[number % len(FOUND)])
            if CHAINS or not explored.starts:  # ten seconds each
                explored.start(walk)
            explored.chains += 1
            print(f"{explored.chains} chains, {len(explored.states)} states", flush=True)
        except AssertionError:
            failed = KEPT / f"failed-{SEED}.yaml"
            failed.write_text(yaml.safe_dump([asdict(step) for step in chain]), encoding="utf-8")
            raise
        finally:
            walk.leave()


def _hold_the_evidence_rule(small: SmallCloud, state: State, hours: int, up: bool) -> None:
    """Falsify each piece of evidence of a state, as it is found later."""
    load(small, state.directory, state.hosts, state.moment + timedelta(hours=hours), up=up)
    explored.falsified += check(small, f"state {state.directory.name}, {hours} hours later, up: {up}").total() > 0


def _without(table: str) -> Callable[..., list[object]]:
    """A mutant of the guards: the facts about a table are not compared when a repair writes."""
    return lambda facts, *rest: [*conditions([fact for fact in facts if fact.table != table], *rest)]


def _unguarded(self: Change, facts: Sequence[sa.ColumnElement[bool]]) -> sa.Update:
    """A mutant of :meth:`Change.statement`: the row itself is not compared."""
    return statement(Change(table=self.table, id=self.id, seen={}, new=self.new), facts)


def _anybody(*_evidence: object) -> Iterator[str]:
    """A mutant of undo: nothing is objected."""
    return iter(())


statement = Change.statement
GUARDED = ("compute_nodes", "services", "instances", "instance_extra", "migrations", "pci_devices")
MUTANTS: Mapping[str, tuple[object, str, object]] = {
    **{f"guard of {table}": (apply, "conditions", _without(table)) for table in GUARDED},
    "guard of the row": (Change, "statement", _unguarded),
    "answers of hosts": (permission, "settle", lambda verdict, _answers: verdict),
    "lifetime of the row": (repair, "IDENTITY", dict.fromkeys(repair.IDENTITY, ())),
    "lifetime of the node": (undo, "_against_node", _anybody),
    "lifetime of the owner": (undo, "_against_place", _anybody),
}
"""What keeps a repair, or its undo, from being bolder than its evidence; each mutant omits one."""


@pytest.mark.skipif(not CHAINS, reason="minutes; tests/unit/repair/test_repair.py has mutants of the guards for CI")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(
    cloud: World, server_url: sa.URL | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mutant: str
) -> None:
    """The states with repairs are judged again."""
    owner, name, replacement = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, replacement)
    with engines_kept(), placement_kept(cloud, tmp_path / "placement.sqlite"):
        place = Place(tmp_path / "found", server_url)
        found = next(filter(None, (_fault(state, cloud, place) for state in explored.leaks)), "")
    assert found, f"no state of {len(explored.leaks)} shows it"
    print(f"{mutant}: {found.splitlines()[0]}")


def _fault(state: State, world: World, place: Place) -> str:
    """What is found in a state; empty for nothing."""
    try:
        Explored().judge(state, world, place)
    except AssertionError as error:
        return str(error)
    return ""


def test_each_server_action_of_nova_is_a_step_or_changes_no_device(cloud: World) -> None:
    """A new action in a later Nova needs a step, or a reason."""
    (source,) = cloud.nova.environment.path.glob("lib/*/site-packages/nova/compute/instance_actions.py")
    actions = set(re.findall(r"^[A-Z_]+ = '(.+)'$", source.read_text(encoding="utf-8"), re.MULTILINE))
    assert actions <= ACTIONS.keys() | WITHOUT_DEVICES.keys()
    assert all(hasattr(Walk, f"_{step}") for step in ACTIONS.values())
    drawn = {act for story in STORIES for act in story} | set(INTERLUDES)
    assert set(ACTIONS.values()) <= drawn


def test_the_exploration_met_leaks_and_repairs(cloud: World) -> None:
    page = explored.page(SEED, cloud.nova.release)
    print(page)
    if PAGE:
        Path(PAGE).write_text(page, encoding="utf-8")
    assert explored.states
    assert explored.writes, "no leak was repaired: the exploration proves nothing"
