"""Whole runs against a model of Nova: killed at every request, and taken up again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.cloud.placement import Room
from gpustack.cloud.servers import Server
from gpustack.prepare.drain.model import InstanceChoices, Policy
from gpustack.prepare.drain.plan import ServicePlan
from gpustack.prepare.drain.run import Runner, Target
from gpustack.prepare.drain.steps import LiveMigrate
from support.compute_model import Killed, Nova

STOPPED, MOVED, AFTER = "gpustack_stopped_for", "gpustack_moved_from", "gpustack_after"
POLICIES = [Policy.STOP, Policy.COLD_MIGRATE, Policy.LIVE_MIGRATE]


def nova(*guests: Server, **more) -> Nova:
    service = Service(id="s1", host="gpu1", enabled=True, up=True, **more)
    return Nova(service=service, guests={guest.id: guest for guest in guests})


def guest(name: str, **more) -> Server:
    return Server(**{"id": name, "name": name, "host": "gpu1", "status": "ACTIVE", **more})


def two() -> Nova:
    """A guest that runs, one with a device, and one that its owner stopped."""
    return nova(guest("a"), guest("b", demands=("k4200",)), guest("c", status="SHUTOFF", power=4))


def choices(policy: Policy) -> InstanceChoices:
    return InstanceChoices(guests=policy, device_guests=policy, live_migratable=frozenset({"k4200"}))


def runner(api: Nova, seconds: float = 100) -> Runner:
    now = iter(range(10**6))
    return Runner(
        api=api, target=Target(host="gpu1"), seconds=seconds, sleep=lambda s: None, clock=lambda: float(next(now))
    )


def emptied(api: Nova, policy: Policy, seconds: float = 100) -> ServicePlan:
    """Both phases before the reboot."""
    maintenance = runner(api, seconds)
    plan = maintenance.disable(choices(policy), "why")
    if plan.refused:
        return plan
    return runner(api, seconds).empty(choices(policy), "why", disabled=bool(maintenance.done))


def whole(api: Nova, policy: Policy) -> None:
    assert not emptied(api, policy).refused
    remaining = [guest for guest in api.guests.values() if guest.host == "gpu1"]
    assert all(guest.status == "SHUTOFF" and not guest.task for guest in remaining), "rebooted under a guest"
    assert not any(guest.status == "VERIFY_RESIZE" for guest in api.guests.values()), "rebooted before the confirmation"
    assert not api.service.enabled
    assert not runner(api).resume().refused


def as_it_should_be(api: Nova, policy: Policy) -> None:
    moved = policy is not Policy.STOP
    for name in "ab":
        guest = api.guests[name]
        assert (guest.status, guest.host, guest.task) == ("ACTIVE", "gpu2" if moved else "gpu1", "")
    assert api.guests["c"].status == "SHUTOFF"
    assert [instance.metadata for instance in api.guests.values()] == [{}, {}, {}]
    assert (api.service.enabled, api.service.reason) == (True, "")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("carried_out", [False, True])
def test_killed_at_every_request_and_taken_up_again(policy: Policy, carried_out: bool) -> None:
    api = two()
    whole(api, policy)
    as_it_should_be(api, policy)
    writes, total = api.writes, api.requests
    assert len(writes) >= 10
    for number in range(total):
        api = two()
        api.dies_at, api.carried_out = number, carried_out
        with pytest.raises(Killed):
            whole(api, policy)
        api.forget_requests()
        before = list(api.writes)
        pending = runner(api).pending()
        assert api.writes == before
        if not api.service.enabled:
            assert pending.todo, "a run that finds nothing to reboot must take it up, too"
        whole(api, policy)
        as_it_should_be(api, policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_after_a_killed_run_the_rest_is_enough_once_the_host_is_verified(policy: Policy) -> None:
    """As when the reboot was done by hand: nothing but what was left is done."""
    api = two()
    emptied(api, policy)
    total = api.requests
    for number in range(total):
        api = two()
        api.dies_at = number
        with pytest.raises(Killed):
            emptied(api, policy)
        api.forget_requests()
        before = [guest for guest in api.guests.values() if not guest.task and guest.status == "ACTIVE"]
        assert not runner(api).resume().refused
        assert api.service.enabled
        assert api.guests["a"].status == api.guests["b"].status == "ACTIVE"
        assert [guest.metadata for guest in api.guests.values()] == [{}, {}, {}]
        assert all(api.guests[guest.id].host == guest.host for guest in before)


def test_refused_before_anything_is_written() -> None:
    api = two()
    plan = emptied(api, Policy.REFUSE)
    assert [finding.code for finding in plan.findings] == ["GPU605", "GPU606"]
    assert api.writes == []


def test_a_guest_that_comes_at_the_last_moment_is_refused_and_the_service_enabled_again() -> None:
    api = nova()
    maintenance = runner(api)
    maintenance.disable(InstanceChoices(), "why")
    api.guests["late"] = guest("late")
    plan = runner(api).empty(InstanceChoices(), "why", disabled=bool(maintenance.done))
    assert [finding.code for finding in plan.findings] == ["GPU605"]
    assert api.writes == ["disable", "enable"]


def test_what_a_person_disabled_is_not_enabled_by_a_refusal() -> None:
    api = nova(guest("a"))
    api.service = replace(api.service, enabled=False, reason="bad memory")
    plan = runner(api).empty(InstanceChoices(), "why", disabled=False)
    assert plan.refused
    assert api.writes == []


def test_no_room_elsewhere() -> None:
    api = two()
    api.no_room = True
    plan = emptied(api, Policy.COLD_MIGRATE)
    assert {finding.code for finding in plan.findings} == {"GPU611"}
    assert "No valid host was found." in plan.findings[0].message
    assert not api.service.enabled, "what was begun is taken up by the next run"
    assert not emptied(api, Policy.STOP).refused
    runner(api).resume()
    as_it_should_be(api, Policy.STOP)


@pytest.mark.parametrize("policy", [Policy.COLD_MIGRATE, Policy.LIVE_MIGRATE])
def test_guests_with_devices_are_moved_one_after_another(policy: Policy) -> None:
    def three() -> Nova:
        return nova(guest("plain"), *(guest(name, demands=("k4200",)) for name in "abc"))

    api = three()
    emptied(api, policy)
    for number in range(api.requests):
        api = three()
        api.dies_at, api.carried_out, api.slow = number, True, 2
        with pytest.raises(Killed):
            emptied(api, policy)
        api.forget_requests()
        assert not emptied(api, policy).refused
        assert {(guest.status, guest.host) for guest in api.guests.values()} == {("ACTIVE", "gpu2")}


def test_what_has_no_room_is_known_before_the_first_guest_moves() -> None:
    api = nova(guest("a"), guest("b"), guest("c", status="SHUTOFF", power=4))
    api.demand, api.placement = {"MEMORY_MB": 512}, Room(free={"p2": {"MEMORY_MB": 1023}})
    plan = emptied(api, Policy.LIVE_MIGRATE)
    assert [(finding.code, finding.place) for finding in plan.findings] == [("GPU619", "gpu1 2 guests")]
    assert api.writes == ["disable", "enable"]
    api.writes.clear()
    assert not emptied(api, Policy.STOP).refused
    assert not runner(api).resume().refused
    api.placement = Room(free={"p2": {"MEMORY_MB": 1024}})
    assert not emptied(api, Policy.LIVE_MIGRATE).refused


def test_one_that_finds_no_room_does_not_leave_another_half_moved() -> None:
    api = nova(*(guest(name) for name in "abc"))
    api.capacity, api.slow = 1, 6
    plan = emptied(api, Policy.COLD_MIGRATE)
    assert [(finding.code, finding.place.split()[1]) for finding in plan.findings] == [("GPU611", "b"), ("GPU611", "c")]
    assert [(guest.status, guest.host) for guest in api.guests.values()] == [
        ("ACTIVE", "gpu2"),
        ("ACTIVE", "gpu1"),
        ("ACTIVE", "gpu1"),
    ]


def test_a_neutron_that_stops_answering_does_not_make_devices_plain() -> None:
    api = nova(guest("a"))
    api.neutron = Ports(kinds={"a": ("direct",)})
    maintenance = runner(api)
    policy = InstanceChoices(guests=Policy.LIVE_MIGRATE)
    assert [finding.code for finding in maintenance.look(policy, "why").findings] == ["GPU606"]
    api.neutron = Ports(unknown="no answer")
    assert [finding.code for finding in maintenance.look(policy, "why").findings] == ["GPU606"]
    assert [finding.code for finding in runner(api).look(policy, "why").findings] == ["GPU618"]


def test_a_cell_that_does_not_answer() -> None:
    api = two()
    api.service = replace(api.service, id="", enabled=False, up=False)
    for plan in (emptied(api, Policy.STOP), runner(api).pending(), runner(api).resume()):
        assert [finding.code for finding in plan.findings] == ["GPU604"]
    assert api.writes == []


def test_time_is_up() -> None:
    api = two()
    api.slow = 10**6
    plan = emptied(api, Policy.STOP, seconds=10)
    assert {finding.code for finding in plan.findings} == {"GPU614"}
    assert "after 10 s" in plan.findings[0].message


def test_each_wait_is_logged_once() -> None:
    """nova-compute that the host does not start would otherwise be half an hour without a line."""
    api = nova()
    runner(api).disable(InstanceChoices(), "why")
    api.service = replace(api.service, up=False)
    lines: list[str] = []
    maintenance = runner(api, seconds=10)
    maintenance.log = lines.append
    plan = maintenance.resume()
    assert [finding.code for finding in plan.findings] == ["GPU614"]
    assert lines == ["gpu1: wait: nova-compute of gpu1 to report"]


def test_a_person_who_started_and_stopped_a_guest_meanwhile_is_right() -> None:
    api = two()
    emptied(api, Policy.STOP)
    api.do("a", "start", "alice")
    for _ in range(3):
        api.services()
    api.do("a", "stop", "alice")
    for _ in range(3):
        api.services()
    plan = runner(api).resume()
    assert [finding.code for finding in plan.findings] == ["GPU616"]
    assert api.guests["a"].status == "SHUTOFF"
    assert api.guests["b"].status == "ACTIVE"
    assert [guest.metadata for guest in api.guests.values()] == [{}, {}, {}]


def test_marks_are_written_before_what_they_are_for() -> None:
    api = two()
    emptied(api, Policy.STOP)
    assert api.writes == ["disable", "mark a", "stop a", "mark b", "stop b"]
    assert api.guests["a"].metadata == {STOPPED: "gpu1", AFTER: "r-create"}
    api = two()
    emptied(api, Policy.COLD_MIGRATE)
    assert api.writes[:3] == ["disable", "mark a", "cold_migrate a"]
    assert api.guests["a"].metadata == {MOVED: "gpu1", AFTER: "r-create"}


def test_a_run_that_has_failed_says_why_the_host_is_out_of_service_and_what_is_left() -> None:
    api = two()
    emptied(api, Policy.STOP)
    remaining = runner(api).failed("gpu1 did not stay up\nwith its new arguments" + 300 * ".")
    assert [step.describe() for step in remaining.steps][-1:] == ["enable nova-compute of gpu1"]
    assert remaining.waits == ()
    assert api.service.reason.startswith("gpustack: maintenance (since ")
    assert ": failed: gpu1 did not stay up with its new arguments" in api.service.reason
    assert len(api.service.reason) <= 255
    assert not runner(api).resume().refused
    as_it_should_be(api, Policy.STOP)
    for enabled, reason in ((True, ""), (False, "bad memory")):
        api = two()
        api.service = replace(api.service, enabled=enabled, reason=reason)
        assert not runner(api).failed("why").todo
        assert (api.service.enabled, api.service.reason) == (enabled, reason)


OLD, NEW = "8.0.5", "8.1.0"


@pytest.mark.parametrize(
    ("libvirt", "qemu", "text"),
    [
        ("8.6.0", {"gpu1": NEW, "gpu2": OLD, "gpu3": NEW}, "unknown: libvirt of the other hosts"),
        (None, {"gpu1": "10.0.0", "gpu2": NEW}, "unknown: libvirt of gpu1, libvirt of the other hosts"),
        (None, {}, "unknown: libvirt of gpu1, qemu of gpu1, libvirt of the other hosts"),
        (
            "8.5.0",
            {"gpu1": NEW, "gpu2": NEW},
            "GPU609: this instance has VGPU: libvirt 8.5.0 of gpu1 is older than 8.6.0",
        ),
        ("9.0.0", {"gpu1": OLD, "gpu2": NEW}, "GPU609: this instance has VGPU: qemu 8.0.5 of gpu1 is older than 8.1.0"),
        ("9.0.0", {"gpu1": NEW, "gpu2": OLD}, "GPU609: this instance has VGPU: no other host has qemu 8.1.0"),
    ],
)
def test_vgpus_migrate_live_between_hosts_that_can_do_it(libvirt: str | None, qemu: dict[str, str], text: str) -> None:
    api = nova(guest("a", demands=("VGPU",)), guest("b", demands=("k4200",)))
    api.qemu = qemu
    named = replace(choices(Policy.LIVE_MIGRATE), live_migratable=frozenset({"k4200", "VGPU"}))
    run = Runner(api=api, target=Target(host="gpu1", libvirt=libvirt), seconds=1)
    plan = run.look(named, "why")
    whys = [step.why for step in plan.steps if isinstance(step, LiveMigrate)]
    if text.startswith("GPU609"):
        assert [f"{finding.code}: {finding.message}" for finding in plan.findings] == [text]
        assert whys == ["it has k4200"], "the instance without vGPUs"
        assert not run.look(choices(Policy.COLD_MIGRATE), "why").refused
    else:
        assert (plan.refused, whys[1]) == (False, "it has k4200")
        assert whys[0] == f"it has VGPU; needs libvirt 8.6.0 and qemu 8.1.0 on both hosts; {text}"
