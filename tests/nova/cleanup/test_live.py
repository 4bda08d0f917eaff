"""Live migrations of guests with GPUs: what failed ones leave, and those under way or queued, which only look so."""

from __future__ import annotations

import re

import pytest
from openstack.compute.v2.server import Server

from gpustack_demo.embedded import servers
from support.clouds import LIVE_WORLDS
from support.cloudworld import World
from support.fleet_runs import listed

pytestmark = pytest.mark.parametrize("cloud", LIVE_WORLDS, indirect=True)


def statuses(world: World, host: str) -> list[str]:
    return sorted(status for _address, status, _owner in world.rows(host))


def still(world: World, server: Server, *hosts: str) -> None:
    """Nothing on these hosts is to be repaired, and nothing is written."""
    verdicts = world.plan(*hosts, everything=True)
    assert verdicts, "the rows are as ordinary as can be: no look-alike"
    assert {verdict.split()[1] for verdict in verdicts} == {"protected"}, verdicts
    before = world.dump()
    world.apply(nothing=True)
    assert world.dump() == before
    assert server.id in str(before)


def test_a_copy_that_failed_pins_the_destination(world: World) -> None:
    """libvirt raises: Nova has no rollback for that, and leaves a claim, an instance and a migration in error."""
    old, new = world.hosts(2)
    server = world.boot(old)
    world.nova.control.fail(old, "migrate")
    server = world.live(server, new, "error")
    assert server.compute_host == old
    world.nova.control.periodic()  # which frees nothing
    assert statuses(world, new) == ["available", "claimed"]
    assert world.nova.control.hostdevs(server.id).keys() == {old}  # the guest runs where it was
    assert world.plan() == [f"B report {new}"]
    world.api.compute.reset_server_state(server, "active")
    assert world.plan() == [f"B stale {new} fail-migration"]

    world.apply("--wait", "0", code=14)
    world.nova.control.periodic(new)

    assert world.plan() == []
    assert world.leftovers(new) == []
    world.agrees(new, server)


def test_a_rollback_whose_destination_died(world: World) -> None:
    """libvirt's job fails, Nova rolls back; the claim at the destination would have gone in its next periodic."""
    old, new = world.hosts(2)
    server = world.boot(old)
    world.nova.control.fail(old, "migrate", action="skip")
    server = world.live(server, new, "failed")
    assert (server.status, server.compute_host) == ("ACTIVE", old)
    assert f"G heals {new}" in world.plan(everything=True)
    world.die(new)
    assert world.plan() == [f"G stale {new} free"]

    world.apply()

    assert world.plan() == []
    assert statuses(world, new) == ["available"] * 2
    world.back(new)
    world.agrees(new, server)


def test_a_rollback_leaves_nothing_that_the_next_periodic_does_not_free(world: World) -> None:
    old, new = world.hosts(2)
    server = world.boot(old)
    for host, step, action in ((old, "migrate", "skip"), (new, "pre_live_migration", "raise")):
        world.nova.control.fail(host, step, action=action)
        server = world.live(server, new, "failed")
        assert (server.status, server.compute_host) == ("ACTIVE", old), step
        assert statuses(world, new) == ["available", "claimed"], step
        world.nova.control.periodic(new)
        assert world.plan() == [], step
        assert world.leftovers(new) == [], step
    world.agrees(new, server)


def test_moves_that_are_under_way_and_queued(world: World) -> None:
    old, new = world.hosts(2)
    first, second = world.boot(old), world.boot(old)
    world.nova.control.fail(old, "migrate", action="hang")
    world.live(first, new, "running")
    world.nova.control.wait_for_fault(old, "migrate")
    gpus = [gpu for gpu in listed(world)[0] if gpu["server"] == first.id]
    if world.placement:  # the migration holds the GPU that the guest had
        assert {(gpu["host"], gpu["holders"][0]["migration"]) for gpu in gpus} == {(old, True), (new, False)}
    else:
        assert [(gpu["host"], gpu["address"]) for gpu in gpus] == [(old, None)]
    world.live(second, new, "queued")  # Nova moves one guest at a time
    assert statuses(world, new) == ["claimed"] * 2
    still(world, second, new)
    world.nova.control.periodic()  # which takes claims of moves for allocated: now both hosts seem to be the owner's
    assert statuses(world, old) == statuses(world, new) == ["allocated"] * 2
    still(world, second, new)

    # The destination goes away while the copy is under way: that it is down makes nothing stale.
    world.nova.control.kill_compute(new)
    servers.force_down(world.api, new)
    still(world, second, new)
    world.nova.control.restart_compute(new)
    servers.force_down(world.api, new, False)
    still(world, second, new)

    world.nova.control.clear_faults(old)
    for server in (first, second):
        server = world.moved(server, "completed")
        assert (server.status, server.compute_host) == ("ACTIVE", new)
    world.nova.control.periodic()
    assert world.plan() == []
    world.exclusive()
    servers.delete(world.api, second)
    world.agrees(old, first)


def finished_and_forgotten(world: World, old: str, new: str) -> Server:
    """libvirt has moved the guest; nova-compute of the source restarts before it has noted that.

    Nova resets the move: the instance is active on the source, by its record, and the migration is in error.
    """
    server = world.boot(old)
    world.nova.control.fail(old, "manager._post_live_migration", action="hang")
    world.live(server, new, "running")
    world.nova.control.wait_for_fault(old, "manager._post_live_migration")
    world.nova.control.kill_compute(old, unseen=False)
    world.nova.control.restart_compute(old)
    server = servers.until(world.api, server, lambda instance: instance.task_state is None)
    assert (server.status, server.compute_host, world.moves(server)[0]) == ("ACTIVE", old, "error")
    assert world.nova.control.hostdevs(server.id).keys() == {new}  # where it runs
    world.nova.control.periodic()
    assert statuses(world, new) == ["available", "claimed"]
    return server


def unwritten(world: World, result: str, *arguments: str) -> str:
    """Apply writes nothing, and every outcome is of one kind; the output."""
    before = world.dump()
    ran = world.apply(*arguments, code=14)
    assert world.dump() == before, ran
    outcomes = re.findall(r"^class .*?: skipped: (\w+)", ran.err, re.MULTILINE)
    assert set(outcomes) == {result}, ran
    return ran.err


def test_a_device_in_use_by_a_move_that_nova_forgot(world: World) -> None:
    """The row of the destination is all that keeps the GPU from a second instance."""
    old, new = world.hosts(2)
    server = finished_and_forgotten(world, old, new)
    assert world.plan() == [f"B stale {new} fail-migration"]

    world.silent = {new}
    assert f"make {new} reachable" in unwritten(world, "undecided")
    unwritten(world, "undecided", "--no-hypervisor")
    # Its nova-compute reports: the host is not gone, whatever the operator declares.
    assert f"{new} is not gone" in unwritten(world, "undecided", "--gone", new)
    # Nor is the other end, which the migration holds a device of as well.
    world.silent = {old}
    unwritten(world, "report")  # the destination answers: in use
    world.silent = set()
    assert f"in use by {server.id}" in unwritten(world, "report")
    # An incomplete answer: one status file is not readable, the other shows the guest.
    root = world.ssh.directory / "roots" / new
    (root / "sys/kernel").mkdir(parents=True, exist_ok=True)
    (root / "proc/1/fd").rmdir()
    (root / "proc/1/fd").write_text("not a directory: stands for one that only root may read")
    assert f"in use by {server.id}" in unwritten(world, "report")

    # The destination is cut off from everything: Nova itself would keep the device, now and after a restart.
    world.nova.control.kill_compute(new)
    servers.force_down(world.api, new)
    assert world.plan() == [f"B stale {new} free"]
    world.silent = {new}
    assert f"--gone {new}" in unwritten(world, "undecided")
    world.silent = set()
    unwritten(world, "report")
    assert f"in use by {server.id}" in unwritten(world, "report", "--gone", new)
    world.nova.control.restart_compute(new)
    servers.force_down(world.api, new, False)
    assert "available" in statuses(world, new)
    assert statuses(world, new) != ["available"] * 2
    assert world.boot(new).status == "ACTIVE"  # on the other GPU
    world.exclusive()


def test_a_migration_holds_devices_of_both_of_its_ends(world: World) -> None:
    """After such a move the source dies, and the instance is evacuated to a third host."""
    old, new, third = world.hosts(3)
    server = finished_and_forgotten(world, old, new)
    world.die(old)
    world.api.compute.evacuate_server(server, host=third)
    server = servers.until(
        world.api, server, lambda instance: instance.compute_host == third and instance.task_state is None
    )
    assert world.plan() == sorted([f"B stale {new} fail-migration", f"B stale {old} free"])

    unwritten(world, "report")  # for both: what the destination answers is in use
    world.silent = {old, new}
    unwritten(world, "undecided")
    unwritten(world, "undecided", "--gone", old)

    # The destination loses its power too, so that its guest is gone. The repair of the source frees both devices.
    world.die(new)
    world.back(new)
    assert world.plan() == sorted([f"B stale {new} fail-migration", f"B stale {old} free"])
    world.apply("--gone", old, "--max-count", "1")
    assert statuses(world, old) == ["available"] * 2
    world.nova.control.periodic(new)
    assert statuses(world, new) == ["available"] * 2
    before = world.dump()
    undone = world.gpustack("undo", str(world.journal))
    assert undone.code == 14, undone
    assert f"on {new}, which the migration held, is available by now" in undone.err
    assert world.dump() == before
