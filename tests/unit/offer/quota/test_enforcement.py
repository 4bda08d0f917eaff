"""What Nova enforces: each entry has a source and a test, and each release an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.nova_options.releases import release
from gpustack.offer.quota.enforcement import Check, checks, enforced, gaps
from gpustack.spec.model import Placement
from gpustack.spec.quotas import CountedBy

TOP = Path(__file__).parents[4]


@pytest.mark.parametrize("check", checks(), ids=lambda check: f"{check.count}-{check.operation}-{check.since}")
def test_each_entry_names_a_test(check: Check) -> None:
    file, _, name = check.test.partition("::")
    assert f"def {name}(" in (TOP / file).read_text(encoding="utf-8")
    assert check.source


@pytest.mark.parametrize(
    ("count", "name", "placement", "effects"),
    [
        ("marker", "2025.2", "off", ["enforced", "enforced", "enforced"]),
        ("marker", "2026.2", "schedule", ["enforced", "enforced", "enforced"]),
        ("marker", "yoga", "off", ["enforced", "enforced", "none"]),
        ("marker", "xena", "off", ["none", "none", "none"]),
        ("device", "2026.2", "schedule", ["enforced", "none", "enforced"]),
        ("device", "2026.2", "report", ["none", "none", "none"]),
        ("device", "2025.2", "schedule", ["none", "none", "none"]),
    ],
)
def test_releases_and_stages(count: CountedBy, name: str, placement: Placement, effects: list[str]) -> None:
    found = enforced(count, release(name), placement)
    assert [check.effect for check in found] == effects
    codes = [finding.code for finding in gaps(count, release(name), placement)]
    assert codes == ["GPU747"] * effects[:2].count("none")
