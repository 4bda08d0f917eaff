"""Runs of changes: order, checks, records, silence, signals."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.base.errors import JournalError, SpecError
from gpustack.changes import lock
from gpustack.changes.change import ChangeOutcome, ChangeResult, CloudChange, reversed_order
from gpustack.changes.journal import RunHead
from gpustack.changes.run import recorded_run, run, without_a_write
from gpustack.changes.signals import stopping
from gpustack.cloud.session import Refused, Unanswered
from support.change_store import SetValue, Store, change


class Recorder:
    """A journal in memory; ``full`` is the number of lines after which its disk is full."""

    def __init__(self, full: int = 1_000_000) -> None:
        self.lines: list[tuple[str, str]] = []
        self.full = full

    def begin(self, change: CloudChange) -> None:
        self._add("begin", change.name)

    def end(self, outcome: ChangeOutcome) -> None:
        self._add(str(outcome.result), outcome.change.name)

    def _add(self, *line: str) -> None:
        if len(self.lines) >= self.full:
            raise JournalError("No space left on device")
        self.lines.append(line)  # type: ignore[arg-type]


def results(changes: list[Any], store: Store, recorder: Recorder | None = None, jobs: int = 1) -> list[str]:
    outcomes = run(changes, {"value": store}, recorder or Recorder(), jobs=jobs)
    assert [outcome.change for outcome in outcomes] == changes
    return [str(outcome.result) for outcome in outcomes]


def test_changes_run_in_the_order_of_their_needs() -> None:
    store = Store()
    assert (
        results([change("c", None, 3, "b"), change("b", None, 2, "a"), change("a", None, 1)], store, jobs=3)
        == ["done"] * 3
    )
    assert (store.log, store.values) == (["a", "b", "c"], {"a": 1, "b": 2, "c": 3})


def test_each_object_is_checked_before_its_change() -> None:
    store = Store(values={"same": 2, "other": 9})
    changes = [change("same", 1, 2), change("other", 1, 2), change("after", None, 1, "other")]
    recorder = Recorder()
    assert results(changes, store, recorder) == ["unchanged", "skipped", "not begun"]
    assert store.log == []
    assert ("begin", "other") not in recorder.lines


def test_what_a_change_ends_with_before_it_writes() -> None:
    store = Store(values={"same": 2, "other": 9, "fit": 1})
    ends = [without_a_write(change(name, 1, 2), store) for name in ("same", "other", "fit")]
    assert [end and str(end.result) for end in ends] == ["unchanged", "skipped", None]
    assert store.log == []


def test_a_skipped_change_names_both_values() -> None:
    store = Store(values={"limit": {"a": 1, "b": 5}})
    (outcome,) = run([change("limit", {"a": 1, "b": 2}, {"a": 3, "b": 2})], {"value": store}, Recorder())
    assert outcome.detail == "changed since the plan: b = 5 (was 2)"


def test_a_change_that_was_interrupted_accepts_parts_of_both_values() -> None:
    seen, between, wanted = {"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}
    whole = change("limit", seen, wanted)
    assert results([whole], Store(values={"limit": between})) == ["skipped"]
    assert results([replace(whole, partial=True)], Store(values={"limit": between})) == ["done"]
    assert results([replace(whole, partial=True)], Store(values={"limit": {"a": 5, "b": 1}})) == ["skipped"]


def test_an_undo_leaves_an_object_that_is_not_of_gpustack() -> None:
    class Foreign(SetValue):
        def foreign(self, api: Store) -> str:
            return "it lacks the mark of gpustack"

    planned = Foreign(why="test", name="a", seen=None, wanted=1)
    assert results([planned], Store()) == ["done"]
    (outcome,) = run([replace(planned, recorded=True)], {"value": Store()}, Recorder())
    assert (outcome.result, outcome.detail) == (ChangeResult.SKIPPED, "it lacks the mark of gpustack")


def test_a_skipped_change_says_how_its_object_differs() -> None:
    (outcome,) = run([change("a", 1, 2)], {"value": Store()}, Recorder())
    assert outcome.detail == "it does not exist any more"
    (outcome,) = run([change("a", None, {"x": 1})], {"value": Store(values={"a": {"x": 2}})}, Recorder())
    assert outcome.detail == "changed since the plan: x = 2"


@pytest.mark.parametrize("lost", [BrokenPipeError(), OSError(5, "Input/output error")])
def test_a_run_whose_output_nobody_reads_ends_as_after_a_signal(lost: OSError) -> None:
    """Of a pipe whose reader ended, and of a terminal that is gone."""

    def tell(outcome: object) -> None:
        raise lost

    recorder, store = Recorder(), Store()
    outcomes = run([change(name, None, 1) for name in "abc"], {"value": store}, recorder, tell=tell)
    assert [str(outcome.result) for outcome in outcomes] == ["done", "not begun", "not begun"]
    assert [line for line in recorder.lines if line[0] != "begin"] == [
        ("done", "a"),
        ("not begun", "b"),
        ("not begun", "c"),
    ]


def test_a_refusal_stops_only_what_needs_it() -> None:
    store = Store(refuse={"a"})
    changes = [change("a", None, 1), change("b", None, 1, "a"), change("c", None, 1)]
    recorder, seen = Recorder(), list[str]()
    outcomes = run(changes, {"value": store}, recorder, tell=lambda outcome: seen.append(outcome.change.name))
    assert [str(outcome.result) for outcome in outcomes] == ["failed", "not begun", "done"]
    assert outcomes[1].detail == "needs a (failed)"
    assert sorted(seen) == ["a", "b", "c"]
    assert {("failed", "a"), ("not begun", "b"), ("begin", "c"), ("done", "c")} <= set(recorder.lines)


def test_a_change_begins_after_others_ended_with_any_result() -> None:
    store = Store(refuse={"a"})
    changes = [replace(change("b", None, 1), after=("value:a",)), change("a", None, 1)]
    assert results(changes, store) == ["done", "failed"]
    assert store.log == ["a", "b"]


def test_a_preview_writes_nothing_and_ends_as_the_run() -> None:
    changes = [
        change("a", None, 1),
        change("b", 2, 3),
        change("c", None, 1, "b"),
        replace(change("a", 1, None, "a"), tag="value:a again"),  # its object is still to be created
    ]
    store = Store({"b": 4})
    apis = {"value": store}
    preview = [(o.change.key, o.result, o.detail) for o in run(changes, apis, None)]
    assert (store.log, store.values) == ([], {"b": 4})
    assert [str(result) for _, result, _ in preview] == ["done", "skipped", "not begun", "done"]
    assert preview[2][2] == "needs b (skipped)"
    assert preview == [(o.change.key, o.result, o.detail) for o in run(changes, apis, Recorder())]


@pytest.mark.parametrize(("seen", "result"), [(None, "skipped"), (1, "failed")])
def test_an_object_created_since_the_plan_is_not_of_the_run(seen: int | None, result: str) -> None:
    """An undo of `cloud apply PLAN`, run a second time, deleted the flavors of the first run."""

    class Conflict(Store):
        def write(self, name: str, value: Any) -> None:
            raise Refused("can't create a: HTTP 409, exists", status=409)

    (outcome,) = run([change("a", seen, 2)], {"value": Conflict(values={"a": seen})}, Recorder())
    assert (str(outcome.result), outcome.detail) == (result, "can't create a: HTTP 409, exists")


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (Refused("can't read: HTTP 403", status=403, remedy="ask"), "can't read: HTTP 403; ask"),
        (SpecError("no such model", where="s.yaml", remedy="ask"), "s.yaml: no such model\n  → ask"),
    ],
)
def test_an_object_that_cannot_be_read_fails_alone(error: Exception, detail: str) -> None:
    class Unread(Store):
        def read(self, name: str) -> Any:
            if name == "a":
                raise error
            return super().read(name)

    first, second = run([change("a", None, 1), change("b", None, 1)], {"value": Unread()}, Recorder())
    assert (first.result, first.detail) == (ChangeResult.FAILED, detail)
    assert second.result is ChangeResult.DONE


def test_a_refused_sign_in_stops_the_run() -> None:
    """Keystone locks a user out after a few attempts with a wrong password."""

    class Expired(Store):
        def read(self, name: str) -> Any:
            self.log.append(name)
            raise Refused("can't read, because the sign-in failed: expired", status=401)

    store = Expired()
    assert results([change("a", None, 1), change("b", None, 1)], store) == ["failed", "not begun"]
    assert store.log == ["a"]


def test_an_object_whose_reading_gets_no_answer_stops_the_run() -> None:
    first, second = run([change("a", None, 1), change("b", None, 1)], {"value": Store(mute=True)}, Recorder())
    assert (first.result, second.result) == (ChangeResult.FAILED, ChangeResult.NOT_BEGUN)
    assert second.detail == "can't read: no answer"


@pytest.mark.parametrize(
    ("left", "detail"), [(1, "can't write: no answer"), (7, "partly done: can't write: no answer")]
)
def test_a_change_that_was_made_in_part_says_so(left: int, detail: str) -> None:
    class Half(Store):
        def write(self, name: str, value: Any) -> None:
            self.values[name] = {"x": left}
            raise Unanswered("can't write: no answer")

    (outcome,) = run([change("a", {"x": 1}, {"x": 2})], {"value": Half(values={"a": {"x": 1}})}, Recorder())
    assert (outcome.result, outcome.detail) == (ChangeResult.FAILED, detail)


def test_a_result_that_is_not_recorded_ends_the_run_and_is_named() -> None:
    first, second = run([change("a", None, 1), change("b", None, 1)], {"value": Store()}, Recorder(full=1))
    assert first.result is ChangeResult.DONE
    assert str(first.lost) == "No space left on device"
    assert (second.result, second.detail) == (ChangeResult.NOT_BEGUN, "No space left on device")


@pytest.mark.parametrize(("carried_out", "result"), [(True, "done"), (False, "failed")])
def test_after_silence_the_object_is_read_and_nothing_else_begins(carried_out: bool, result: str) -> None:
    store = Store(silent={"a": carried_out})
    assert results([change("a", None, 1), change("b", None, 1)], store) == [result, "not begun"]
    assert "b" not in store.log


def test_an_object_that_cannot_be_read_after_silence_is_unknown() -> None:
    class Mute(Store):
        def write(self, name: str, value: Any) -> None:
            self.mute = True
            super().write(name, value)

    assert results([change("a", None, 1), change("b", None, 1)], Mute(silent={"a": True})) == ["unknown", "not begun"]


def test_a_full_disk_stops_the_run_before_the_write() -> None:
    store, recorder = Store(), Recorder(full=0)
    assert results([change("a", None, 1), change("b", None, 1)], store, recorder) == ["failed", "not begun"]
    assert store.values == {}


def test_changes_that_need_one_another_are_an_error() -> None:
    with pytest.raises(ValueError, match="need one another"):
        results([change("a", None, 1, "b"), change("b", None, 1, "a")], Store())


def test_a_signal_lets_the_change_in_progress_end() -> None:
    class Interrupting(Store):
        def write(self, name: str, value: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            super().write(name, value)

    stop, store = threading.Event(), Interrupting()
    changes = [change("a", None, 1), change("b", None, 1)]
    with stopping(stop) as arrived:
        outcomes = run(changes, {"value": store}, Recorder(), stop=stop)
    assert [str(outcome.result) for outcome in outcomes] == ["done", "not begun"]
    assert arrived == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_while_the_lock_is_released_is_reported_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the process before the results were printed, and the lock stayed."""
    released = []

    @contextlib.contextmanager
    def held(*arguments: Any, **options: Any) -> Iterator[None]:
        yield
        os.kill(os.getpid(), signal.SIGTERM)
        released.append(True)

    monkeypatch.setattr(lock, "held", held)
    head = RunHead(id="1Z", command="flavor apply")
    made, clients = [change("a", None, 1)], {"value": Store()}
    ran = recorded_run(None, head, made, warn=pytest.fail, clients=clients, path=tmp_path / "1Z.jsonl")
    assert ([outcome.result for outcome in ran.outcomes], ran.signals) == ([ChangeResult.DONE], [signal.SIGTERM])
    assert released
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


VALUES = st.none() | st.integers(0, 3)


@settings(max_examples=200, deadline=None)
@given(
    before=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)),
    wanted=st.dictionaries(st.sampled_from("abcdef"), VALUES, min_size=1),
    refused=st.sets(st.sampled_from("abcdef"), max_size=2),
    jobs=st.integers(1, 3),
)
def test_undo_restores_the_state_before(
    before: dict[str, int], wanted: dict[str, int | None], refused: set[str], jobs: int
) -> None:
    names = sorted(wanted)
    changes = [change(n, before.get(n), wanted[n], *names[:i][-1:]) for i, n in enumerate(names)]
    store = Store(values=dict(before), refuse=set(refused))
    outcomes = run(changes, {"value": store}, Recorder(), jobs=jobs)
    made = [outcome.change for outcome in outcomes if outcome.result is ChangeResult.DONE]
    store.refuse.clear()
    undone = run(reversed_order(made), {"value": store}, Recorder(), jobs=jobs)
    assert {str(outcome.result) for outcome in undone} <= {"done"}
    assert store.values == before
