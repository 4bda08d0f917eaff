"""The devices that a migration held: which are recorded, and what speaks against its old status."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml

from gpustack.novadb.view import NodeView
from gpustack.repair import migration_ends, rules
from gpustack.repair.verdict import Verdict
from support import neighbourhood

HERE = "0000:81:00.0"
MOVED = """
service: {seen: 5}
rows: [{status: allocated, owner: vm}]
owners: {vm: {host: gpu4, moves: [{status: error, from: gpu2, to: gpu1}, {status: confirmed, from: gpu3, to: gpu4}]}}
"""


def judged(case: str) -> tuple[Verdict, NodeView]:
    """The verdict on the row of gpu1, with rows of the owner on other hosts, one of which is soft-deleted."""
    data: dict[str, Any] = yaml.safe_load(case)
    view = neighbourhood.view(data)
    others = tuple(
        (host, view.rows[0]._replace(id=number, compute_node_id=number, deleted=deleted))
        for number, (host, deleted) in enumerate((("GPU2", 0), ("gpu2", 12), ("gpu3", 0)), start=11)
    )
    view = dataclasses.replace(view, elsewhere={"vm": others})
    (verdict,) = rules.judge(view, neighbourhood.clock(data))
    return verdict, view


def test_the_devices_of_both_hosts_of_the_migration_are_recorded() -> None:
    """Not those of another migration's hosts, nor soft-deleted rows, which Nova does not free."""
    verdict, _view = judged(MOVED)
    assert verdict.migrations == (1,)
    assert [(device.host, device.id) for device in verdict.held] == [("gpu1", 1), ("GPU2", 11)]


def test_a_repair_without_a_migration_records_none() -> None:
    verdict, view = judged("rows: [{status: allocated, owner: vm}]\nowners: {vm: }")
    assert verdict.repair == "free"
    assert migration_ends.held_devices(verdict, view) == ()


@pytest.mark.parametrize(
    ("change", "objection"),
    [
        ({}, []),
        ({"deleted": 1}, ["has no row"]),
        ({"status": "available", "instance_uuid": None}, ["is available"]),
        ({"instance_uuid": "other"}, ["belongs to instance other"]),
        ({"request_id": "r9"}, ["has request_id r9 (not None)"]),
    ],
    ids=str,
)
def test_a_changed_row_is_an_objection(change: dict[str, Any], objection: list[str]) -> None:
    verdict, view = judged(MOVED)
    row = view.rows[0]._replace(**change)
    found = migration_ends.objections(verdict.held[:1], {row.id: row})
    assert list(found) == [f"{HERE} on gpu1, which the migration held, {text} by now" for text in objection]


def test_an_archived_row_is_an_objection() -> None:
    verdict, _view = judged(MOVED)
    assert len(list(migration_ends.objections(verdict.held, {}))) == len(verdict.held)
