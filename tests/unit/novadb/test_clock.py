"""Which nova-compute runs, and what is recent: the limits of each state."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gpustack.novadb.clock import CURRENT, Clock, HostState
from gpustack.novadb.model import Service

NOW = datetime.fromisoformat("2026-01-01T12:00:00")  # naive, as in the database
LIMIT = timedelta(seconds=60)
TICK = timedelta(microseconds=1)


def reported(age: timedelta | None, *, written: timedelta | None = None, forced_down: bool = False) -> Service:
    """A service whose last report has an age, and whose row was last written so long ago."""
    at = None if age is None else NOW - age
    last = at if written is None else NOW - written
    return Service(host="h", disabled=False, forced_down=forced_down, last_seen_up=at, updated_at=last, created_at=None)


@pytest.mark.parametrize(
    ("service", "state"),
    [
        (None, HostState.GONE),
        (reported(LIMIT), HostState.UP),
        (reported(LIMIT + TICK), HostState.DOWN),
        (reported(LIMIT + TICK, forced_down=True), HostState.FORCED_DOWN),
        (reported(LIMIT, forced_down=True), HostState.UP),
        (reported(-LIMIT), HostState.UP),
        (reported(-LIMIT - TICK), HostState.UNKNOWN),
        (reported(None), HostState.DOWN),
        (reported(timedelta(0), written=LIMIT), HostState.UP),
        (reported(timedelta(0), written=LIMIT + TICK), HostState.UNKNOWN),
    ],
)
def test_the_state_follows_from_the_last_report(service: Service | None, state: HostState) -> None:
    assert Clock(now=NOW).state(service) is state


def test_a_long_service_down_time_shows_no_old_report_as_up() -> None:
    clock = Clock(now=NOW, service_down_time=timedelta(hours=1))
    assert clock.state(reported(CURRENT)) is HostState.UP
    assert clock.state(reported(CURRENT + TICK)) is HostState.UNKNOWN


def test_a_report_is_as_old_as_the_nearer_clock_says() -> None:
    old = reported(timedelta(hours=1))
    assert Clock(now=NOW).state(old) is HostState.DOWN
    assert Clock(now=NOW, heard=NOW - timedelta(hours=1)).state(old) is HostState.UP
    assert Clock(now=NOW, doubt="no current report").state(old) is HostState.UNKNOWN


@pytest.mark.parametrize(
    ("grace", "down_time", "permitted"),
    [
        (timedelta(seconds=300), LIMIT, timedelta(seconds=300)),
        (timedelta(seconds=30), LIMIT, LIMIT),
        (timedelta(seconds=30), timedelta(hours=1), CURRENT),
    ],
)
def test_clocks_may_differ_by_the_grace_time_or_that_of_services(
    grace: timedelta, down_time: timedelta, permitted: timedelta
) -> None:
    clock = Clock(now=NOW, grace=grace, service_down_time=down_time)
    assert not clock.ahead(NOW + permitted)
    assert clock.ahead(NOW + permitted + TICK)
    assert not clock.ahead(None)


def test_recent_is_less_than_the_grace_time_ago() -> None:
    clock = Clock(now=NOW)
    assert clock.recent(NOW - clock.grace + TICK)
    assert not clock.recent(NOW - clock.grace)
    assert not clock.recent(None)
