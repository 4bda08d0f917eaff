"""Saved plans: written privately, read strictly, and only with changes that gpustack makes."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import JournalError
from gpustack.base.files import write_atomic
from gpustack.changes.journal import Cloud, PlannedChange
from gpustack.changes.saved import SavedPlan, is_saved_plan, load
from support.change_store import SetValue, change

KINDS = {"value": SetValue}
CHANGES = [change("a", None, 1), change("b", 1, 2, "a")]


def saved(path: Path, **edited: Any) -> Path:
    plan = SavedPlan(
        cloud=Cloud(auth_url="https://keystone"),
        spec="gpustack.yaml",
        spec_sha256="0",
        changes=[PlannedChange.model_validate(entry.to_record()) for entry in CHANGES],
    )
    write_atomic(path, plan.model_dump_json() + "\n", mode=0o600)
    if edited:
        path.write_text(json.dumps({**json.loads(path.read_text()), **edited}))
    return path


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = saved(tmp_path / "plan")
    assert is_saved_plan(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    plan, changes = load(path, KINDS)
    assert (plan.cloud.auth_url, [entry.to_record() for entry in changes]) == (
        "https://keystone",
        [entry.to_record() for entry in CHANGES],
    )


@pytest.mark.parametrize("text", ["version: 1\n", "{}", "", '{"version": 1}'])
def test_a_spec_is_no_plan(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spec"
    path.write_text(text)
    assert not is_saved_plan(path)


LINE = CHANGES[0].to_record()


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ({"gpustack_plan": 2}, "not a plan of this version"),
        ({"more": 1}, "not a plan of this version"),
        ({"changes": [{**LINE, "kind": "password"}]}, "unknown kind of change 'password'"),
        ({"changes": [{**LINE, "name": "forbidden"}]}, "gpustack never writes this value; nothing was changed"),
        ({"changes": [LINE, LINE]}, "two changes have one key"),
    ],
)
def test_an_edited_plan_is_refused(tmp_path: Path, edited: dict[str, Any], problem: str) -> None:
    with pytest.raises(JournalError, match=problem):
        load(saved(tmp_path / "plan", **edited), KINDS)


def test_a_plan_that_others_can_write_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "plan")
    path.chmod(0o666)
    with pytest.raises(JournalError, match="others can write this file"):
        load(path, KINDS)
