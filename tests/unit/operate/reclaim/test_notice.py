"""The notice of an instance: its texts, and until when it counts."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gpustack.cloud.servers import Event
from gpustack.operate.reclaim.notice import Notice, counts, notice_of

DUE = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - naive UTC, as in the fleet
TEXT = "2026-11-22T12:00:00Z"


@pytest.mark.parametrize(
    ("metadata", "notice"),
    [
        ({}, None),
        ({"gpustack:expires": TEXT}, None),
        ({"gpustack:reclaim_at": TEXT}, Notice(due=DUE, text=TEXT, after="")),
        ({"gpustack:reclaim_at": TEXT, "gpustack:reclaim_after": "req-1"}, Notice(due=DUE, text=TEXT, after="req-1")),
        ({"gpustack:reclaim_after": "req-1"}, Notice(due=None, text="", after="req-1")),
        ({"gpustack:reclaim_at": "noon"}, Notice(due=None, text="noon", after="")),
    ],
)
def test_a_notice_is_read_from_the_metadata(metadata: dict[str, str], notice: Notice | None) -> None:
    assert notice_of(metadata) == notice


@pytest.mark.parametrize(
    ("actions", "stopped", "running"),
    [
        (("stop", "create"), True, True),
        (("lock", "stop", "create"), False, True),
        (("reboot", "start", "stop", "create"), False, True),
        (("unshelve", "shelve", "stop", "create"), False, False),
        (("start", "unshelve", "stop"), False, False),
        (("shelve", "stop"), False, False),
        (("shelveOffload", "stop"), False, False),
        (("stop", "unshelve"), True, True),  # it was written after the unshelve
        (("start", "create"), False, False),  # so many requests since that its own is not listed
        ((), False, False),
    ],
)
def test_later_requests_end_a_notice(actions: tuple[str, ...], stopped: bool, running: bool) -> None:
    notice = Notice(due=DUE, text=TEXT, after="req-stop")
    events = [Event(what=what, request=f"req-{what}") for what in actions]
    assert [counts(notice, events, DUE, stopped=state) for state in (True, False)] == [stopped, running]


@pytest.mark.parametrize(("since", "valid"), [(DUE, True), (DUE + timedelta(seconds=1), False)])
def test_a_notice_that_is_over_before_the_instance_is_idle_does_not_count(since: datetime, valid: bool) -> None:
    actions = [Event(what="stop", request="req-1")]
    assert counts(Notice(due=DUE, text=TEXT, after="req-1"), actions, since, stopped=True) is valid
    assert counts(Notice(due=None, text="noon", after="req-1"), actions, since, stopped=True)
