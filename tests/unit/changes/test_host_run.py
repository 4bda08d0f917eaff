"""Runs on hosts in the history."""

from __future__ import annotations

from pathlib import Path

import pytest

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
