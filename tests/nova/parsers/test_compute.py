"""Nova's own code fits instances into huge pages as gpustack holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpustack_demo.embedded.environment import ensure
from gpustack_demo.embedded.releases import available
from support.nova_judge import Judge

CASES = yaml.safe_load((Path(__file__).parents[2] / "unit/spec/memory-pages.yaml").read_text())
CHOSEN = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
RELEASES = [entry.name for entry in available() if entry.name in CHOSEN or CHOSEN == ["all"]]


@pytest.fixture(scope="module", params=RELEASES)
def judge(request) -> Iterator[Judge]:
    with Judge(ensure(request.param)) as judge:
        yield judge


def test_nova_fits_the_same_instances_into_huge_pages(judge):
    assert [judge.fits_pages(case) for case in CASES] == [case["fits"] for case in CASES]
