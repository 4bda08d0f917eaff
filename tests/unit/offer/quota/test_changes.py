"""Operations are carried out in order, until one fails; the next run plans the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from gpustack.changes.change import CloudChange, reversed_order
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, Present
from gpustack.cloud.session import Refused
from gpustack.offer.cloud_plan.access import AccessState
from gpustack.offer.cloud_plan.order import ordered
from gpustack.offer.quota.compare import compare
from gpustack.offer.quota.desired import WantedLimits
from support.change_runs import results

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


def test_limits_of_an_earlier_spec_are_deleted() -> None:
    keystone = Keystone()
    apply(keystone, WANTED)
    apply(keystone, WantedLimits(), prune=True)
    assert keystone.state() == {}
