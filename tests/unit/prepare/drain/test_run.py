"""Whole runs against a model of Nova, killed at every request; the service of a host, and room for its guests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpustack.cloud.closed import MAINTENANCE, Reasons, parse
from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.cloud.placement import Room
from gpustack.cloud.servers import Server
from gpustack.prepare.drain.drain import reason
from gpustack.prepare.drain.model import InstanceChoices, Policy
from gpustack.prepare.drain.plan import ServicePlan, show
from gpustack.prepare.drain.run import Runner, Target, find_service, lacking
from gpustack.prepare.drain.steps import LiveMigrate
from gpustack.prepare.plugin_api import service_target
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


def test_nova_does_not_know_the_host() -> None:
    api = nova()
    api.service = replace(api.service, host="gpu3")
    for plan in (emptied(api, Policy.STOP), runner(api).pending(), runner(api).resume(), runner(api).failed("why")):
        assert (plan.todo, plan.findings) == (False, ())
        assert plan.notes == ("Nova has no nova-compute of this host",)
        assert show(plan).startswith(f"gpu1: {plan.title}: nothing to do")
    assert api.writes == []


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
    for enabled, why in ((True, ""), (False, "bad memory")):
        api = two()
        api.service = replace(api.service, enabled=enabled, reason=why)
        assert not runner(api).failed("why").todo
        assert (api.service.enabled, api.service.reason) == (enabled, why)


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


SMALL, BIG = {"MEMORY_MB": 100, "VCPU": 1}, {"MEMORY_MB": 900, "VCPU": 1}


def free(*memory: int, vcpus: int = 8, whole: bool = True) -> Room:
    return Room(free={f"p{n}": {"MEMORY_MB": amount, "VCPU": vcpus} for n, amount in enumerate(memory)}, whole=whole)


@pytest.mark.parametrize(
    ("needs", "rooms", "expected"),
    [
        ([], [], []),
        ([SMALL], [free(100)], []),
        ([SMALL, BIG], [free(100), Room()], ["gpu1 b (b): 900 MEMORY_MB, 1 VCPU needed, and no other open host"]),
        (
            [BIG, BIG],
            [free(1000, 799)] * 2,
            ["gpu1 2 guests: 1800 MEMORY_MB needed, and all others that"],
        ),
        # It may not fit, but that is for the scheduler to say.
        ([BIG, BIG], [free(1000, 800)] * 2, []),
        ([BIG, BIG], [free(1000, 0, whole=False)] * 2, []),
        ([{**SMALL, "DISK_GB": 9}] * 2, [Room(free={"p": SMALL, "q": SMALL, "pool": {"DISK_GB": 9}})] * 2, []),
        ([SMALL, BIG], [free(100), Room(free={"other": {"MEMORY_MB": 900, "VCPU": 8}})], []),
        (
            [SMALL, SMALL],
            [free(1000, vcpus=1)] * 2,
            ["gpu1 2 guests: 2 VCPU needed, and all others that are open"],
        ),
    ],
)
def test_room(needs: list[dict[str, int]], rooms: list[Room], expected: list[str]) -> None:
    moves = [LiveMigrate(server=name, name=name, why="") for name in "abc"]
    findings = lacking("gpu1", list(zip(moves, needs, rooms, strict=False)))
    assert {finding.code for finding in findings} <= {"GPU619"}
    assert len(findings) == len(expected)
    for finding, text in zip(findings, expected, strict=True):
        assert f"{finding.place}: {finding.message}".startswith(text)


NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def services(*hosts: str) -> list[Service]:
    return [Service(id=str(number), host=host, enabled=True, up=True) for number, host in enumerate(hosts)]


@pytest.mark.parametrize(
    ("host", "own_name", "configured", "registered", "expected"),
    [
        ("gpu1", "gpu1", "", ["gpu1", "gpu10"], "gpu1"),
        ("gpu1", "gpu1.example.org", "", ["gpu1.example.org"], "gpu1.example.org"),
        ("GPU1", None, "", ["gpu1"], "gpu1"),
        ("alias", "gpu1", "", ["gpu1"], "GPU621"),
        ("10.0.0.1", "gpu1", "", ["gpu1"], "GPU621"),
        ("10.0.0.1", "10.0.0.2", "", ["10.0.0.2"], "GPU621"),
        ("10.0.0.1", None, "", ["10.0.0.2"], None),
        ("gpu9", "gpu1", "", ["gpu1"], "GPU621"),
        ("gpu1", "gpu1", "", ["gpu2"], None),
        ("gpu1", "gpu1", "", [], None),
        ("gpu1", "gpu1", "", ["gpu1.rack2.example.org"], "GPU603"),
        ("gpu1.example.org", "gpu1.example.org", "", ["gpu1"], "GPU603"),
        ("gpu1", "gpu1.example.org", "", ["gpu1", "gpu1.example.org"], "GPU603"),
        ("gpu1", "gpu2", "", ["gpu1", "gpu2"], "GPU603"),
        ("gpu1", "gpu1", "gpu1.rack2.example.org", ["gpu1", "gpu1.rack2.example.org"], "gpu1.rack2.example.org"),
        ("gpu1", "gpu1", "gpu9", ["gpu1"], "GPU602"),
        ("gpu1", "gpu1", "gpu1", ["gpu1", "gpu1"], "GPU602"),
    ],
)
def test_a_service_is_found_by_its_name_or_not_at_all(
    host: str, own_name: str | None, configured: str, registered: list[str], expected: str | None
) -> None:
    service, findings = find_service(Target(host=host, own_name=own_name, wanted=configured), services(*registered))
    if expected is not None and expected.startswith("GPU"):
        assert (service, [finding.code for finding in findings]) == (None, [expected])
    else:
        assert (service.host if service else None, findings) == (expected, ())


@pytest.mark.parametrize(
    ("host", "own_name", "configured", "registered", "other_hosts", "code"),
    [
        ("gpu9", "gpu1", "", ["gpu1", "gpu2"], ["gpu1", "gpu2"], "GPU621"),
        ("gpu1.rack1", "gpu1.rack2", "", ["gpu1.rack2"], ["gpu1.rack2"], "GPU620"),
        ("gpu1", "gpu1.rack2", "", ["gpu1.rack2"], ["gpu1.rack2"], "GPU620"),
        ("gpu1.rack1", "gpu1", "", ["gpu1"], ["gpu1.rack2"], "GPU620"),
        ("gpu1", "gpu1", "", ["gpu1"], ["GPU1"], "GPU620"),
        ("gpu9", "gpu9", "gpu1", ["gpu1", "gpu9"], ["gpu1"], "GPU620"),
    ],
)
def test_a_host_that_lies_about_its_name_gets_no_other_hosts_service(
    host: str, own_name: str, configured: str, registered: list[str], other_hosts: list[str], code: str
) -> None:
    target = Target(host=host, own_name=own_name, wanted=configured, others=tuple(other_hosts))
    service, (finding,) = find_service(target, services(*registered))
    assert (service, finding.code) == (None, code)


def test_a_name_that_is_no_text_is_no_name() -> None:
    assert service_target("gpu1", {"hostname": ["gpu2"]}, "").own_name is None


def test_the_reason_fits_and_is_known_again() -> None:
    text = Reasons().plus(MAINTENANCE, reason("the running kernel was started without intel_iommu=on; " * 9, NOW))
    stored = text.to_text()
    assert stored.startswith("gpustack: maintenance (since 2026-11-21T09:00:00Z: the running kernel")
    assert len(stored) <= 255
    assert MAINTENANCE in parse(stored).own
