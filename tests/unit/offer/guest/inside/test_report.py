"""The facts that a guest's report may hold: a guest can write any text to its console."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.offer.guest.inside.report import checked

KEYS = ("kernel", "flavor", "driver_version")


def document(**more: Any) -> dict[str, Any]:
    return {"gpus": [], "events": None, "complete": True, "drm": None, **dict.fromkeys(KEYS, "x"), **more}


def test_a_complete_report_is_taken() -> None:
    assert checked(document()) == document()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ["x" * 255, None])
def test_texts_of_255_characters_are_taken(key: str, value: str | None) -> None:
    facts = checked(document(**{key: value}))
    assert facts is not None
    assert facts[key] == value


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ["x" * 256, 5, ["x"], True])
def test_longer_texts_and_other_types_are_no_report(key: str, value: object) -> None:
    assert checked(document(**{key: value})) is None


@pytest.mark.parametrize("key", ["complete", "drm"])
def test_flags_that_are_none_are_no_report(key: str) -> None:
    assert checked(document(**{key: "yes"})) is None


@pytest.mark.parametrize("gpus", [None, {}, [5]])
def test_gpus_of_another_form_are_no_report(gpus: object) -> None:
    assert checked(document(gpus=gpus)) is None
