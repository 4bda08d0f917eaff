"""A compute node with its rows: whether its nova-compute runs, and which rows a healthy node would not have."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpustack.novadb.clock import Clock, HostState
from gpustack.novadb.model import ComputeNode, Instance, Migration, PciRow, Request, Service
from gpustack.novadb.view import NodeView, Owner

NOW = datetime.fromisoformat("2026-01-01T12:00:00")  # naive, as in the database


def service(age: float, *, every: float | None = 10, number: int = 1) -> Service:
    """A service that reported so many seconds ago, and reports at this interval."""
    at = NOW - timedelta(seconds=age)
    begun, count = (None, None) if every is None else (at - timedelta(seconds=1000 * every), 1000)
    return Service(
        host="gpu1",
        disabled=False,
        forced_down=False,
        last_seen_up=at,
        updated_at=at,
        created_at=begun,
        report_count=count,
        id=number,
    )


def row(number: int, status: str = "available", **values: Any) -> PciRow:
    fields = dict.fromkeys(PciRow._fields)
    own = {"id": number, "compute_node_id": 1, "address": f"0000:0{number}:00.0", "status": status, "deleted": 0}
    return PciRow(**{**fields, **own, **values})


def view(*rows: PciRow, of: Service | None = None, owners: tuple[Owner, ...] = (), **node: Any) -> NodeView:
    named = {"id": 1, "uuid": "n1", "host": "gpu1", "hypervisor_hostname": "gpu1", "deleted": 0, "updated_at": None}
    return NodeView(
        cell="cell1",
        node=ComputeNode(**{**named, **node}),
        service=of,
        rows=rows,
        owners={owner.uuid: owner for owner in owners},
    )


def owner(
    uuid: str, host: str | None = "gpu1", *, deleted: int = 0, wanted: tuple[int, ...] = (), **more: Any
) -> Owner:
    requests = tuple(Request(request_id=f"r{n}", count=n, alias_name="a") for n in wanted)
    if host is None:
        return Owner(uuid=uuid, requests=requests or None, **more)
    at = Instance(uuid, host, host, "active", None, deleted, False, uuid, "cell1")
    return Owner(uuid=uuid, instance=at, requests=requests or None, **more)


@pytest.mark.parametrize(
    ("of", "clock", "reports"),
    [
        (None, {}, False),
        (replace(service(0), last_seen_up=None, created_at=None), {}, False),
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
    assert view(of=of).reports(Clock(now=NOW, **clock)) is reports


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
    assert view(of=of, **node).host_state(clock) is state


def test_odd_rows_are_those_that_a_healthy_node_has_not() -> None:
    healthy = [row(1), row(2, "allocated", instance_uuid="vm"), row(3, "claimed", instance_uuid="vm")]
    odd = [
        row(4, "allocated"),
        row(5, "available", instance_uuid="vm"),
        row(6, "unavailable"),
        row(7, "allocated", instance_uuid="vm", deleted=7),
        row(8, "removed", instance_uuid="vm"),
    ]
    of = view(*healthy, *odd)
    assert list(of.odd) == odd
    assert [each.id for each in of.taken] == [2, 3, 4]
    assert {uuid: [each.id for each in rows] for uuid, rows in of.held.items()} == {"vm": [2, 3]}
    assert "0000:07:00.0" not in of.by_address
    assert of.by_address["0000:06:00.0"] is odd[2]


def test_taken_rows_of_instances_that_are_placed_elsewhere() -> None:
    rows = [row(n, "allocated", instance_uuid=f"vm{n}") for n in range(1, 5)] + [row(5, "allocated")]
    of = view(*rows, owners=(owner("vm1"), owner("vm2", "gpu2"), owner("vm3", None), owner("vm4", deleted=3)))
    assert [(each.id, who.uuid) for each, who in of.displaced] == [(2, "vm2"), (3, "vm3"), (4, "vm4")]


def test_virtual_functions_by_their_physical_function() -> None:
    parts = [row(n, parent_addr="0000:01:00.0", dev_type="type-VF") for n in (2, 3)]
    of = view(row(1, dev_type="type-PF"), *parts, row(4, parent_addr="0000:01:00.0", deleted=4))
    assert of.children == {"0000:01:00.0": tuple(parts)}


def test_an_owner_is_alive_where_it_is_placed() -> None:
    node = view().node
    assert (owner("vm").alive, owner("vm").on(node)) == (True, True)
    assert (owner("vm", "gpu2").alive, owner("vm", "gpu2").on(node)) == (True, False)
    assert (owner("vm", deleted=1).alive, owner("vm", deleted=1).on(node)) == (False, False)
    assert (owner("vm", None).alive, owner("vm", None).on(node)) == (False, False)
    assert owner("vm", wanted=(1, 2)).wanted == 3
    assert owner("vm").wanted == 0
    ends = {"source_compute": "a", "source_node": "a", "dest_compute": "b", "dest_node": "b", "status": "error"}
    rest = {"instance_uuid": "vm", "migration_type": None, "cross_cell_move": False, "updated_at": None}
    here, there = (Migration(id=number, **ends, **rest) for number in (1, 2))  # type: ignore[arg-type]
    assert owner("vm", migrations=(here,), migrations_elsewhere=(there,)).moves == (here, there)
