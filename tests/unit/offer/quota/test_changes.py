"""Operations are carried out in order, until one fails; the next run plans or completes the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from gpustack.changes import journal
from gpustack.changes.change import ChangeOutcome, ChangeResult, CloudChange, reversed_order
from gpustack.changes.journal import Cloud, RunHead
from gpustack.changes.run import run
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, LimitsCloud, Present
from gpustack.cloud.session import Refused
from gpustack.offer.cloud_plan.access import AccessState
from gpustack.offer.cloud_plan.order import ordered
from gpustack.offer.flavor.changes import FlavorChange
from gpustack.offer.quota.changes import LimitChange, completion
from gpustack.offer.quota.compare import compare
from gpustack.offer.quota.desired import WantedLimits
from support.change_runs import NoJournal, results
from support.fleet_cloud import StandIn

A, B = "CUSTOM_GPU_QUOTA_A100", "CUSTOM_GPU_QUOTA_K4200"
WANTED = WantedLimits(models={A: "a100", B: "k4200"}, defaults={A: 0, B: 1}, projects={"research": {A: 4, B: 2}})


class Keystone:
    """A stand-in: limits in memory; a default changes only without limits of projects, as in Keystone."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.limits: dict[str, Limit] = {}
        self.writes = 0
        self.fails_at = fails_at

    def present(self) -> Present:
        every = tuple(self.limits.values())
        return Present(
            defaults=tuple(limit for limit in every if limit.project is None),
            limits=tuple(limit for limit in every if limit.project),
        )

    def find(self, resource_class: str, project: str | None) -> Limit | None:
        return self.limits.get(f"{project} {resource_class}")

    def projects(self, name: str) -> tuple[Project, ...]:
        return (Project(id="p1", name=name),)

    def used(self, project: str) -> Mapping[str, int]:
        return {}

    def inventories(self, hosts: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        return {}

    def create(self, resource_class: str, project: str | None, limit: int, description: str) -> None:
        name = f"{project} {resource_class}"
        self._write(name not in self.limits)
        self.limits[name] = Limit(
            id=name, resource_class=resource_class, limit=limit, project=project, description=description
        )

    def change(self, limit: Limit, value: int) -> None:
        self._write(self._is_free(limit))
        self.limits[limit.id] = Limit(
            id=limit.id,
            resource_class=limit.resource_class,
            limit=value,
            project=limit.project,
            description=limit.description,
        )

    def delete(self, limit: Limit) -> None:
        self._write(self._is_free(limit))
        del self.limits[limit.id]

    def _is_free(self, limit: Limit) -> bool:
        others = (other for other in self.limits.values() if other.project)
        return bool(limit.project) or limit.resource_class not in {other.resource_class for other in others}

    def _write(self, permitted: bool) -> None:
        self.writes += 1
        if not permitted or self.writes == self.fails_at:
            raise Refused("HTTP 403, injected", status=403)

    def state(self) -> dict[str, int]:
        return {name: limit.limit for name, limit in self.limits.items()}


def planned(keystone: Keystone, wanted: WantedLimits, *, prune: bool = False) -> tuple[CloudChange, ...]:
    """The changes of a plan in their order."""
    present = keystone.present()
    limits = {(limit.resource_class, limit.project or ""): limit.limit for limit in keystone.limits.values()}
    projects = {name: (Project(id="p1", name=name),) for name in wanted.projects}
    changes = compare(wanted, present, projects, prune=prune).operations
    return ordered(changes, AccessState(limits=limits))[0]


def apply(keystone: Keystone, wanted: WantedLimits, *, prune: bool = False) -> list[str]:
    """The results of the changes that a plan takes."""
    return results(planned(keystone, wanted, prune=prune), {"limit": keystone})


def test_a_limit_that_keystone_may_hide_does_not_count_as_deleted() -> None:
    """With an application credential, an undo reported `unchanged` and left the limit."""

    class Hiding(Keystone):
        def present(self) -> Present:
            return replace(super().present(), limits=(), complete=False)

        def find(self, resource_class: str, project: str | None) -> Limit | None:
            return None if project else super().find(resource_class, project)

    keystone = Hiding()
    changes = planned(keystone, WANTED)
    assert results(changes, {"limit": keystone}) == ["done"] * 4
    undo = reversed_order(changes)
    (outcome,) = run(
        [replace(c, needs=()) for c in undo if c.name == "limit of research for a100"], {"limit": keystone}, NoJournal()
    )
    assert outcome.result is ChangeResult.FAILED
    assert outcome.detail.startswith("Keystone shows no such limit, but may hide the limits of other projects")
    assert len(keystone.state()) == 4


END = {f"None {A}": 1, f"None {B}": 1, f"p1 {A}": 5, f"p1 {B}": 2}
CHANGED = WantedLimits(models=WANTED.models, defaults={A: 1, B: 1}, projects={"research": {A: 5, B: 2}})


def test_second_run_changes_nothing() -> None:
    keystone = Keystone()
    assert set(apply(keystone, WANTED)) == {"done"}
    assert keystone.state() == {f"None {A}": 0, f"None {B}": 1, f"p1 {A}": 4, f"p1 {B}": 2}
    assert planned(keystone, WANTED) == ()


@pytest.mark.parametrize("fails_at", range(5, 8))
def test_interrupted_change_of_a_default_is_completed(fails_at: int) -> None:
    keystone = Keystone(fails_at)
    apply(keystone, WANTED)
    done = fails_at - 5
    assert apply(keystone, CHANGED) == [*["done"] * done, "failed", *["not begun"] * (2 - done)]
    apply(keystone, CHANGED)
    assert keystone.state() == END


def test_undo_restores_limits_and_defaults() -> None:
    keystone = Keystone()
    apply(keystone, WANTED)
    before = keystone.state()
    made = planned(keystone, CHANGED)
    assert set(results(made, {"limit": keystone})) == {"done"}
    assert keystone.state() == END
    assert set(results(reversed_order(made), {"limit": keystone})) == {"done"}
    assert keystone.state() == before


@pytest.mark.parametrize("wanted", [None, 7])
def test_a_default_stays_while_projects_have_limits(wanted: int | None) -> None:
    """The undo of an older run: a later run gave a project a limit. Keystone refused with a remedy about rights."""
    keystone = Keystone()
    changes = planned(keystone, WANTED)
    assert results(changes, {"limit": keystone}) == ["done"] * 4
    keystone.create(A, "p2", 3, "")
    undo = [
        replace(c, recorded=True, wanted=wanted if c.name == "default limit for a100" else c.wanted)
        for c in reversed_order(changes)
    ]
    for journal_ in (None, NoJournal()):  # the preview and the run
        *_, outcome = sorted(
            (o for o in run(undo, {"limit": keystone}, journal_) if "a100" in o.change.name), key=lambda o: o.result
        )
        assert (outcome.change.name, outcome.result) == ("default limit for a100", ChangeResult.SKIPPED)
        assert outcome.detail == "projects have limits of their own: p2"
    assert keystone.state() == {f"None {A}": 0, f"p2 {A}": 3}


def test_limits_of_an_earlier_spec_are_deleted() -> None:
    keystone = Keystone()
    apply(keystone, WANTED)
    apply(keystone, WantedLimits(), prune=True)
    assert keystone.state() == {}


PROJECT = Project(id="a" * 32, name="research")
LIMIT = Limit(id="1", resource_class=A, limit=4, project=PROJECT.id, description="GPUs: old [gpustack]")


@pytest.mark.parametrize(
    ("project", "before", "wanted", "text", "kind"),
    [
        (PROJECT, None, 2, "create the limit of research for a100: 2", "create_limit"),
        (PROJECT, LIMIT, 2, "change the limit of research for a100: 2 (was 4)", "change_limit"),
        (PROJECT, LIMIT, None, "delete the limit of research for a100 (was 4)", "delete_limit"),
        (None, None, 0, "create the default limit for a100: 0", "create_limit"),
    ],
)
def test_a_change_is_shown_with_its_project(
    project: Project | None, before: Limit | None, wanted: int | None, text: str, kind: str
) -> None:
    change = LimitChange.of((A, "a100"), project, before, wanted, "w")
    assert (change.describe(), change.details(), change.of_default) == (text, [], project is None)
    assert change.to_dict() == {
        "kind": kind,
        "why": "w",
        "model": "a100",
        "resource_class": A,
        "project": project and project.id,
        "project_name": project and project.name,
        "limit": wanted,
        "before": before and before.limit,
    }
    assert change.about["description"] == ("GPUs: old [gpustack]" if before else "GPUs: a100 [gpustack]")


@pytest.mark.parametrize(
    ("name", "permitted"),
    [(A, True), ("CUSTOM_PCI_10DE_11B4", True), ("VGPU", True), ("VCPU", False), ("MEMORY_MB", False)],
)
def test_an_edited_journal_limits_no_other_class(name: str, permitted: bool) -> None:
    change = LimitChange.of((name, "m"), None, None, 0, "w")
    assert change.permitted() == ("" if permitted else f"gpustack sets no limit of {name!r}")


@pytest.mark.parametrize(
    ("project", "wanted", "known", "remains"),
    [
        (PROJECT, 1, True, True),
        (PROJECT, 1, False, False),  # the project was deleted
        (PROJECT, None, False, True),
        (None, 1, False, True),
    ],
)
def test_an_undo_limits_no_deleted_project(
    project: Project | None, wanted: int | None, known: bool, remains: bool
) -> None:
    entry = {"project": {"id": PROJECT.id, "name": PROJECT.name}}
    cloud = StandIn({f"identity /projects/{PROJECT.id}": (200, entry)} if known else {})
    change = LimitChange.of((A, "a100"), project, LIMIT, wanted, "w")
    assert change.remaining(cloud.connection) == (change if remains else None)


@pytest.mark.parametrize(("seen", "wanted"), [(None, 2), (3, 2), (3, None)])
def test_a_limit_is_read_as_its_value(seen: int | None, wanted: int | None) -> None:
    keystone = Keystone()
    if seen is not None:
        keystone.create(A, "p", seen, "GPUs: by hand")
    before = None if seen is None else keystone.limits[f"p {A}"]
    change = LimitChange.of((A, "a100"), Project(id="p", name="p"), before, wanted, "w")
    assert change.read(cast("LimitsCloud", keystone)) == seen
    (outcome,) = run([change], {"limit": keystone}, NoJournal())
    assert (outcome.result, outcome.id) == ("done", "")
    assert change.read(cast("LimitsCloud", keystone)) == wanted
    after = keystone.limits.get(f"p {A}")
    assert after is None or after.description == ("GPUs: by hand" if seen else "GPUs: a100 [gpustack]")


def test_a_limit_that_disappears_during_a_change_is_created_again() -> None:
    keystone = Keystone()
    change = LimitChange.of((A, "a100"), None, Limit(id="1", resource_class=A, limit=1), 2, "w")
    change.carry_out(cast("LimitsCloud", keystone))
    assert keystone.state() == {f"None {A}": 2}
    writes = keystone.writes
    LimitChange.of((B, "k4200"), None, Limit(id="1", resource_class=B, limit=1), None, "w").carry_out(
        cast("LimitsCloud", keystone)
    )
    assert keystone.writes == writes


OLD, NEW = {"": 1, "p1": 4, "p2": 2}, {"": 0, "p1": 5, "p2": 3}


@dataclass
class Remaining:
    """The limits of a class by project."""

    limits: dict[str, int] = field(default_factory=lambda: dict(OLD))

    def find(self, resource_class: str, project: str | None) -> Limit | None:
        value = self.limits.get(project or "")
        return None if value is None else Limit(id="1", resource_class=resource_class, limit=value, project=project)

    def made(self, change: LimitChange) -> None:
        project = change.about["project"]
        if change.wanted is None:
            del self.limits[project]
        else:
            self.limits[project] = change.wanted


def change(number: int, project: str, seen: Any, wanted: Any) -> LimitChange:
    about = {"resource_class": "CUSTOM_A", "project": project, "description": "[gpustack]"}
    about |= {"model": "flat", "project_name": project}
    name = "limit of research" if project else "default limit"  # two domains have a project of this name
    return LimitChange(why="w", name=name, seen=seen, wanted=wanted, about=about, tag=f"limit:{number}")


CHANGES = [
    change(0, "p1", 4, None),
    change(1, "p2", 2, None),
    change(2, "", 1, 0),
    change(3, "p1", None, 5),
    change(4, "p2", None, 3),
]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def interrupted(keystone: Remaining, done: int, *, begun: bool = False, carried_out: bool = False) -> journal.RunRecord:
    """A run that made some changes, and perhaps began the next one."""
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="quota apply", cloud=Cloud()), CHANGES)
    for made in CHANGES[:done]:
        log.begin(made)
        log.end(ChangeOutcome(change=made, result=ChangeResult.DONE))
        keystone.made(made)
    if begun and done < len(CHANGES):
        log.begin(CHANGES[done])
        if carried_out:
            keystone.made(CHANGES[done])
    log.close(ended=False)
    return journal.read(log.path)


@pytest.mark.parametrize("done", range(6))
@pytest.mark.parametrize(("begun", "carried_out"), [(False, False), (True, False), (True, True)])
def test_the_limits_are_complete_afterwards(done: int, begun: bool, carried_out: bool) -> None:
    keystone = Remaining()
    record = interrupted(keystone, done, begun=begun, carried_out=carried_out)
    missing = set(OLD) - set(keystone.limits)
    changes, findings = completion(record, cast("LimitsCloud", keystone))
    assert {one.about["project"] for one in changes} == missing
    assert [found.code.value for found in findings] == ["GPU424"] * bool(missing)
    for one in changes:
        keystone.made(one)
    assert keystone.limits in (OLD, NEW)
    assert completion(record, cast("LimitsCloud", keystone)) == ((), ())


def test_a_completion_belongs_to_the_run_that_it_completes() -> None:
    keystone = Remaining()
    record = interrupted(keystone, 3)
    changes, _ = completion(record, cast("LimitsCloud", keystone))
    head = RunHead(id=journal.new_id(), command="flavor set", cloud=Cloud(), completes=record.head.id)
    log = journal.RunJournal(head, changes)
    for one in changes:
        log.begin(one)
        log.end(ChangeOutcome(change=one, result=ChangeResult.DONE))
    log.close()
    last, _unread = journal.last(Cloud, lambda record: True)
    assert last is not None
    assert (last.head.id, len(last.made)) == (record.head.id, len(CHANGES))


def test_a_limit_that_is_only_deleted_is_not_missing() -> None:
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="quota apply", cloud=Cloud()), CHANGES[:1])
    log.begin(CHANGES[0])
    log.close(ended=False)
    assert completion(journal.read(log.path), cast("LimitsCloud", Remaining({"": 1}))) == ((), ())


def test_other_changes_of_the_run_are_not_completed() -> None:
    """``cloud apply`` changes flavors and limits in one run, and gives other projects their first limit."""
    value = {"vcpus": 1, "ram": 1, "disk": 1, "ephemeral": 0, "swap": 0, "public": True, "description": ""}
    flavor = FlavorChange(why="w", id="f", name="f", seen=None, wanted={**value, "extra_specs": {}})
    every = [flavor, *CHANGES, change(5, "p3", None, 7)]
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="cloud apply", cloud=Cloud()), every)
    keystone = Remaining()
    log.begin(CHANGES[0])
    log.end(ChangeOutcome(change=CHANGES[0], result=ChangeResult.DONE))
    keystone.made(CHANGES[0])
    log.close(ended=False)
    changes, _ = completion(journal.read(log.path), cast("LimitsCloud", keystone))
    assert [(one.about["project"], one.wanted) for one in changes] == [("p1", 4)]


def test_a_limit_that_somebody_deleted_after_the_run_stays_deleted() -> None:
    keystone = Remaining()
    record = interrupted(keystone, len(CHANGES))
    del keystone.limits["p1"]
    assert completion(record, cast("LimitsCloud", keystone)) == ((), ())


def test_the_default_of_another_class_does_not_decide() -> None:
    class TwoClasses(Remaining):
        def find(self, resource_class: str, project: str | None) -> Limit | None:
            known = super().find(resource_class, project)
            return known if resource_class == "CUSTOM_A" else Limit(id="2", resource_class=resource_class, limit=8)

    other = replace(change(5, "", 7, 8), name="default limit of B")
    other = replace(other, about={**other.about, "resource_class": "CUSTOM_B"})
    every = [other, *CHANGES]
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="quota apply", cloud=Cloud()), every)
    keystone = TwoClasses()
    for done in (other, CHANGES[0]):
        log.begin(done)
        log.end(ChangeOutcome(change=done, result=ChangeResult.DONE))
    keystone.made(CHANGES[0])
    log.close(ended=False)
    changes, _ = completion(journal.read(log.path), cast("LimitsCloud", keystone))
    assert [one.wanted for one in changes] == [4]
