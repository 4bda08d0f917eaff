"""How a GPU leaves service and comes back, by what the sources have about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from gpustack.changes.history import LastChange
from gpustack.changes.journal import PlannedChange, RunHead
from gpustack.cloud.compute import Service
from gpustack.cloud.placement import Inventory
from gpustack.fleet.model import MDEV, Gpu, Holder, State
from gpustack.operate.gpu_service.plan import OutagePlan, Protection, Seen, disable, enable
from gpustack.spec.load import parse_spec
from gpustack.spec.model import OutOfService
from support.fleet_answers import server

ADDRESS = "0000:81:00.0"
ENABLED = Service(id="s1", host="gpu1", enabled=True)
OURS = replace(ENABLED, enabled=False, reason=f"GPU {ADDRESS} out of service: no reset")
ENTRY = OutOfService(host="gpu1", address=ADDRESS, reason="no reset")


def inventory(reserved: int = 0, total: int = 1) -> Inventory:
    return Inventory(provider="p1", generation=7, classes={"CUSTOM_GPU": {"total": total, "reserved": reserved}})


def seen(state: State | None = State.FREE, **more: Any) -> Seen:
    holders = (Holder(consumer="vm1", server=server("vm1", "gpu1"), project="p1", user="u1"),)
    gpu = None
    if state is not None:
        gpu = Gpu(host="gpu1", address=ADDRESS, state=state, holders=holders if state is State.ALLOCATED else ())
    known = {"service": ENABLED, "gpu": gpu, "by_address": True, "inventory": inventory() if gpu else None, **more}
    return Seen(host="gpu1", address=ADDRESS, **known)


def test_a_function_of_a_reserved_card_comes_back_with_the_card() -> None:
    """The reservation is that of the card's provider, so that ``enable`` of a function cannot end it."""
    part = Gpu(
        host="gpu1", address="0000:81:00.1", state=State.RESERVED, reserved=True, dev_type="type-VF", parent=ADDRESS
    )
    held = replace(seen(), gpu=part, address=part.address, card=ADDRESS, inventory=inventory(1), reserved_by=recorded())
    plan = enable(held)
    assert plan.operations == ()
    assert plan.steps == (f"release its card: gpustack gpu enable gpu1 {ADDRESS}",)
    free = replace(part, state=State.FREE, reserved=False)
    assert enable(replace(held, gpu=free, inventory=inventory(0))).steps == ()


@pytest.mark.parametrize("gpu", [Gpu(host="gpu1", address="0000:81:00.1", state=State.FREE, dev_type="type-VF"), None])
def test_a_function_of_a_reserved_card_leaves_its_host_open(gpu: Gpu | None) -> None:
    function = {"gpu": gpu, "by_address": gpu is not None, "card": ADDRESS}
    held = seen(inventory=inventory(4, total=4), reserved_by=recorded(), **function)
    plan = off(held)
    assert (kinds(plan), codes(plan), plan.left) == ([], {"GPU757", "GPU460"}, "")
    assert plan.protection is not None
    who = "ann at 2026-11-22 (no reset) for its card"
    assert plan.protection.now == f"the reservation in Placement ({who}, until they release it)"
    assert plan.state == f"reserved by {who}"
    # A reservation of some of the functions keeps nobody off this one, and one that Nova may ignore does not either.
    partly = off(replace(held, inventory=inventory(1, total=4)))
    assert (kinds(partly), codes(partly)) == (["disable"], set())
    assert kinds(off(replace(held, scheduled=None))) == ["disable"]
    assert codes(off(replace(held, inventory=inventory(0, total=4)), close=False)) == {"GPU451"}


def test_the_plan_names_what_a_closed_host_keeps_off_too() -> None:
    plan = off(seen(inventory=None, others=["0000:82:00.0", "0000:83:00.0"]))
    assert plan.protection is not None
    rest = "GPUs 0000:82:00.0, 0000:83:00.0; instances without a GPU"
    assert list(plan.protection.lines())[3:] == [f"the rest of gpu1 too, while it is closed: {rest}"]
    alone = off(seen(inventory=None)).protection
    assert alone is not None
    assert alone.also == "the rest of gpu1 too, while it is closed: instances without a GPU"
    reserved = off(seen()).protection
    assert reserved is not None
    assert not reserved.also


def closed(reasons: str) -> Service:
    return replace(ENABLED, enabled=False, reason=f"gpustack: {reasons}")


def recorded(before: int = 0, now: int = 1) -> LastChange:
    change = PlannedChange(
        key="k",
        kind="reservation",
        id="p1",
        name="gpu1",
        why="no reset",
        seen={"CUSTOM_GPU": before},
        wanted={"CUSTOM_GPU": now},
        needs=[],
        about={},
    )
    return LastChange(head=RunHead(id="1", command="gpu disable", user="ann", at="2026-11-22"), change=change)


def off(state: Seen, **more: Any) -> OutagePlan:
    return disable(state, "no reset", "2026-11-22", **more)


def kinds(plan: OutagePlan) -> list[str]:
    """``reserve``, ``release``, ``disable`` or ``enable`` for each operation."""
    return [operation.describe().split()[0] for operation in plan.operations]


def codes(plan: OutagePlan) -> set[str]:
    return {finding.code.value for finding in plan.findings}


@pytest.mark.parametrize(
    ("state", "operations", "found"),
    [
        (seen(), ["reserve"], {"GPU757"}),
        (seen(State.ALLOCATED), ["reserve"], {"GPU757", "GPU758"}),
        (seen(State.RESERVED, inventory=inventory(1), reserved_by=recorded()), [], {"GPU757"}),
        # A burn-in, which ends without gpustack.
        (seen(State.RESERVED, inventory=inventory(1)), [], {"GPU757", "GPU460"}),
        # Reserving a card whose functions are units of one provider reserves all of them.
        (seen(inventory=inventory(reserved=1, total=4)), ["reserve"], {"GPU757"}),
        # Nova only reports devices: a reservation keeps nobody off, and makes the claim fail.
        (seen(scheduled=False), ["disable"], set()),
        # Unknown: both, and first the one that makes the claim safe.
        (seen(scheduled=None), ["disable", "reserve"], set()),
        (seen(inventory=None), ["disable"], set()),
        (seen(State.ALLOCATED, inventory=None), ["disable"], {"GPU450", "GPU758"}),
        (seen(State.ALLOCATED, scheduled=False), ["disable"], {"GPU450", "GPU758"}),
        # The host is closed already, for other reasons, which may end before the GPU is excluded.
        (seen(inventory=None, service=closed("GPU 82:00.0")), ["disable"], set()),
        (seen(inventory=None, service=closed("maintenance")), ["disable"], set()),
        (seen(inventory=None, service=closed("GPU 81:00.0, 82:00.0")), [], set()),
        # Without addresses, the GPU may be free.
        (seen(None, by_address=False), ["disable"], set()),
        (seen(None, by_address=False, service=OURS), [], set()),
        # Excluded: nova-compute returns only if it was disabled for this GPU.
        (seen(None, entry=ENTRY), [], set()),
        (seen(None, entry=ENTRY, service=OURS), ["enable"], set()),
        (seen(None, entry=ENTRY, service=replace(OURS, reason="GPU 0000:82:00.0 out of service: x")), [], set()),
        (seen(None, entry=ENTRY, service=replace(OURS, reason="gpustack: gpu1 is rebooted")), [], set()),
        (seen(None, entry=ENTRY, service=closed("maintenance; GPU 81:00.0")), ["end"], set()),
    ],
)
def test_what_keeps_new_instances_off(state: Seen, operations: list[str], found: set[str]) -> None:
    plan = off(state)
    assert (kinds(plan), codes(plan)) == (operations, found)


def test_the_operator_decides_about_the_service() -> None:
    assert kinds(off(seen(), close=True)) == ["disable", "reserve"]
    assert kinds(off(seen(service=OURS), close=False)) == ["reserve", "enable"]
    plan = off(seen(inventory=None), close=False)
    assert (kinds(plan), codes(plan)) == ([], {"GPU451"})
    assert plan.protection is not None
    assert not plan.protection.after_instance
    assert kinds(off(seen(None, entry=ENTRY, service=OURS), close=True)) == []


def test_a_host_opens_if_nova_left_the_reservation_of_a_card_with_vgpus() -> None:
    """nova-compute removes the reservation of a card in its configuration: the operator waits, then opens the host."""
    gpu = Gpu(host="gpu1", address=ADDRESS, state=State.RESERVED, dev_type=MDEV)
    state = seen(gpu=gpu, scheduled=None, inventory=inventory(1), service=OURS)
    assert (kinds(off(state)), kinds(off(state, close=False))) == ([], ["enable"])
    free = off(replace(state, inventory=inventory(0)), close=False)
    assert (kinds(free), codes(free)) == (["reserve"], set())  # the host stays closed
    assert free.left == f"GPU {ADDRESS} out of service (no reset)"
    assert free.protection is not None
    assert free.protection.now == "the closed host: nova-compute of gpu1 is disabled (gpustack)"


@pytest.mark.parametrize(
    ("plan", "left"),
    [
        (off(seen(inventory=None)), f"GPU {ADDRESS} out of service (no reset)"),
        (off(seen(inventory=None, service=closed("maintenance"))), f"maintenance; GPU {ADDRESS} out of service"),
        (disable(seen(inventory=None, service=OURS), "another", "2026-11-22"), "out of service (no reset)"),
        (off(seen(), close=False), ""),
        (off(seen(service=OURS), close=False), ""),
        (off(seen(service=closed("maintenance; GPU 81:00.0")), close=False), "maintenance"),
        (off(seen(None, entry=ENTRY, service=OURS)), ""),
        (off(seen(None, entry=ENTRY, service=OURS), close=True), f"GPU {ADDRESS} out of service (no reset)"),
    ],
)
def test_a_plan_shows_why_the_host_is_closed_afterwards(plan: OutagePlan, left: str) -> None:
    assert left in plan.left if left else not plan.left


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (seen(service=OURS), "the reservation keeps new instances off"),
        (seen(None, entry=ENTRY, service=OURS), "Nova does not offer the GPU any more"),
    ],
)
def test_a_host_opens_for_a_reason(state: Seen, why: str) -> None:
    assert [operation.why for operation in off(state, close=False).operations if operation.wanted is False] == [why]


def test_the_whole_capacity_is_reserved_and_nothing_else_changes() -> None:
    (operation,) = off(seen(inventory=inventory(reserved=1, total=4))).operations
    assert (operation.seen, operation.wanted) == ({"CUSTOM_GPU": 1}, {"CUSTOM_GPU": 4})
    assert operation.describe() == f"reserve gpu1 {ADDRESS} in Placement: reserved CUSTOM_GPU 1 → 4"


def test_each_moment_has_its_protection() -> None:
    used = off(seen(State.ALLOCATED, inventory=None)).protection
    assert used is not None
    assert used.now == "the instance that has it"
    assert "the closed host" in used.after_instance
    assert "the closed host" in used.after_restart
    placed = off(seen()).protection
    assert placed is not None
    assert placed.now == placed.after_instance == "the reservation in Placement (gpustack)"
    for total, by in ((1, "somebody else, until they release it"), (4, "gpustack")):  # 1 of 4 is not the whole card
        held = off(seen(State.RESERVED, inventory=inventory(1, total))).protection
        assert held is not None
        assert held.now == f"the reservation in Placement ({by})"
    assert list(placed.lines())[:2] == [f"{moment}: {placed.now}" for moment in ("now", "after its instance ends")]
    assert list(Protection(now="x").lines()) == [
        "now: x",
        "after its instance ends: nothing: the next instance can get the GPU",
        "after the restart of nova-compute: nothing: the next instance can get the GPU",
    ]
    # Somebody's reason is no protection of this GPU: it can end at any time.
    plan = off(seen(inventory=None, service=closed("maintenance")), close=False)
    assert codes(plan) == {"GPU451"}
    assert plan.left == "maintenance"


def test_lines_for_the_spec_are_those_of_the_spec() -> None:
    plan = disable(seen(), 'it said: "no", [twice]', "2026-11-22")
    head = 'version: 1\nmodels: {a: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu1: [a]}\n'
    (entry,) = parse_spec(head + "\n".join(plan.lines), "spec").out_of_service
    assert (entry.host, entry.address, entry.reason, entry.since) == (
        "gpu1",
        ADDRESS,
        'it said: "no", [twice]',
        "2026-11-22",
    )
    assert off(seen(entry=ENTRY)).lines == ()


def test_steps_end_when_nova_has_the_gpu_no_more() -> None:
    assert len(off(seen()).steps) == 4
    assert any("restart it once more" in step for step in off(seen(State.ALLOCATED)).steps)
    assert len(off(seen(entry=ENTRY)).steps) == 3
    gone = off(seen(None, entry=ENTRY))
    assert (gone.steps, gone.state) == ((), "out of service: Nova does not have the GPU")
    assert off(seen(None)).steps == ("add these lines to the spec",)
    card = Gpu(host="gpu1", address=ADDRESS, state=State.FREE, dev_type=MDEV)
    for gpu, part, steps in ((card, "configuration", 5), (replace(card, dev_type="type-PF"), "device_spec", 4)):
        plan = off(seen(gpu=gpu))
        assert (len(plan.steps), plan.steps[1].partition(" of gpu1")[0]) == (steps, f"render and install the {part}")


def test_the_last_step_names_the_source_that_shows_the_gpu() -> None:
    unknown = replace(seen(None), by_address=False)
    for plan in (off(unknown), enable(unknown)):
        assert plan.steps[-1].startswith("run this command again with --config-file: ")
    assert off(seen()).steps[-1].startswith("run this command again: ")
    assert enable(seen(None)).steps[-1].startswith("run this command again: ")


def gpu_of(state: State, *holders: Holder) -> Gpu:
    return Gpu(host="gpu1", address=ADDRESS, state=state, holders=holders)


MOVED = Holder(consumer="m1")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (seen(), "free"),
        (seen(State.UNAVAILABLE), "unavailable"),
        (seen(gpu=gpu_of(State.ALLOCATED)), "in use"),  # Nova does not show by whom
        (seen(gpu=gpu_of(State.CLAIMED)), "in use"),
        (seen(gpu=gpu_of(State.FREE, MOVED)), "in use"),  # units of a card are left
        (seen(State.RESERVED, inventory=inventory(1)), "reserved by somebody else"),
        (seen(State.RESERVED, inventory=inventory(1), one_time_use=True), "reserved by Nova, for one-time use"),
        (
            seen(State.RESERVED, inventory=inventory(1), reserved_by=recorded()),
            "reserved by ann at 2026-11-22",
        ),
        (seen(State.ALLOCATED, inventory=inventory(1)), "in use, reserved by somebody else for when it becomes free"),
        (
            seen(None, by_address=False),
            "unknown: only Nova's databases (--config-file) show a GPU",
        ),
        (seen(None), "out of service: Nova does not have the GPU"),
    ],
)
def test_the_state_of_a_gpu_has_words(state: Seen, text: str) -> None:
    assert off(state).state.startswith(text)
    assert enable(state).state == off(state).state


@pytest.mark.parametrize(
    ("holder", "text"),
    [
        (MOVED, "consumer m1 has the GPU (project unknown, user unknown)"),
        (
            replace(MOVED, server=server("vm1", "gpu1"), project="p1", user="u1"),
            "VM1 (vm1, ACTIVE) has the GPU ",
        ),
        (replace(MOVED, server=server("vm1", "gpu1", name="")), "vm1 (ACTIVE) has the GPU"),
    ],
)
def test_instances_with_the_gpu_are_named(holder: Holder, text: str) -> None:
    plan = off(seen(gpu=gpu_of(State.ALLOCATED, holder)))
    (used,) = [finding for finding in plan.findings if finding.code.value == "GPU758"]
    assert used.message.startswith(text)


RESERVED = seen(State.RESERVED, inventory=inventory(1), reserved_by=recorded())


@pytest.mark.parametrize(
    ("state", "operations", "found"),
    [
        (RESERVED, ["release"], set()),
        (replace(RESERVED, service=OURS), ["release", "enable"], set()),
        (seen(State.ALLOCATED, inventory=inventory(1), reserved_by=recorded()), ["release"], set()),
        # Somebody else's, and Nova's for one-time use.
        (replace(RESERVED, reserved_by=None), [], {"GPU452"}),
        (replace(RESERVED, reserved_by=None, one_time_use=True, service=OURS), ["enable"], {"GPU452"}),
        (seen(), [], set()),
        (seen(None), [], set()),
        (seen(None, service=OURS), ["enable"], set()),
        (seen(None, service=closed("GPU 81:00.0, 82:00.0")), ["end"], set()),
        (seen(None, service=closed("GPU 81:00.0 | memory")), ["end"], set()),
        (replace(RESERVED, entry=ENTRY), [], {"GPU759"}),
    ],
)
def test_back_in_service(state: Seen, operations: list[str], found: set[str]) -> None:
    plan = enable(state)
    assert (kinds(plan), codes(plan)) == (operations, found)
    assert bool(plan.steps) == (state.gpu is None or state.entry is not None)
    assert bool(plan.left) == ("end" in operations)


def test_a_release_restores_the_reservation_before() -> None:
    held = seen(State.RESERVED, inventory=inventory(4, total=4), reserved_by=recorded(1, 4))
    (operation,) = enable(held).operations
    assert operation.wanted == {"CUSTOM_GPU": 1}


def test_taking_over_is_named_in_the_question() -> None:
    plan = enable(replace(RESERVED, reserved_by=None), take_over=True)
    assert kinds(plan) == ["release"]
    assert plan.question == f"gpu1 {ADDRESS}: reserved by somebody else (CUSTOM_GPU 1 of 1). "
    assert enable(RESERVED, take_over=True).question == ""


def test_plans_are_plain_data() -> None:
    plan = off(seen(State.ALLOCATED)).to_dict()
    assert yaml.safe_load(yaml.safe_dump(plan)) == plan
    assert plan["protection"]["now"] == "the instance that has it"  # type: ignore[index]
    assert enable(seen()).to_dict()["protection"] == {}
