"""Live migrations of guests with GPUs: what failed ones leave, and those under way or queued, which only look so."""

from __future__ import annotations

import pytest
from cloudworld import LIVE_WORLDS, World
from openstack.compute.v2.server import Server

from gpustack.embedded import servers

pytestmark = pytest.mark.parametrize("cloud", LIVE_WORLDS, indirect=True)


def statuses(world: World, host: str) -> list[str]:
    return sorted(status for _address, status, _owner in world.rows(host))


def still(world: World, server: Server, *hosts: str) -> None:
    """Nothing on these hosts is to be repaired, and nothing is written."""
    verdicts = world.plan(*hosts, everything=True)
    assert verdicts, "the rows are as ordinary as can be: no look-alike"
    assert {one.split()[1] for one in verdicts} == {"protected"}, verdicts
    before = world.dump()
    assert world.apply(code=4).code == 4
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

    world.apply("--wait", "0", code=3)
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
    for where, step, action in ((old, "migrate", "skip"), (new, "pre_live_migration", "raise")):
        world.nova.control.fail(where, step, action=action)
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
