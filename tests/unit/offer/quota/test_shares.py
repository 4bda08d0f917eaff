"""Projects with their limits and use: which limit applies, and what is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.cloud.identity import Project
from gpustack.cloud.limits import MARK, Limit, Present
from gpustack.offer.quota.shares import Share, description_of, model_of, shares

PROJECT = Project(id="p", name="research")
DEFAULT = Limit(id="d", resource_class="CUSTOM_A", limit=1, description=description_of("a100"))
OWN = replace(DEFAULT, id="l", limit=4, project="p")
OTHER = Limit(id="v", resource_class="VCPU", limit=99)


@pytest.mark.parametrize(
    ("limit", "used", "free", "state"),
    [
        (4, 3, 1, "free"),
        (4, 4, 0, "full"),
        (4, 5, 0, "over"),
        (0, 0, 0, "full"),
        (-1, 3, None, "unknown"),
        (None, 3, None, "unknown"),
        (4, None, None, "unknown"),
    ],
)
def test_what_a_project_may_still_use(limit: int | None, used: int | None, free: int | None, state: str) -> None:
    share = Share(project=PROJECT, model="a100", resource_class="CUSTOM_A", limit=limit, own=True, used=used)
    assert (share.free, share.state) == (free, state)


@pytest.mark.parametrize(
    ("limits", "complete", "limit", "source"),
    [
        ((OWN,), True, 4, "project"),
        ((), True, 1, "default"),
        ((), False, None, "unknown"),
        ((OWN,), False, 4, "project"),
    ],
)
def test_the_limit_of_a_project_replaces_the_default(
    limits: tuple[Limit, ...], complete: bool, limit: int | None, source: str
) -> None:
    present = Present(defaults=(DEFAULT,), limits=limits, complete=complete)
    (share,) = shares(present, [PROJECT], {})
    assert (share.limit, share.source) == (limit, source)


@pytest.mark.parametrize(
    ("models", "defaults", "expected"),
    [
        ({}, (DEFAULT, OTHER), ["a100"]),  # by gpustack's mark
        ({"CUSTOM_A": "of-spec"}, (DEFAULT, OTHER), ["of-spec"]),
        ({"VCPU": "x"}, (DEFAULT, OTHER), ["x"]),
        ({"CUSTOM_B": "b"}, (DEFAULT, OTHER), []),
    ],
)
def test_limits_are_for_the_models_of_the_spec(
    models: dict[str, str], defaults: tuple[Limit, ...], expected: list[str]
) -> None:
    assert [share.model for share in shares(Present(defaults=defaults), [PROJECT], models)] == expected


@pytest.mark.parametrize(
    ("used", "expected"), [({}, None), ({"p": {}}, 0), ({"p": {"CUSTOM_A": 2}}, 2), ({"q": {"CUSTOM_A": 2}}, None)]
)
def test_the_use_of_a_project_that_was_not_read_is_unknown(
    used: dict[str, dict[str, int]], expected: int | None
) -> None:
    (share,) = shares(Present(defaults=(DEFAULT,), used=used), [PROJECT], {})
    assert share.used == expected


@pytest.mark.parametrize(
    ("description", "model"),
    [
        (description_of("a100"), "a100"),
        (f"GPUs: a 100 {MARK}", "a 100"),
        (f"of hand {MARK}", "CUSTOM_A"),
        ("GPUs: a100", "CUSTOM_A"),
        ("", "CUSTOM_A"),
    ],
)
def test_the_model_of_a_limit_is_in_its_description(description: str, model: str) -> None:
    assert model_of(replace(DEFAULT, description=description)) == model
