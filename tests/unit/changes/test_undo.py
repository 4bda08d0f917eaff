"""The plan of an undo."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import JournalError
from gpustack.changes import journal
from gpustack.changes.change import ChangeResult, CloudChange
from gpustack.changes.undo import plan_undo, without_gone
from support.change_store import SetValue
from support.journals import CHANGES, edited, written

KINDS: dict[str, type[CloudChange]] = {"value": SetValue}
ALL_DONE = [(made, ChangeResult.DONE) for made in CHANGES]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_an_undo_reverses_what_was_made_last_first() -> None:
    record = journal.read(written(*ALL_DONE[:1], begun=(CHANGES[1],)))
    changes, final = plan_undo(record, KINDS)
    assert [(c.name, c.id, c.seen, c.wanted, c.needs) for c in changes] == [
        ("b", "", {"x": 2}, {"x": 1}, ()),
        ("a", "id-a", 1, None, ("value:b",)),
    ]
    assert final == ()
    assert record.head.id in changes[0].why


def test_a_change_that_gpustack_does_not_make_is_not_undone() -> None:
    path = written(*ALL_DONE)
    line = json.loads(path.read_text().splitlines()[0])
    entry = {**line["changes"][0], "name": "forbidden"}
    with pytest.raises(JournalError, match="forbidden: gpustack never writes this value; nothing was changed"):
        plan_undo(journal.read(edited(path, 0, changes=[entry, *line["changes"][1:]])), KINDS)
    with pytest.raises(JournalError, match="unknown kind of change 'value'"):
        plan_undo(journal.read(path), {})


@pytest.mark.parametrize("damaged", [{"seen": "1"}, {"wanted": "1"}, {"seen": [1]}])
def test_a_value_that_gpustack_never_writes_is_refused(damaged: dict[str, Any]) -> None:
    class OfInteger(SetValue):
        value = int | None

    path = written(*ALL_DONE[:1])
    changes = [CHANGES[0].to_record()]
    made, _ = plan_undo(journal.read(edited(path, 0, changes=changes)), {"value": OfInteger})
    assert [(change.seen, change.wanted, change.recorded) for change in made] == [(1, None, True)]
    with pytest.raises(JournalError, match="a: gpustack writes no such value: "):
        plan_undo(journal.read(edited(path, 0, changes=[{**changes[0], **damaged}])), {"value": OfInteger})


def test_a_change_that_may_be_half_made_accepts_parts_of_both_values() -> None:
    record = journal.read(written(*ALL_DONE[:1], begun=(CHANGES[1],)))
    changes, _ = plan_undo(record, KINDS)
    assert [(change.name, change.partial) for change in changes] == [("b", True), ("a", False)]


def test_what_needed_a_change_of_a_gone_project_waits_for_what_that_needed() -> None:
    class OfProject(SetValue):
        def remaining(self, cloud: Any) -> CloudChange | None:
            return None if self.name in cloud else self

    names = {"a": (), "b": ("value:a",), "c": ("value:b",), "d": ("value:c", "value:a")}
    changes = [OfProject(why="w", name=name, seen=None, wanted=1, needs=needs) for name, needs in names.items()]
    gone_cloud: Any = {"b", "c"}
    kept, gone = without_gone(changes, gone_cloud)
    assert [(change.name, change.needs) for change in kept] == [("a", ()), ("d", ("value:a",))]
    assert [change.name for change in gone] == ["b", "c"]
    later = [replace(change, needs=(), after=change.needs) for change in changes]
    assert [change.after for change in without_gone(later, gone_cloud)[0]] == [(), ("value:a",)]
