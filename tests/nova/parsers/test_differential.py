"""lint and Nova's own code agree on generated configurations; `make nova-differential` compares more of them."""

from __future__ import annotations

import pytest
import yaml

from gpustack_demo.embedded.environment import ensure
from support.nova_differential import EXCEPTIONS, disagreements
from support.nova_judge import Judge

SEED = 41_000


@pytest.mark.parametrize(("name", "first"), [("2025.2", SEED), ("2026.2", SEED + 75)])
def test_lint_and_nova_agree(name, first, tmp_path):
    with Judge(ensure(name)) as judge:
        found = [str(entry) for entry in disagreements(judge, range(first, first + 75), tmp_path)]
    assert found == []


def test_every_exception_has_a_reason():
    entries = yaml.safe_load(EXCEPTIONS.read_text(encoding="utf-8"))
    assert len(entries) <= 20
    assert all(entry["match"] and entry["reason"] and entry["nova"].startswith(("nova/", "oslo_")) for entry in entries)
