"""Since when an instance counts as idle: its newest actions, and when it expires."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gpustack.cloud.servers import Event
from gpustack.operate.reclaim.idle import AHEAD, Idle, idle, length, stopped_since
from gpustack.operate.reclaim.model import Candidate, Rules
from support.fleet_answers import server

NOW = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - naive UTC, as in the fleet
DAY = timedelta(days=1)
RULES = Rules(
    aliases=frozenset({"k4200"}),
    idle_after={"SHUTOFF": DAY, "PAUSED": 2 * DAY, "SUSPENDED": 3 * DAY},
    metadata=True,
    expires={"spec": NOW - DAY, "later": NOW + DAY, "now": NOW},
)
PAST, FUTURE = "2026-11-22T11:59:59Z", "2026-11-22T12:00:01Z"


def action(what: str, before: timedelta = DAY, *, failed: bool = False) -> Event:
    return Event(at=NOW - before, server="vm", what=what, failed=failed)


def judged(
    status: str, *actions: Event, uuid: str = "vm", rules: Rules = RULES, expires: str = ""
) -> tuple[Idle | None, list[str]]:
    """Why an instance is idle, and the messages about it."""
    instance = server(uuid, "gpu1", status=status, metadata={"gpustack:expires": expires} if expires else {})
    found, findings = idle(Candidate(server=instance, actions=actions), rules, NOW)
    return found, [f"{entry.code.value} {entry.message}" for entry in findings]


@pytest.mark.parametrize(
    ("status", "actions", "since"),
    [
        ("SHUTOFF", (action("stop"),), DAY),
        ("SHUTOFF", (action("stop", DAY - timedelta(seconds=1)),), None),
        ("PAUSED", (action("pause", 2 * DAY),), 2 * DAY),
        ("PAUSED", (action("pause"),), None),
        ("SUSPENDED", (action("suspend", 3 * DAY),), 3 * DAY),
        ("SHELVED", (action("shelve"),), DAY),  # on its host, with its GPUs
        ("SHELVED", (action("shelve", timedelta()),), None),
        ("ACTIVE", (action("stop"),), None),
        ("SHUTOFF", (action("stop", -AHEAD),), None),
        # Other requests leave it stopped.
        ("SHUTOFF", (action("lock", timedelta()), action("detach_volume", timedelta()), action("stop")), DAY),
    ],
)
def test_a_stop_counts_from_its_newest_action(status: str, actions: tuple[Event, ...], since: timedelta | None) -> None:
    days = f"{since.days} d" if since else ""
    expected = Idle(since=NOW - since, reason=f"{status} for {days}", stopped=True) if since else None
    assert judged(status, *actions) == (expected, [])


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ((), "Nova has no action of it"),
        ((action("unlock"),), "Nova has no action of it"),
        ((action("start"), action("stop")), "its last action is `start`"),
        ((action("stop", failed=True), action("stop")), "its last action is `stop` (failed)"),
        ((Event(at=None, server="vm", what="stop"),), "its last action is `stop`"),
        ((action("stop", -AHEAD - timedelta(seconds=1)),), "its action `stop` is in the future: 2026-11-22T12:05:01Z"),
    ],
)
def test_a_stop_without_a_sure_time_is_reported(actions: tuple[Event, ...], text: str) -> None:
    found, (message,) = judged("SHUTOFF", *actions)
    assert (found, message.startswith("GPU797 "), message.endswith(text)) == (None, True, True)
    since, problem = stopped_since("SHUTOFF", actions)
    assert (since is None or since > NOW, problem) == (True, "" if since else text)


@pytest.mark.parametrize(
    ("uuid", "expires", "since"),
    [
        ("spec", "", "2026-11-21T12:00:00Z"),
        ("now", "", "2026-11-22T12:00:00Z"),
        ("later", "", None),
        ("later", PAST, None),  # the spec decides
        ("spec", FUTURE, "2026-11-21T12:00:00Z"),
        ("vm", PAST, PAST),
        ("vm", FUTURE, None),
        ("vm", "2026-11-22T12:00:00+00:00", "2026-11-22T12:00:00Z"),
        ("vm", "", None),
    ],
)
def test_an_instance_expires_at_a_time(uuid: str, expires: str, since: str | None) -> None:
    found, messages = judged("ACTIVE", uuid=uuid, expires=expires)
    assert messages == []
    if found is None:
        assert since is None
        return
    source = "gpustack:expires" if uuid == "vm" else "the spec"
    assert (f"{found.since:%FT%TZ}", found.reason, found.stopped) == (since, f"expired ({source})", False)


def test_an_expired_instance_needs_no_record_of_its_stop() -> None:
    found, messages = judged("SHUTOFF", action("start"), uuid="spec")
    assert (found is not None and not found.stopped, messages) == (True, [])
    none, (unreadable, unknown) = judged("SHUTOFF", expires="soon")
    assert (none, unreadable[:6], unknown[:6]) == (None, "GPU796", "GPU797")
    found, messages = judged("SHUTOFF", action("stop"), rules=replace(RULES, metadata=False), expires=PAST)
    assert (found is not None and found.stopped, messages) == (True, [])


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (timedelta(seconds=59), "0 min"),
        (timedelta(minutes=59), "59 min"),
        (timedelta(minutes=119), "1 h"),
        (timedelta(hours=23, minutes=59), "23 h"),
        (timedelta(hours=24, minutes=59), "1 d"),
        (timedelta(days=3, hours=5), "3 d 5 h"),
    ],
)
def test_lengths_of_time_have_one_or_two_units(time: timedelta, text: str) -> None:
    assert length(time) == text
