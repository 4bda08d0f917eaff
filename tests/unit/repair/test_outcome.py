"""The ends of repairs, and when two planned repairs are the same."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.repair.outcome import GONE, about, key, refused, skipped
from gpustack.repair.verdict import PlannedVerdict
from support.cleanup_runs import LEAK

PLANNED = {
    **LEAK.to_dict(),
    "devices": [{"id": 1, "address": "0000:81:00.0", "status": "allocated", "dev_type": "type-PCI"}],
    "allocation": {"provider": "p", "name": "n", "addresses": "a", "consumer": "vm"},
}


def changed(field: str, value: Any) -> PlannedVerdict:
    """The planned repair with one field changed; with None, without it."""
    other: dict[str, Any] = copy.deepcopy(PLANNED)
    other.pop(field) if value is None else other.update({field: value})
    return cast("PlannedVerdict", other)


OTHER_ROW = [{**PLANNED["devices"][0], "id": 2}]  # type: ignore[index]
SAME_ROW = [{**PLANNED["devices"][0], "status": "claimed"}]  # type: ignore[index]


@pytest.mark.parametrize(
    ("field", "value", "same_repair", "same_subject"),
    [
        ("cell", "cell2", False, False),
        ("class", "B", False, False),
        ("host", "gpu2", False, False),
        ("node", "gpu2", False, False),
        ("instance", "vm", False, False),
        ("devices", OTHER_ROW, False, True),
        ("devices", SAME_ROW, True, True),
        ("devices", [], False, False),
        ("repair", "retire", False, True),
        ("migrations", [3], False, True),
        ("allocation", None, False, True),
        ("allocation", {"consumer": "vm", "addresses": "a", "name": "n", "provider": "p"}, True, True),
        ("because", "another reason", True, True),
        ("status", "report", True, True),
    ],
)
def test_a_repair_is_the_same_if_it_writes_the_same_rows_alike(
    field: str, value: Any, same_repair: bool, same_subject: bool
) -> None:
    planned, other = changed("title", "a leak"), changed(field, value)
    assert (key(planned) == key(other), about(planned) == about(other)) == (same_repair, same_subject)


def test_a_repair_ends_without_the_permission_of_the_hosts() -> None:
    assert refused(LEAK) is None
    ended = refused(LEAK.undecided("gpu1 is silent", "ask again"))
    assert ended == skipped("undecided: gpu1 is silent; ask again")
    assert (skipped("x").result, skipped("x").detail) == (ChangeResult.SKIPPED, "x")
    assert GONE.result is ChangeResult.UNCHANGED
