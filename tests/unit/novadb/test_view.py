"""A compute node with its rows: whether its nova-compute runs, and which rows a healthy node would not have."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpustack.novadb.model import Service
from gpustack.novadb.view import CURRENT, Clock, HostState, NodeView
from support.neighbourhood import NOW, view

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


def service(age: float | None, *, every: float | None = 10) -> Service:
    """A service that reported so many seconds ago, and reports at this interval."""
    made = view({"service": {"seen": age, "interval": every}}).service
    assert made is not None
    return replace(made, id=1)


def with_service(of: Service | None, **node: Any) -> NodeView:
    """A node with this service, or none."""
    bare = view({})
    return replace(bare, service=of, node=replace(bare.node, **node))


@pytest.mark.parametrize(
    ("of", "clock", "reports"),
    [
        (None, {}, False),
        (service(None), {}, False),
        (service(20), {}, True),  # twice its interval
        (service(20.1), {}, False),
        (service(40, every=20), {}, True),
        (service(40.1, every=20), {}, False),
        (service(18, every=1), {}, True),  # an interval below 10 seconds counts as 10
        (service(60, every=None), {}, True),  # unknown: service_down_time
        (service(60.1, every=None), {}, False),
        (service(60, every=50), {}, True),  # at most service_down_time
        (service(60.1, every=50), {}, False),
        (service(-20), {}, True),
        (service(-20.1), {}, False),
        (service(3600), {"heard": NOW - timedelta(seconds=3590)}, True),  # the database's clock is wrong
        (service(3600), {"heard": NOW - timedelta(seconds=3589.9)}, False),
    ],
)
def test_nova_compute_reports(of: Service | None, clock: dict[str, Any], reports: bool) -> None:
    assert with_service(of).reports(Clock(now=NOW, **clock)) is reports


@pytest.mark.parametrize(
    ("of", "node", "stopped", "state"),
    [
        (service(5), {}, False, HostState.UP),
        (service(600), {}, False, HostState.DOWN),
        (service(600), {}, True, HostState.STOPPED),
        (service(30), {}, True, HostState.STOPPED),  # up for Nova, but it has missed two reports
        (service(5), {}, True, HostState.UP),  # it still reports
        (service(600), {"deleted": 1}, True, HostState.GONE),
        (None, {}, False, HostState.UNKNOWN),
        (None, {}, True, HostState.STOPPED),
        (service(600), {"service_id": 1}, True, HostState.STOPPED),
        (service(600), {"service_id": 2}, True, HostState.UNKNOWN),  # another service has this name
        (service(600), {"service_id": 2}, False, HostState.UNKNOWN),
    ],
)
def test_the_state_of_a_host(of: Service | None, node: dict[str, Any], stopped: bool, state: HostState) -> None:
    clock = Clock(now=NOW, stopped=frozenset({"gpu1"} if stopped else ()))
    assert with_service(of, **node).host_state(clock) is state


def test_odd_rows_are_those_that_a_healthy_node_has_not() -> None:
    taken = {"status": "allocated", "owner": "vm"}
    healthy = [{"status": "available"}, taken, {**taken, "status": "claimed"}]
    odd = [
        {"status": "allocated"},
        {"status": "available", "owner": "vm"},
        {"status": "unavailable"},
        {**taken, "deleted": True},
        {**taken, "status": "removed"},
    ]
    of = view({"rows": [*healthy, *odd]})
    assert [row.id for row in of.odd] == [4, 5, 6, 7, 8]
    assert [row.id for row in of.taken] == [2, 3, 4]
    assert {uuid: [row.id for row in rows] for uuid, rows in of.held.items()} == {"vm": [2, 3]}
    assert {row.id for row in of.by_address.values()} == {1, 2, 3, 4, 5, 6, 8}


def test_taken_rows_of_instances_that_are_placed_elsewhere() -> None:
    owners = {"here": {"host": "gpu1"}, "moved": {}, "gone": {"absent": True}, "dead": {"host": "gpu1", "deleted": 60}}
    rows = [{"status": "allocated", "owner": uuid} for uuid in owners]
    of = view({"rows": [*rows, {"status": "allocated"}], "owners": owners})
    assert [(row.id, owner.uuid) for row, owner in of.displaced] == [(2, "moved"), (3, "gone"), (4, "dead")]


def test_virtual_functions_by_their_physical_function() -> None:
    part = {"status": "available", "type": "type-VF", "parent": "0000:81:00.0"}
    of = view({"rows": [{"status": "available", "type": "type-PF"}, part, part, {**part, "deleted": True}]})
    assert {address: [row.id for row in rows] for address, rows in of.children.items()} == {"0000:81:00.0": [2, 3]}


@pytest.mark.parametrize(
    ("entry", "alive", "here"),
    [
        ({"host": "gpu1"}, True, True),
        ({"host": "gpu2"}, True, False),
        ({"host": "gpu1", "deleted": 60}, False, False),
        ({"absent": True}, False, False),
    ],
)
def test_an_owner_is_alive_where_it_is_placed(entry: dict[str, Any], alive: bool, here: bool) -> None:
    of = view({"owners": {"vm": entry}})
    assert (of.owners["vm"].alive, of.owners["vm"].on(of.node)) == (alive, here)


def test_an_owner_with_its_requests_and_migrations() -> None:
    of = view({"owners": {"vm": {"wants": ["r1", "r2"], "moves": [{"status": "error"}]}, "none": {"wants": None}}})
    owner = of.owners["vm"]
    (here,) = owner.migrations
    there = replace(here, id=7)
    assert replace(owner, migrations_elsewhere=(there,)).moves == (here, there)
    assert (owner.wanted, of.owners["none"].wanted) == (2, 0)
