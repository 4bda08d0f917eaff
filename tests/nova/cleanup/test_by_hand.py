"""Rows as operators and crashes leave them, by hand below a real Nova, repaired while nova-compute is stopped."""

from __future__ import annotations

import pytest

from support.by_hand import FREE, repair_stopped, stop
from support.clouds import WORLDS
from support.cloudworld import World

pytestmark = pytest.mark.parametrize("cloud", WORLDS, indirect=True)


@pytest.mark.every_release
def test_a_claim_that_a_restart_made_a_surplus_device(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    claim = f"UPDATE pci_devices SET status = 'claimed', instance_uuid = :vm, request_id = :request WHERE id = {FREE}"
    stop(world, host)
    assert world.sql(claim, vm=server.id, request="11111111-2222-3333-4444-555555555555", host=host) == 1
    world.nova.control.restart_compute(host)
    assert [status for _address, status, _owner in world.rows(host)] == ["allocated"] * 2
    if not world.request_ids:  # the rows do not tell which of them is the surplus
        assert world.plan() == [f"F report {host}"]
        return
    assert world.plan() == [f"F stale {host} free"]

    repair_stopped(world, host)

    if world.placement:  # it keeps an allocation of the surplus device, which nobody can boot on
        ((_host, provider, consumer),) = world.leftovers(host)
        assert consumer == server.id
        allocations = world.allocations(server)
        world.unset_leftovers()
        assert allocations.keys() - world.allocations(server).keys() == {provider}
        assert world.leftovers(host) == []
        assert world.gpustack("undo", str(world.journal), "--os-cloud", "embedded").code == 0
        assert world.allocations(server) == allocations
        assert "nothing to undo" in world.gpustack("undo", str(world.journal), "--os-cloud", "embedded").err
        world.unset_leftovers()
    assert world.leftovers(host) == []
    world.agrees_beside(host, server)


def test_a_claim_that_nothing_will_finish(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    claim = f"UPDATE pci_devices SET status = 'claimed', instance_uuid = :vm, request_id = :request WHERE id = {FREE}"
    world.sql(claim, vm=server.id, request="11111111-2222-3333-4444-555555555555", host=host)
    if not world.request_ids:
        assert world.plan() == [f"G report {host}", f"P stale {host} restart"]
        return
    assert world.plan() == [f"G stale {host} free", f"P stale {host} restart"]

    stop(world, host)
    world.apply("--stopped", host)
    world.nova.control.restart_compute(host)

    assert world.plan() == []
    world.agrees_beside(host, server)


def test_a_gpu_that_is_blocked_by_nothing(world: World) -> None:
    (host,) = world.hosts(1)
    stop(world, host)
    world.sql(f"UPDATE pci_devices SET status = 'unavailable' WHERE id = {FREE}", host=host)
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    assert world.plan() == [f"H report {host}"]  # perhaps an operator took it out of service
    world.apply(nothing=True)
    ((address, _status, _owner),) = [row for row in world.rows(host) if row[1] == "unavailable"]

    repair_stopped(world, host, "--unblock", f"{host}/{address}")

    world.agrees(host)


def test_a_free_gpu_with_an_owners_name(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    world.sql(f"UPDATE pci_devices SET instance_uuid = :vm WHERE id = {FREE}", vm=server.id, host=host)
    assert world.plan() == [f"J stale {host} clear-owner"]

    repair_stopped(world, host)

    world.agrees_beside(host, server)


def test_a_taken_gpu_without_an_owner(world: World) -> None:
    (host,) = world.hosts(1)
    world.sql(f"UPDATE pci_devices SET status = 'allocated' WHERE id = {FREE}", host=host)
    verdicts = world.plan()
    assert f"J stale {host} restart" in verdicts

    assert "restart nova-compute" in world.apply(code=14).err
    world.nova.control.restart_compute(host)

    assert world.plan() == []
    world.agrees(host)


@pytest.mark.every_release
def test_a_gpu_that_was_half_removed(world: World) -> None:
    (host,) = world.hosts(1)
    world.sql(f"UPDATE pci_devices SET status = 'removed' WHERE id = {FREE}", host=host)
    assert f"K stale {host} restart" in world.plan()

    world.nova.control.restart_compute(host)
    world.nova.control.restart_compute(host)  # the row goes at the first start, and is made anew at the second

    assert world.plan() == []
    if not world.placement:
        world.agrees_beside(host)


def test_a_row_that_was_freed_under_a_guest_is_report_only(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    freed = "UPDATE pci_devices SET status = 'available', instance_uuid = NULL WHERE instance_uuid = :vm"
    assert world.sql(freed, vm=server.id) == 1
    before = world.dump()
    assert f"L report {host}" in world.plan()

    world.apply(code=None)

    assert world.dump() == before
    back = "UPDATE pci_devices SET status = 'allocated', instance_uuid = :vm WHERE address = :address AND id IN "
    back += "(SELECT id FROM (SELECT p.id FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id"
    back += " WHERE c.host = :host) AS mine)"
    (address,) = world.nova.control.hostdevs(server.id)[host]
    assert world.sql(back, vm=server.id, address=address, host=host) == 1


@pytest.mark.every_release
def test_a_status_that_nova_does_not_have(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    assert world.sql(f"UPDATE pci_devices SET status = 'free' WHERE id = {FREE}", host=host) == 1
    assert f"U report {host}" in world.plan()
    before = world.dump()
    world.apply(code=None)
    assert world.dump() == before
    stop(world, host)
    world.nova.control.restart_compute(host)
    assert "Field value free is invalid" in world.nova.log.read_text(errors="replace")  # what the verdict warns of

    assert world.sql("UPDATE pci_devices SET status = 'available' WHERE status = 'free'") == 1
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)

    assert world.plan() == []
    world.agrees_beside(host, server)


@pytest.mark.every_release
def test_pools_that_were_emptied_by_hand(world: World) -> None:
    (host,) = world.hosts(1)
    world.sql("UPDATE compute_nodes SET pci_stats = NULL WHERE host = :host", host=host)
    assert world.plan() == [f"P stale {host} restart"]

    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)

    assert world.plan() == []
    world.agrees(host)
