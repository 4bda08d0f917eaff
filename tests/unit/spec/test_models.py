"""Types that need GPU instances, by their names."""

from __future__ import annotations

import pytest

from gpustack.spec.models import memory, slices


@pytest.mark.parametrize(
    ("name", "number"),
    [("A16-8Q", None), ("A100-1-5C", "1"), ("A100-1-5CME", "1"), ("H200X-7-141C", "7"), ("i915-GVTg_V5_4", None)],
)
def test_name_has_the_number_of_slices(name: str, number: str | None) -> None:
    assert slices(name) == number


@pytest.mark.parametrize(
    ("name", "expected"),
    [("A16-8Q", 8), ("DC-1-24Q", 24), ("A100-1-5CME", 5), ("A40-12", None), ("i915-GVTg_V5_4", None)],
)
def test_name_has_the_memory(name: str, expected: int | None) -> None:
    assert memory(name) == expected
