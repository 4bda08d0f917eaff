"""The candidates: which instances are looked at, with what; and which hosts accept them again after shelving."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, cast

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud.compute import Service
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.servers import Server
from gpustack.nova_options.aggregates import Aggregate
from gpustack.operate.reclaim.idle import AHEAD
from gpustack.operate.reclaim.model import Rules
from gpustack.operate.reclaim.read import Reader, _Hosts, check_clock, has_no_rule, may_be_idle, no_return
from gpustack.spec.patterns import HostPattern, Patterns
from support.fleet_answers import device, server
from support.fleet_cloud import StandIn, instance, servers, with_devices

RULES = Rules(aliases=frozenset({"k4200"}), hosts={"k4200": Patterns([HostPattern.parse("gpu[1:3]")])})
SERVICES = ("gpu1", "gpu2")
GPU_HOST, A100 = "CUSTOM_GPU_HOST", "CUSTOM_A100"


def aggregate(*hosts: str, projects: str = "", **traits: str) -> Aggregate:
    """An aggregate that requires traits, and accepts some projects."""
    metadata = {f"trait:{name}": value for name, value in traits.items()}
    if projects:
        metadata["filter_tenant_id"] = projects
    return Aggregate(name="gpu", hosts=frozenset(hosts), metadata=metadata)


ISOLATED = aggregate("gpu1", "GPU2", CUSTOM_GPU_HOST="required")


@pytest.mark.parametrize(
    ("aggregates", "traits", "problem"),
    [
        ([], set(), ""),
        ([ISOLATED], set(), "gpu1 requires CUSTOM_GPU_HOST, which its flavor lacked at boot; gpu2 requires"),
        ([ISOLATED], {GPU_HOST}, ""),
        ([ISOLATED], {A100}, "gpu1 requires CUSTOM_GPU_HOST"),
        ([aggregate("gpu1", CUSTOM_GPU_HOST="required")], set(), ""),  # gpu2 is open
        ([aggregate("gpu1", "gpu2", CUSTOM_GPU_HOST="forbidden")], set(), ""),  # Nova reads no other value
        ([ISOLATED, aggregate("gpu2", CUSTOM_A100="required")], {A100}, "gpu2 requires CUSTOM_GPU_HOST, which"),
        ([aggregate("gpu1", "gpu2", projects="p2,p3")], set(), "gpu1 accepts other projects only; gpu2 accepts"),
        ([aggregate("gpu1", "gpu2", projects="p2"), aggregate("gpu2", projects="p1")], set(), ""),
        ([ISOLATED, aggregate("gpu1", "gpu2", projects="p2")], {GPU_HOST}, "accepts other projects only"),
    ],
)
def test_every_host_with_the_gpus_is_compared(
    aggregates: list[Aggregate], traits: tuple[str, ...], problem: str
) -> None:
    text = no_return(server("vm", "gpu1", traits=frozenset(traits)), SERVICES, aggregates)
    assert (problem in text) if problem else not text


def test_an_ordinary_host_is_no_place_for_a_gpu_instance() -> None:
    hosts = _Hosts(names=frozenset({"gpu2", "gpu1", "cpu1", "gpu4"}), up=frozenset(), aggregates=())
    assert hosts.having(RULES, server("vm", "gpu1")) == ["gpu1", "gpu2"]
    assert no_return(server("vm", "gpu1"), SERVICES, [ISOLATED])
    assert not no_return(server("vm", "gpu1"), (*SERVICES, "gpu3"), [ISOLATED])


def test_hosts_that_the_spec_names_otherwise_leave_its_own_host() -> None:
    text = no_return(server("vm", "node7"), [], [aggregate("node7", projects="p2")])
    assert text == "node7 accepts other projects only"


@pytest.mark.parametrize(("number", "end"), [(5, "gpu5 accepts"), (6, "1 more host too"), (8, "3 more hosts")])
def test_many_hosts_are_counted(number: int, end: str) -> None:
    hosts = [f"gpu{one}" for one in range(1, number + 1)]
    text = no_return(server("vm", "gpu1"), hosts, [aggregate(*hosts, projects="p2")])
    assert text.rpartition("; ")[2].startswith(end)


LOOKED = replace(RULES, idle_after={"SHUTOFF": timedelta(hours=1)}, expires={"spec": datetime(2026, 11, 22)})  # noqa: DTZ001
BY_METADATA = replace(LOOKED, metadata=True)
NOTICE = {"gpustack:reclaim_after": "req-1"}
EXPIRES = {"gpustack:expires": "soon"}


@pytest.mark.parametrize(
    ("instance", "rules", "looked_at", "listed"),
    [
        (server("vm", "gpu1", status="SHUTOFF"), LOOKED, True, False),
        (server("vm", "gpu1", status="SHELVED"), LOOKED, True, False),  # on its host, with its GPUs
        (server("vm", "", status="SHELVED_OFFLOADED"), LOOKED, False, False),
        (server("vm", "gpu1", status="SHUTOFF", count=0), LOOKED, False, False),
        (replace(server("vm", "gpu1", status="SHUTOFF"), devices={"fpga": 1}), LOOKED, False, False),
        (server("vm", "gpu1"), LOOKED, False, False),
        (server("spec", "gpu1"), LOOKED, True, False),
        (server("vm", "gpu1", metadata=EXPIRES), LOOKED, False, False),
        (server("vm", "gpu1", metadata=EXPIRES), BY_METADATA, True, False),
        (server("vm", "gpu1", metadata=NOTICE), LOOKED, True, False),
        (server("vm", "gpu1", status="PAUSED"), LOOKED, False, True),
        (server("vm", "gpu1", status="PAUSED", task="unpausing"), LOOKED, False, False),
        (server("vm", "gpu1", status="PAUSED", metadata=NOTICE), LOOKED, True, False),
        (server("vm", "gpu1", status="ERROR"), replace(LOOKED, idle_after={"ERROR": timedelta()}), False, True),
        (server("vm", "gpu1", status="RESCUE"), LOOKED, False, True),
        (server("vm", "gpu1", status="SHUTOFF"), RULES, False, True),
        (server("vm", "gpu1", status="SHELVED"), RULES, False, True),
        (server("vm", "", status="ERROR"), LOOKED, False, False),
        (server("vm", "gpu1", status="ERROR", count=0), LOOKED, False, False),
        (server("vm", "gpu1", status="VERIFY_RESIZE"), LOOKED, False, False),
    ],
)
def test_only_instances_with_a_reason_are_looked_at(
    instance: Server, rules: Rules, looked_at: bool, listed: bool
) -> None:
    assert (may_be_idle(instance, rules), has_no_rule(instance, rules)) == (looked_at, listed)


@pytest.mark.parametrize(
    ("ahead", "refused"),
    [(timedelta(), False), (AHEAD, False), (-AHEAD, False), (AHEAD + timedelta(seconds=1), True)],
)
def test_a_clock_may_differ_by_some_minutes(ahead: timedelta, refused: bool) -> None:
    now = datetime(2026, 11, 22, 12, tzinfo=UTC)
    cloud = StandIn(answers={"compute /servers?limit=1": (200, {})})
    check_clock(cloud.connection, now)  # a web server without a time
    cloud.headers["Date"] = format_datetime(now + ahead, usegmt=True)
    if not refused:
        check_clock(cloud.connection, now)
        return
    with pytest.raises(CloudError, match="is 2026-11-22T12:05:01Z, and the clock of this machine is 2026-11-22T12:00"):
        check_clock(cloud.connection, now)
    with pytest.raises(CloudError, match="and the clock of this machine is"):
        Reader(cloud.connection, cast("ServiceCloud", Services()), LOOKED).candidates()


class Services:
    """The services and the user of :class:`ServiceCloud`; novaclient has no stand-in of its own."""

    def __init__(self, *up: str) -> None:
        self.up = up

    def services(self) -> tuple[Service, ...]:
        return tuple(Service(id=host, host=host, enabled=True, up=host in self.up) for host in SERVICES)

    def user(self) -> str:
        return "operator"


ALL = "compute /servers/detail?all_tenants=1"
STOPPED = {"status": "SHUTOFF", "tenant_id": "p1", "user_id": "u1"}


def reading(*entries: dict[str, Any], up: tuple[str, ...] = SERVICES, used: int = 1) -> tuple[StandIn, Reader]:
    """A cloud with these instances, of which ``vm1`` has so many GPUs of gpu1; and what reads it."""
    devices = [device("gpu1", bus, used=int(bus < 0x81 + used)) for bus in (0x81, 0x82)]
    cloud = with_devices(devices, {"vm1": {entry.uuid: 1 for entry in devices[:used]}})
    cloud.answers[ALL] = servers(*entries)
    cloud.answers["compute /servers?limit=1"] = (200, {})
    for entry in entries:
        cloud.answers[f"compute /servers/{entry['id']}"] = (200, {"server": entry})
    action = {"action": "stop", "request_id": "req-1", "start_time": "2026-11-22T12:00:00.0", "user_id": "operator"}
    cloud.answers["compute /servers/vm1/os-instance-actions"] = (200, {"instanceActions": [action]})
    return cloud, Reader(cloud.connection, cast("ServiceCloud", Services(*up)), LOOKED)


def test_candidates_have_everything_that_decides_about_them() -> None:
    marked = instance("vm1", metadata={"gpustack_stopped_for": "gpu1"}, **STOPPED)
    paused = instance("vm2", status="PAUSED")
    cloud, reader = reading(marked, paused, instance("vm3"))
    known = reader.candidates()
    (entry,) = known.entries
    assert (entry.server.id, [server.id for server in known.held]) == ("vm1", ["vm2"])
    assert (known.projects, known.users, known.gaps) == ({"p1": "research"}, {"u1": "ada"}, ())
    assert [(action.what, action.request) for action in entry.actions] == [("stop", "req-1")]
    assert [mark.host for mark in entry.marks] == ["gpu1"]
    assert (entry.surplus, entry.unknown, entry.no_return, entry.migration, entry.host_up) == ((), "", "", "", True)
    assert reader.again("vm1") == entry
    assert reader.again("vm9") is None
    assert not [line for line in cloud.requests if "vm2" in line or "vm3" in line]


@pytest.mark.parametrize(("status", "text"), [("migrating", "live-migration: migrating"), ("completed", "")])
def test_an_unfinished_migration_is_work(status: str, text: str) -> None:
    cloud, reader = reading(instance("vm1", **STOPPED))
    move = {"id": 1, "uuid": "m1", "instance_uuid": "vm1", "status": status, "migration_type": "live-migration"}
    cloud.answers["compute /os-migrations"] = (200, {"migrations": [move]})
    assert reader.candidates().entries[0].migration == text


def test_hosts_of_a_candidate() -> None:
    cloud, reader = reading(instance("vm1", **STOPPED), up=("gpu2",))
    isolated = {"name": "gpu", "hosts": ["gpu1"], "metadata": {"trait:CUSTOM_GPU_HOST": "required"}}
    cloud.answers["compute /os-aggregates"] = (200, {"aggregates": [isolated]})
    (entry,) = reader.candidates().entries
    assert (entry.host_up, entry.no_return) == (False, "")
    isolated["hosts"] = ["gpu1", "gpu2"]
    assert reader.again("vm1") is not None
    assert "gpu2 requires CUSTOM_GPU_HOST" in reader.again("vm1").no_return  # type: ignore[union-attr]


def test_allocations_that_differ_or_are_unknown() -> None:
    _, reader = reading(instance("vm1", **STOPPED), used=2)
    assert {found.code.value for found in reader.candidates().entries[0].surplus} == {"GPU701"}
    cloud, reader = reading(instance("vm1", **STOPPED))
    cloud.answers["placement /allocations/vm1"] = (503, {"error": {"message": "down"}})
    (entry,) = reader.candidates().entries
    assert ("down" in entry.unknown, entry.surplus) == (True, ())
    cloud, reader = reading(instance("vm1", **STOPPED))
    cloud.answers["placement /resource_providers"] = (503, {"error": {"message": "silent"}})
    (entry,) = reader.candidates().entries
    assert ("silent" in entry.unknown, entry.surplus) == (True, ())
    assert not [line for line in cloud.requests if "/allocations/vm1" in line]
    cloud.answers["placement /resource_providers"] = (200, {"resource_providers": []})  # no PCI in Placement
    (entry,) = Reader(cloud.connection, cast("ServiceCloud", Services()), LOOKED).candidates().entries
    assert (entry.unknown, entry.surplus) == ("", ())


def test_a_partial_listing_is_named() -> None:
    cloud, reader = reading()
    cloud.answers[ALL] = (403, {"forbidden": {"message": "no"}})
    cloud.answers["compute /servers/detail?&"] = servers(instance("vm1", **STOPPED))
    known = reader.candidates()
    assert ([entry.server.id for entry in known.entries], len(known.gaps)) == (["vm1"], 1)
