"""Types that need GPU instances, by their names."""

from __future__ import annotations

import pytest

from gpustack.spec.vgpu import size, slices


@pytest.mark.parametrize(
    ("name", "number"),
    [("A16-8Q", None), ("A100-1-5C", "1"), ("A100-1-5CME", "1"), ("H200X-7-141C", "7"), ("i915-GVTg_V5_4", None)],
)
def test_name_has_the_number_of_slices(name: str, number: str | None) -> None:
    assert slices(name) == number


@pytest.mark.parametrize(("name", "expected"), [("A16-8Q", "8"), ("A40-12", "A40-12"), ("L4-24C", "24")])
def test_types_of_one_size_need_no_mode(name: str, expected: str) -> None:
    assert size(name) == expected
