"""``hw:mem_page_size`` against the huge pages of hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.spec.memory_pages import fit, needs_huge_pages, size_kib

CASES = yaml.safe_load(Path(__file__).with_name("memory-pages.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['request']}-{case['ram']}-{case['host']}")
def test_an_instance_fits_into_the_pages_as_in_nova(case: dict[str, Any]) -> None:
    assert fit(case["request"], ram_mib=case["ram"], nodes=case["nodes"], host=case["host"]) is case["fits"]


@pytest.mark.parametrize(
    ("request_", "kib", "huge"),
    [
        ("small", None, False),
        ("any", None, False),
        ("large", None, True),
        ("4", 4, False),
        ("4KB", 4, False),
        ("64", 64, False),
        ("2048", 2048, True),
        ("1G", None, False),
        ("", None, False),
    ],
)
def test_a_request_names_a_size_of_pages(request_: str, kib: int | None, huge: bool) -> None:
    assert (size_kib(request_), needs_huge_pages(request_)) == (kib, huge)
