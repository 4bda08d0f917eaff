"""An interrupted change of a default limit, at each of its points. Keystone is a stand-in that is only read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from gpustack.changes import journal
from gpustack.changes.change import ChangeOutcome, ChangeResult
from gpustack.changes.journal_lines import Cloud, RunHead
from gpustack.cloud.limits import Limit, LimitsCloud
from gpustack.offer.flavor.changes import FlavorChange
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.quota.interrupted import completion

OLD, NEW = {"": 1, "p1": 4, "p2": 2}, {"": 0, "p1": 5, "p2": 3}


@dataclass
class Keystone:
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


def interrupted(keystone: Keystone, done: int, *, begun: bool = False, carried_out: bool = False) -> journal.RunRecord:
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
    keystone = Keystone()
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
    keystone = Keystone()
    record = interrupted(keystone, 3)
    changes, _ = completion(record, cast("LimitsCloud", keystone))
    head = RunHead(id=journal.new_id(), command="flavor set", cloud=Cloud(), completes=record.head.id)
    log = journal.RunJournal(head, changes)
    for one in changes:
        log.begin(one)
        log.end(ChangeOutcome(change=one, result=ChangeResult.DONE))
    log.close()
    last = journal.last(lambda: Cloud().key, lambda record: True)
    assert last is not None
    assert (last.head.id, len(last.made)) == (record.head.id, len(CHANGES))


def test_a_limit_that_is_only_deleted_is_not_missing() -> None:
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="quota apply", cloud=Cloud()), CHANGES[:1])
    log.begin(CHANGES[0])
    log.close(ended=False)
    assert completion(journal.read(log.path), cast("LimitsCloud", Keystone({"": 1}))) == ((), ())


def test_other_changes_of_the_run_are_not_completed() -> None:
    """``cloud apply`` changes flavors and limits in one run, and gives other projects their first limit."""
    value = {"vcpus": 1, "ram": 1, "disk": 1, "ephemeral": 0, "swap": 0, "public": True, "description": ""}
    flavor = FlavorChange(why="w", id="f", name="f", seen=None, wanted={**value, "extra_specs": {}})
    every = [flavor, *CHANGES, change(5, "p3", None, 7)]
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="cloud apply", cloud=Cloud()), every)
    keystone = Keystone()
    log.begin(CHANGES[0])
    log.end(ChangeOutcome(change=CHANGES[0], result=ChangeResult.DONE))
    keystone.made(CHANGES[0])
    log.close(ended=False)
    changes, _ = completion(journal.read(log.path), cast("LimitsCloud", keystone))
    assert [(one.about["project"], one.wanted) for one in changes] == [("p1", 4)]


def test_a_limit_that_somebody_deleted_after_the_run_stays_deleted() -> None:
    keystone = Keystone()
    record = interrupted(keystone, len(CHANGES))
    del keystone.limits["p1"]
    assert completion(record, cast("LimitsCloud", keystone)) == ((), ())


def test_the_default_of_another_class_does_not_decide() -> None:
    class TwoClasses(Keystone):
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
