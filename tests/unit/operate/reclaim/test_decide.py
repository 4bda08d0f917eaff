"""Each rule and each refusal, and what happens with the same instance without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpustack.base.findings import Code, finding
from gpustack.cloud.marks import marks
from gpustack.cloud.servers import Disks, Event, Server
from gpustack.operate.reclaim.decide import decide, held, judge
from gpustack.operate.reclaim.model import Candidate, Rules, Step
from support.fleet_answers import server

NOW = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - naive UTC, as in the fleet
RULES = Rules(
    aliases=frozenset({"k4200"}),
    projects=frozenset({"p1"}),
    idle_after={"SHUTOFF": timedelta(hours=72), "PAUSED": timedelta(hours=24)},
    grace=timedelta(hours=48),
    metadata=True,
)
VOLUME = Disks(image=False)
DUE = {"gpustack:reclaim_at": "2026-11-22T11:00:00Z", "gpustack:reclaim_after": "req-stop"}


def action(what: str, hours: float, *, failed: bool = False) -> Event:
    """An action that began so many hours ago."""
    return Event(at=NOW - timedelta(hours=hours), server="vm", what=what, failed=failed, request=f"req-{what}")


STOPPED = (action("stop", 80), action("create", 100))


def vm(**more: Any) -> Server:
    """A stopped instance with one K4200, booted from a volume, whose notice is over."""
    return server("vm", "gpu1", **{"status": "SHUTOFF", "disks": VOLUME, "metadata": DUE, **more})


def candidate(instance: Server | None = None, **more: Any) -> Candidate:
    return Candidate(server=instance or vm(), **{"actions": STOPPED, **more})


def outcome(entry: Candidate, rules: Rules = RULES) -> tuple[str, list[str]]:
    """The step and the codes of the findings."""
    decision = judge(entry, rules, NOW)
    return (decision.step.value, [found.code.value for found in decision.findings]) if decision else ("none", [])


@pytest.mark.parametrize(
    ("instance", "step"),
    [
        (vm(), "shelve"),
        (vm(metadata={}), "notify"),
        (vm(metadata={**DUE, "gpustack:reclaim_at": "2026-11-22T13:00:00+01:00"}), "shelve"),
        (vm(metadata={**DUE, "gpustack:reclaim_at": "2026-11-22T12:00:01Z"}), "wait"),
        (vm(metadata={**DUE, "gpustack:reclaim_after": "req-other"}), "notify"),
        (vm(metadata={"gpustack:reclaim_at": "2026-11-22T11:00:00Z"}), "notify"),
        (vm(status="ACTIVE"), "withdraw"),
        (vm(status="ACTIVE", metadata={}), "none"),
        (vm(status="ACTIVE", locked=True), "nothing"),
        (vm(status="ERROR"), "nothing"),
        (vm(status="SHELVED_OFFLOADED", placed=False), "none"),
        (replace(vm(), devices={"fpga": 1}), "none"),
        (vm(status="PAUSED", metadata={}), "nothing"),  # its last action is a stop
        (vm(status="SUSPENDED", metadata={}), "none"),  # no time for this state
    ],
)
def test_the_step_follows_from_state_and_notice(instance: Server, step: str) -> None:
    assert outcome(candidate(instance))[0] == step


@pytest.mark.parametrize(
    ("actions", "step"),
    [
        ((action("stop", 72),), "shelve"),
        ((action("stop", 71.9),), "withdraw"),
        ((action("lock", 1), action("stop", 80)), "notify"),  # the notice is older than the lock
        ((action("start", 1), action("stop", 80)), "nothing"),
        ((action("stop", 80, failed=True), action("create", 100)), "nothing"),
        ((action("resetState", 1), action("stop", 80)), "nothing"),
        ((action("migrate", 1, failed=True), action("stop", 80)), "notify"),
        ((Event(at=None, server="vm", what="stop", request="req-stop"),), "nothing"),
        ((action("stop", -1),), "nothing"),
        ((), "nothing"),
    ],
)
def test_the_time_of_a_stop_is_that_of_the_newest_action(actions: tuple[Event, ...], step: str) -> None:
    got, codes = outcome(candidate(actions=actions))
    assert (got, codes) == (step, ["GPU797"] if step == "nothing" else [])


EXPIRED = {"gpustack:expires": "2026-11-22T10:00:00Z", **DUE}


@pytest.mark.parametrize(
    ("instance", "rules", "expected"),
    [
        (vm(metadata=EXPIRED), {"idle_after": {}}, ("shelve", [])),
        (vm(metadata=EXPIRED), {"idle_after": {}, "metadata": False}, ("withdraw", [])),
        (vm(metadata={"gpustack:expires": "2026-11-22T13:00:00Z"}), {"idle_after": {}}, ("none", [])),
        (vm(status="ACTIVE", metadata=EXPIRED), {}, ("nothing", ["GPU799"])),
        (vm(status="ACTIVE", metadata=EXPIRED), {"running": True}, ("shelve", [])),
        (vm(status="PAUSED", metadata=EXPIRED), {"idle_after": {}}, ("nothing", ["GPU799"])),
        (vm(status="ERROR", metadata=EXPIRED), {"running": True}, ("nothing", ["GPU799"])),
        (vm(status="ACTIVE"), {"expires": {"vm": NOW - timedelta(hours=2)}, "running": True}, ("shelve", [])),
        (vm(status="ACTIVE", metadata={}), {"expires": {"vm": NOW + timedelta(seconds=1)}}, ("none", [])),
        # The spec's time replaces the one of the metadata.
        (vm(metadata=EXPIRED), {"expires": {"vm": NOW + timedelta(days=1)}, "idle_after": {}}, ("withdraw", [])),
    ],
)
def test_expiry(instance: Server, rules: dict[str, Any], expected: tuple[str, list[str]]) -> None:
    assert outcome(candidate(instance), replace(RULES, **rules)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("2026-11-22T10:00:00", "2026-11-22", "yesterday", "", "2026-13-22T10:00:00Z", "0001-01-01T00:00:00+23:00"),
        *("\uff12026-11-22T10:00:00Z", "2026-11-22T10:00:00Z\n", "2026-11-22T10:00:00+99:00"),
    ],
)
def test_a_time_without_zone_is_reported_and_never_guessed(text: str) -> None:
    entry = candidate(vm(status="ACTIVE", metadata={"gpustack:expires": text}))
    assert outcome(entry, replace(RULES, running=True)) == ("nothing", ["GPU796"])
    assert outcome(candidate(vm(metadata={**DUE, "gpustack:reclaim_at": text}))) == ("notify", ["GPU796"])


def test_a_notice_of_an_earlier_expiry_does_not_count() -> None:
    """The users set a later time, and nobody removed the notice meanwhile."""
    due = {**DUE, "gpustack:reclaim_at": "2026-11-20T10:00:00Z"}
    again = candidate(vm(metadata={**due, "gpustack:expires": "2026-11-22T10:00:00Z"}))
    assert outcome(again, replace(RULES, idle_after={}))[0] == "notify"
    first = candidate(vm(metadata={**due, "gpustack:expires": "2026-11-19T10:00:00Z"}))
    assert outcome(first, replace(RULES, idle_after={}))[0] == "shelve"


def test_a_notice_to_an_expired_instance_ends_with_an_unshelve() -> None:
    rules = replace(RULES, idle_after={}, running=True)
    busy = candidate(vm(status="ACTIVE", metadata=EXPIRED), actions=(action("reboot", 1), *STOPPED))
    assert outcome(busy, rules)[0] == "shelve"
    unshelved = (action("unshelve", 1), action("shelve", 2), *STOPPED)
    assert outcome(replace(busy, actions=unshelved), rules)[0] == "notify"


def marked(by: str, *, user: str = "operator", after: str = "req-create") -> Candidate:
    """An instance with gpustack's metadata, stopped by a user."""
    metadata = {**DUE, "gpustack_stopped_for": "gpu1", "gpustack_after": after}
    stopped = (replace(action("stop", 80), user=by), action("create", 100))
    entry = vm(metadata=metadata)
    return candidate(entry, actions=stopped, marks=marks(replace(entry, actions=stopped), user))


@pytest.mark.parametrize("forged", [marked("tenant"), marked("tenant", after="req-stop"), marked("tenant", after="?")])
def test_a_mark_of_the_project_keeps_no_gpu(forged: Candidate) -> None:
    assert outcome(forged) == ("shelve", ["GPU482"])


DIFFERS = finding(Code.GPU_OF_STALE_ROW, place="gpu1", klass="Q", because="x", host="gpu1")
REFUSED: Mapping[str, tuple[Candidate, str]] = {
    "another project": (candidate(vm(project="p2", locked=True)), "GPU790"),
    "locked": (candidate(vm(locked=True)), "GPU791"),
    "task": (candidate(vm(task="powering-off")), "GPU792"),
    "migration": (candidate(migration="migration: running"), "GPU792"),
    "reboot of its host": (marked("operator", user="operator"), "GPU792"),
    "ephemeral": (candidate(vm(disks=Disks(image=False, lost=("ephemeral disk of 5 GiB",)))), "GPU793"),
    "surplus": (candidate(surplus=(DIFFERS,)), "GPU794"),
    "Placement silent": (candidate(unknown="can't read the allocations"), "GPU794"),
    "space": (candidate(vm(disks=Disks(image=True, root=20))), "GPU795"),
    "size": (candidate(vm(disks=Disks(image=True, root=0))), "GPU795"),
    "host down": (candidate(host_up=False), "GPU798"),
    "no host to return to": (candidate(no_return="gpu1 accepts other projects only"), "GPU900"),
    "kept by its host": (candidate(vm(status="SHELVED"), actions=(action("shelve", 80),)), "GPU799"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    entry, code = REFUSED[name]
    assert outcome(entry) == ("nothing", [code])
    decision = judge(entry, RULES, NOW)
    assert decision is not None
    assert decision.reason  # the plan shows why it is idle all the same
    (found,) = decision.findings
    assert found.place == "gpu1 VM (vm)"


def test_an_unconfirmed_resize_is_refused() -> None:
    entry = candidate(vm(status="VERIFY_RESIZE", metadata=EXPIRED))
    assert outcome(entry, replace(RULES, running=True)) == ("nothing", ["GPU792"])


def test_options_permit_losses_and_snapshots() -> None:
    lost = Disks(image=True, root=20, lost=("swap disk of 512 MiB",))
    entry = candidate(vm(disks=lost))
    assert outcome(entry)[1] == ["GPU793", "GPU795"]
    assert outcome(entry, replace(RULES, accept_loss=True))[1] == ["GPU795"]
    assert outcome(entry, replace(RULES, accept_loss=True, space=19))[1] == ["GPU795"]
    assert outcome(entry, replace(RULES, accept_loss=True, space=20)) == ("shelve", [])
    unsized = candidate(vm(disks=Disks(image=True, root=0)))
    assert outcome(unsized, replace(RULES, space=9999)) == ("nothing", ["GPU795"])


def test_instances_without_a_rule_are_listed_with_their_gpus() -> None:
    since = NOW - timedelta(hours=30)
    instances = (
        replace(vm(status="ERROR", since=since), devices={"k4200": 2, "fpga": 1}),
        vm(status="RESCUE"),
    )
    decisions = list(held(instances, RULES, NOW))
    assert [(entry.gpus, entry.held, entry.since, entry.step) for entry in decisions] == [
        (2, "held, no rule (ERROR with its GPUs for 1 d 6 h)", since, Step.NOTHING),
        (1, "held, no rule (RESCUE)", None, Step.NOTHING),
    ]


def test_snapshots_together_stay_within_the_space() -> None:
    entries = [
        candidate(
            replace(vm(disks=Disks(image=True, root=root)), id=uuid),
            actions=(replace(action("stop", hours), request="req-stop"),),
        )
        for uuid, root, hours in (("vm1", 10, 80), ("vm2", 15, 100), ("vm3", 5, 90))
    ]
    entries.append(candidate(replace(vm(), id="vm4"), actions=(action("stop", 73),)))
    unnoticed = replace(vm(disks=Disks(image=True, root=15), metadata={}), id="vm0")
    entries.append(candidate(unnoticed, actions=(action("stop", 110),)))
    decisions = decide(entries, replace(RULES, space=20), NOW)
    # Longest idle first; the one without notice and the one from a volume need no space now.
    assert [(entry.server.id, entry.step) for entry in decisions] == [
        ("vm0", Step.NOTIFY),
        ("vm2", Step.SHELVE),
        ("vm3", Step.SHELVE),
        ("vm1", Step.NOTHING),
        ("vm4", Step.SHELVE),
    ]
    assert "20 of the 20 GiB" in decisions[3].findings[0].message
