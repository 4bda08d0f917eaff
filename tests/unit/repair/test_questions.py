"""Which hosts need no answer: those where nova-compute frees the device by itself before it offers anything."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gpustack.repair import questions, rules
from gpustack.repair.verdict import Repair
from support import neighbourhood

CASE = {
    "service": {"seen": 3600},
    "rows": [{"status": "allocated", "owner": "vm", "request": "old"}],
    "owners": {"vm": None},
}


def spared(**changes: Any) -> str:
    """The reason for the verdict on a row of an instance that is elsewhere, on a host that is down."""
    view, clock = neighbourhood.view(CASE), neighbourhood.clock(CASE)
    (verdict,) = (verdict for verdict in rules.judge(view, clock) if verdict.klass == "A")
    return questions._spared(dataclasses.replace(verdict, **changes), view, clock)


def test_a_host_that_is_down_frees_the_device_by_itself() -> None:
    assert spared()


@pytest.mark.parametrize(
    "change",
    [{"stop": True}, {"migrations": (5,)}, {"repair": Repair.CLEAR_OWNER}, {"repair": Repair.FAIL_MIGRATION}],
    ids=str,
)
def test_a_repair_that_nova_would_not_make_needs_an_answer(change: dict[str, Any]) -> None:
    assert spared(**change) == ""
