"""Reservations in Placement: their words, what they write, and what they leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpustack.base.errors import ApplyError
from gpustack.changes.change import SUCCESSFUL, ChangeResult
from gpustack.changes.run import run
from gpustack.cloud.placement import Inventory
from gpustack.operate.gpu_service.changes import ReservationChange, reservation
from support.change_runs import NoJournal
from support.fleet_cloud import StandIn

PLACE = "gpu1 0000:81:00.0"
PATH = "/resource_providers/p1/inventories"


def inventory(generation: int = 3, total: int = 4, **reserved: int) -> Inventory:
    classes = {name: {"total": total, "reserved": amount, "max_unit": 1} for name, amount in reserved.items()}
    return Inventory(provider="p1", generation=generation, classes=classes)


def answered(inventory: Inventory) -> tuple[int, Any]:
    return 200, {"resource_provider_generation": inventory.generation, "inventories": inventory.classes}


@pytest.mark.parametrize(
    ("before", "wanted", "text"),
    [
        ({"A": 0}, {"A": 4}, f"reserve {PLACE} in Placement: reserved A 0 → 4"),
        ({"A": 4}, {"A": 1}, f"release {PLACE} in Placement: reserved A 4 → 1"),
        ({"B": 0, "A": 1}, {"A": 4, "B": 4}, f"reserve {PLACE} in Placement: reserved A 1 → 4, B 0 → 4"),
        ({"A": 4, "B": 1}, {"A": 0}, f"release {PLACE} in Placement: reserved A 4 → 0, B 1 → 0"),
    ],
)
def test_a_change_names_the_amounts(before: dict[str, int], wanted: dict[str, int], text: str) -> None:
    change = reservation(PLACE, inventory(**before), wanted, why="fan")
    assert (change.describe(), change.details()) == (text, [])
    again = ReservationChange.from_record(change.to_record())
    assert again.reverse().describe().startswith("release" if text.startswith("reserve") else "reserve")


@pytest.mark.parametrize(
    ("present", "result", "written"),
    [
        (inventory(A=0), ChangeResult.DONE, {"A": 4}),
        (inventory(A=4), ChangeResult.UNCHANGED, None),
        (inventory(A=1), ChangeResult.SKIPPED, None),
        (inventory(B=0), ChangeResult.SKIPPED, None),
        (None, ChangeResult.SKIPPED, None),
    ],
)
def test_only_the_amounts_of_the_plan_are_written(
    present: Inventory | None, result: ChangeResult, written: Mapping[str, int] | None
) -> None:
    cloud = StandIn()
    if present is not None:
        cloud.answers |= {f"placement {PATH}": answered(present), f"placement PUT {PATH}": (200, {})}
    change = reservation(PLACE, inventory(A=0), {"A": 4}, why="fan")
    (outcome,) = run([change], {"reservation": cloud.connection}, NoJournal())
    assert outcome.result == result, outcome
    expected = inventory(**written) if written else None
    bodies = [{"resource_provider_generation": 3, "inventories": expected.classes}] if expected else []
    assert (cloud.written, outcome.id) == (bodies, "p1" if result in SUCCESSFUL else "")


def test_a_provider_that_is_gone_is_an_error() -> None:
    with pytest.raises(ApplyError, match="the resource provider of the GPU is gone"):
        reservation(PLACE, inventory(A=0), {"A": 4}, why="fan").carry_out(StandIn().connection)


def test_an_undo_releases_nothing_of_a_provider_that_is_gone() -> None:
    """Of a GPU that was excluded from device_spec: the undo goes on with the host."""
    change = reservation(PLACE, inventory(A=0), {"A": 4}, why="fan").reverse()
    cloud = StandIn()
    (outcome,) = run([change], {"reservation": cloud.connection}, NoJournal())
    assert (outcome.result, cloud.written) == (ChangeResult.UNCHANGED, [])
