"""Runs on hosts in the history."""

from __future__ import annotations

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.changes.host_run import result_of
from gpustack.connect.playbooks.record import HostRecord, RunOutcome


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (RunOutcome.DONE, ChangeResult.DONE),
        (RunOutcome.NOTHING, ChangeResult.UNCHANGED),
        (RunOutcome.NOT_BEGUN, ChangeResult.NOT_BEGUN),
        (RunOutcome.UNREACHABLE, ChangeResult.FAILED),
        (RunOutcome.FAILED, ChangeResult.FAILED),
        (None, ChangeResult.FAILED),
    ],
)
def test_only_a_host_that_is_done_counts_as_done(outcome: RunOutcome | None, result: ChangeResult) -> None:
    assert result_of(HostRecord(host="gpu01", outcome=outcome)) is result
