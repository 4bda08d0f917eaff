"""Runs on hosts in the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.base.files import digest
from gpustack.changes import journal
from gpustack.changes.change import ChangeResult
from gpustack.changes.host_run import recorded
from gpustack.connect.playbooks.record import HostRecord, RunOutcome


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (RunOutcome.DONE, ChangeResult.DONE),
        (RunOutcome.NOTHING, ChangeResult.UNCHANGED),
        (RunOutcome.NOT_BEGUN, ChangeResult.NOT_BEGUN),
        (RunOutcome.UNREACHABLE, ChangeResult.FAILED),
        (RunOutcome.FAILED, ChangeResult.FAILED),
    ],
)
def test_only_a_host_that_is_done_counts_as_done(
    outcome: RunOutcome, result: ChangeResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with recorded("host apply", None, ["gpu01"]) as note:
        note(HostRecord(host="gpu01", outcome=outcome))
    ((_, record),) = journal.records()
    assert isinstance(record, journal.RunRecord)
    assert set(record.results.values()) == {result}


def test_a_run_that_breaks_off_is_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spec = tmp_path / "gpustack.yaml"
    spec.write_text("version: 1\n", encoding="utf-8")

    def run() -> None:
        with recorded("host apply", spec, ["gpu01", "gpu02"]) as note:
            note(HostRecord(host="gpu01", outcome=RunOutcome.FAILED, problem="no space left"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    ((_, record),) = journal.records()
    assert isinstance(record, journal.RunRecord)
    assert (record.head.command, record.head.spec, record.head.spec_sha256) == ("host apply", str(spec), digest(spec))
    assert {change.name: record.results[change.key] for change in record.head.changes} == {
        "gpu01": ChangeResult.FAILED,
        "gpu02": ChangeResult.UNKNOWN,
    }
    assert [end.detail for end in record.ends.values()] == ["no space left"]
    assert (record.closed, record.state) == (False, "unfinished")


def test_a_run_that_ends_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with recorded("host undo", None, ["gpu01"]) as note:
        note(HostRecord(host="gpu01", outcome=RunOutcome.DONE))
    ((_, record),) = journal.records()
    assert isinstance(record, journal.RunRecord)
    assert (record.state, record.head.spec, record.head.spec_sha256) == ("done", "", "")
