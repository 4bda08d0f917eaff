"""Runs against a real Nova, without Ansible: policies, and runs that break at a request and are taken up again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.session import Unanswered
from gpustack.prepare.drain.model import InstanceChoices, Policy
from gpustack.prepare.drain.plan import ServicePlan
from gpustack.prepare.drain.run import Runner, Target
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.servers import delete
from support.maintenance_world import HOST, OTHER, World
from support.proxy import Traffic, proxy

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # openstacksdk warns of its own code

WRITES = ("close", "reopen", "mark", "unmark", "act")
EVERY = bool(os.environ.get("GPUSTACK_EVERY_REQUEST"))
"""Break at each request that changes something; without, at every third."""


class CutError(Exception):
    """The connection was cut."""


class Breaking:
    """The real API, of which one request that changes something has no answer."""

    def __init__(self, api: ServiceCloud, number: int, *, carried_out: bool) -> None:
        self._api = api
        self._number = number
        self._carried_out = carried_out
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._api, name)
        return self._write(name, method) if name in WRITES else method

    def _write(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any) -> None:
            self.writes.append(name)
            breaks = len(self.writes) - 1 == self._number
            if not breaks or self._carried_out:
                method(*args)
            if breaks:
                raise CutError

        return write


def runner(api: Any, seconds: float = 60) -> Runner:
    import time

    return Runner(api=api, target=Target(host=HOST), seconds=seconds, sleep=lambda delay: time.sleep(delay / 10))


def emptied(api: Any, policy: Policy, more: Mapping[str, Any] | None = None) -> ServicePlan:
    choices = InstanceChoices(**{"guests": policy, "device_guests": policy, **(more or {})})
    maintenance = runner(api)
    plan = maintenance.disable(choices, "a test")
    return plan if plan.refused else runner(api).empty(choices, "a test", disabled=bool(maintenance.done))


def whole(world: World, api: Any, policy: Policy) -> None:
    assert not emptied(api, policy).refused
    assert not [domain for domain in world.nova.control.domains(HOST) if domain["state"] == "running"]
    assert world.service()[0] == "disabled"
    assert not runner(api).resume().refused


@pytest.mark.parametrize("policy", [Policy.STOP, Policy.COLD_MIGRATE])
def test_a_run_that_breaks_at_a_request_is_taken_up_by_the_next(world: World, policy: Policy) -> None:
    api = ServiceCloud(world.cloud)
    total = 1
    number = 0
    while number < total:
        guests = [world.guest("plain-guest"), world.guest("gpu-guest", "gpu")]
        broken = Breaking(api, number, carried_out=bool(number % 2))
        with pytest.raises(CutError):
            whole(world, broken, policy)
        finishing = Breaking(api, -1, carried_out=True)
        whole(world, finishing, policy)
        for guest in guests:
            assert world.state(guest) == ("ACTIVE", HOST if policy is Policy.STOP else OTHER)
            assert world.marks(guest) == {}
        assert world.service() == ("enabled", None)
        world.clear()
        total = 10 if policy is Policy.STOP else 9
        number += 1 if EVERY else 3


def test_a_guest_in_a_state_of_its_own_is_left_alone(world: World) -> None:
    api = ServiceCloud(world.cloud)
    suspended, off, paused, locked = (world.guest(name) for name in ("suspended", "off", "paused", "locked"))
    world.cloud.compute.suspend_server(suspended.id)
    world.stop(off)
    world.cloud.compute.pause_server(paused.id)
    world.cloud.compute.lock_server(locked.id)
    assert [world.server(guest).status for guest in (suspended, paused)] == ["SUSPENDED", "PAUSED"]
    # The hypervisor's stand-in leaves the domain of a suspended guest in the state "running"; libvirt shuts it off.
    choices = {"not_running": frozenset({suspended.id})}
    plan = emptied(api, Policy.STOP, choices)
    assert sorted((finding.code, finding.place.split()[1]) for finding in plan.findings) == [
        ("GPU607", "locked"),
        ("GPU608", "paused"),
    ]
    assert world.service() == ("enabled", None)
    world.cloud.compute.unlock_server(locked.id)
    assert not emptied(api, Policy.LIVE_MIGRATE, choices).refused
    assert [world.state(guest) for guest in (suspended, off, paused, locked)] == [
        ("SUSPENDED", HOST),
        ("SHUTOFF", HOST),
        ("PAUSED", OTHER),
        ("ACTIVE", OTHER),
    ]
    assert not runner(api).resume().refused
    assert [world.marks(guest) for guest in (paused, locked)] == [{}, {}]
    # The hypervisor's stand-in can't delete them as they are.
    world.cloud.compute.resume_server(suspended.id)
    world.cloud.compute.unpause_server(paused.id)
    assert [world.server(guest).status for guest in (suspended, paused)] == ["ACTIVE", "ACTIVE"]


def test_a_device_that_can_not_migrate_live_is_refused_by_gpustack_and_by_nova(world: World) -> None:
    api = ServiceCloud(world.cloud)
    guest = world.guest("gpu-guest", "gpu")
    assert [finding.code for finding in emptied(api, Policy.LIVE_MIGRATE).findings] == ["GPU609"]
    assert world.service() == ("enabled", None)
    plan = emptied(api, Policy.LIVE_MIGRATE, {"live_migratable": frozenset({"k4200"})})
    assert [finding.code for finding in plan.findings] == ["GPU611"], "Nova knows better"
    assert world.state(guest) == ("ACTIVE", HOST)
    assert world.service()[0] == "disabled"
    assert not runner(api).resume().refused
    assert world.marks(guest) == {}
    assert world.service() == ("enabled", None)


def test_a_device_that_can_migrate_live_does(world: World) -> None:
    api = ServiceCloud(world.cloud)
    guest = world.guest("live-guest", "live")
    assert not emptied(api, Policy.LIVE_MIGRATE, {"live_migratable": frozenset({"h100"})}).refused
    assert world.state(guest) == ("ACTIVE", OTHER)
    assert world.nova.control.hostdevs(guest.id) == {OTHER: ["0000:51:00.0"]}
    assert not runner(api).resume().refused
    assert (world.marks(guest), world.service()) == ({}, ("enabled", None))


def test_vgpus_migrate_as_their_hosts_can(world: World) -> None:
    api = ServiceCloud(world.cloud)
    guest = world.guest("vgpu-guest", "vgpu")
    assert api.qemu_versions() == dict.fromkeys((HOST, OTHER), "8.2.2")
    choices = InstanceChoices(device_guests=Policy.LIVE_MIGRATE, live_migratable=frozenset({"VGPU"}))
    old = Runner(api=api, target=Target(host=HOST, libvirt="8.5.0"), seconds=60).look(choices, "a test")
    assert [finding.code for finding in old.findings] == ["GPU609"]
    assert "libvirt 8.5.0" in old.findings[0].message
    assert not emptied(api, Policy.COLD_MIGRATE).refused
    assert world.state(guest) == ("ACTIVE", OTHER)
    assert not runner(api).resume().refused
    held = world.cloud.placement.get(f"/allocations/{guest.id}").json()["allocations"].values()
    assert [resources["resources"] for resources in held if "VGPU" in resources["resources"]] == [{"VGPU": 1}]
    assert (world.marks(guest), world.service()) == ({}, ("enabled", None))


def test_vgpus_migrate_live(world: World) -> None:
    api = ServiceCloud(world.cloud)
    guest = world.guest("vgpu-guest", "vgpu")
    assert not emptied(api, Policy.LIVE_MIGRATE, {"live_migratable": frozenset({"VGPU"})}).refused
    assert world.state(guest) == ("ACTIVE", OTHER)
    assert not runner(api).resume().refused
    assert (world.marks(guest), world.service()) == ({}, ("enabled", None))


def test_where_there_is_no_room_is_known_before_the_first_guest_moves(world: World) -> None:
    api = ServiceCloud(world.cloud)
    small, big = world.guest("small"), world.guest("big", "more-than-half")
    blocker = world.guest("there", "more-than-half", host=OTHER)
    plan = emptied(api, Policy.LIVE_MIGRATE)
    assert [(finding.code, finding.place.split()[1]) for finding in plan.findings] == [("GPU619", "big")]
    assert "5 VCPU" in plan.findings[0].message
    assert [world.state(guest) for guest in (small, big)] == [("ACTIVE", HOST)] * 2
    assert (world.marks(small), world.service()) == ({}, ("enabled", None))
    delete(world.cloud, blocker)
    assert not emptied(api, Policy.LIVE_MIGRATE).refused
    assert [world.state(guest) for guest in (small, big)] == [("ACTIVE", OTHER)] * 2


def test_metadata_of_a_tenant_breaks_no_request(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The keys are names that python-novaclient uses for itself."""
    monkeypatch.setenv("HOME", str(tmp_path))
    api = ServiceCloud(world.cloud)
    instance = world.guest("odd-metadata", "gpu")
    world.cloud.compute.set_server_metadata(instance.id, _info="x", manager="x", _loaded="x", human_id="x")
    whole(world, api, Policy.STOP)
    assert world.state(instance) == ("ACTIVE", HOST)
    assert world.marks(instance) == {}
    assert not list(tmp_path.iterdir()), "python-novaclient keeps a cache of names below the home directory"


def test_somebodys_own_resize_is_not_confirmed(world: World) -> None:
    api = ServiceCloud(world.cloud)
    guest = world.guest("gpu-guest", "gpu", host=OTHER)
    world.cloud.compute.migrate_server(guest.id)
    assert world.state(guest) == ("VERIFY_RESIZE", HOST)
    plan = emptied(api, Policy.COLD_MIGRATE)
    assert [finding.code for finding in plan.findings] == ["GPU608"]
    world.cloud.compute.confirm_server_resize(guest.id)
    # Its deletion must not meet the confirmation.
    servers.until(world.cloud, guest, lambda server: server.status == "ACTIVE")


def test_a_host_that_is_down_and_one_that_nova_does_not_know(world: World) -> None:
    api = ServiceCloud(world.cloud)
    plan = Runner(api=api, target=Target(host="gpu9"), seconds=1).look(InstanceChoices(), "a test")
    assert (plan.todo, plan.refused) == (False, False)
    plan = Runner(api=api, target=Target(host=f"{HOST}.example.org"), seconds=1).look(InstanceChoices(), "a test")
    assert [finding.code for finding in plan.findings] == ["GPU603"]
    world.guest("plain-guest")
    world.nova.control.kill_compute(HOST)
    try:
        assert [finding.code for finding in emptied(api, Policy.STOP).findings] == ["GPU610"]
    finally:
        world.nova.control.restart_compute(HOST)


def test_a_stop_that_hangs_is_reported_and_goes_on(world: World) -> None:
    api = ServiceCloud(world.cloud)
    guest = world.guest("plain-guest")
    world.nova.control.fail(HOST, "driver.power_off", action="hang")
    choices = InstanceChoices(guests=Policy.STOP)
    plan = runner(api, seconds=3).empty(choices, "a test", disabled=False)
    assert [finding.code for finding in plan.findings] == ["GPU614"]
    assert "powering-off" in plan.findings[0].message
    world.nova.control.clear_faults(HOST)
    whole(world, api, Policy.STOP)
    assert world.state(guest) == ("ACTIVE", HOST)


def test_a_lost_connection_is_reported_and_the_next_run_goes_on(world: World) -> None:
    guest = world.guest("gpu-guest", "gpu")
    traffic = Traffic()
    entry = yaml.safe_load(world.nova.clouds_yaml.read_text())["clouds"]["embedded"]
    with (
        proxy(urlsplit(entry["compute_endpoint_override"]).port, traffic) as port,
        world.nova.connection() as connection,
    ):
        connection.compute.endpoint_override = f"http://127.0.0.1:{port}/v2.1"
        api = ServiceCloud(connection)
        for number, carried_out in ((7, True), (16, True), (17, False), (25, False)):
            traffic.calm()
            traffic.dies_at, traffic.carried_out, traffic.comes_back = number, carried_out, False
            with pytest.raises(Unanswered, match="can't") as caught:
                whole(world, api, Policy.STOP)
            assert "run the command again" in str(caught.value)
        traffic.calm()
        whole(world, api, Policy.STOP)
    assert world.state(guest) == ("ACTIVE", HOST)
    assert world.marks(guest) == {}
    assert world.service() == ("enabled", None)
