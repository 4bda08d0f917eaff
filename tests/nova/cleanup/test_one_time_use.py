"""Devices that are used once (since 2025.2): the reservation that Nova leaves in Placement is no leak, and stays.

An operator takes it away after having cleaned the device (``nova/compute/pci_placement_translator.py``).
"""

from __future__ import annotations

import pytest
from openstack.compute.v2.server import Server

from gpustack_demo.embedded import servers
from gpustack_demo.embedded.control import ControlError
from support.by_hand import FREE, leave, stop
from support.clouds import NAMED, nova_conf, world_of
from support.cloudworld import GPUS, World

ONCE = [world_of(name, placement=True) for name in NAMED if name not in ("yoga", "2023.1")]
pytestmark = pytest.mark.parametrize("cloud", ONCE, indirect=True)

VERSION = "1.28"


def hosts(world: World, count: int) -> list[str]:
    """Hosts whose GPUs are used once."""
    return world.hosts(count, config=nova_conf(world.nova.release, placement=True, once=True))


def inventories(world: World, host: str) -> dict[str, dict[str, dict[str, int]]]:
    """The inventories of a host's devices, by provider."""
    (tree,) = (provider.id for provider in world.api.placement.resource_providers(name=host))
    document = world.api.placement.get(f"/resource_providers?in_tree={tree}", microversion=VERSION).json()
    providers = [provider["uuid"] for provider in document["resource_providers"] if provider["uuid"] != tree]
    paths = {uuid: f"/resource_providers/{uuid}/inventories" for uuid in providers}
    return {
        uuid: world.api.placement.get(path, microversion=VERSION).json()["inventories"] for uuid, path in paths.items()
    }


def reserved(world: World, host: str) -> list[int]:
    return sorted(inventory["reserved"] for entry in inventories(world, host).values() for inventory in entry.values())


def reserve(world: World, provider: str, number: int) -> None:
    """What an operator's tool does after the device was cleaned, or before it is lent to somebody else."""
    path = f"/resource_providers/{provider}/inventories"
    document = world.api.placement.get(path, microversion=VERSION).json()
    for inventory in document["inventories"].values():
        inventory["reserved"] = number
    assert world.api.placement.put(path, json=document, microversion=VERSION).status_code == 200


def gone(world: World, server: Server, host: str) -> None:
    servers.delete(world.api, server)
    world.guests.remove(next(instance for instance in world.guests if instance.id == server.id))
    world.nova.control.periodic(host)


def test_a_device_that_was_used_is_no_leak(world: World) -> None:
    (host,) = hosts(world, 1)
    gone(world, world.boot(host), host)
    assert [status for _address, status, _owner in world.rows(host)] == ["available"] * GPUS
    assert reserved(world, host) == [0, 1]
    before, rows = inventories(world, host), world.dump()

    assert world.plan(everything=True) == []
    assert world.leftovers(host) == []
    world.apply("--os-cloud", "embedded", nothing=True)

    assert (inventories(world, host), world.dump()) == (before, rows)
    assert world.boot(host, GPUS).status == "ERROR"  # one of them must not be used again
    assert world.boot(host).status == "ACTIVE"
    assert reserved(world, host) == [1, 1]


def test_a_leaked_device_is_freed_and_stays_reserved(world: World) -> None:
    old, new = hosts(world, 2)
    server = world.boot(old, GPUS)
    world.die(old)
    server = world.evacuate(server, new)
    assert world.plan() == [f"A stale {old} free"] * GPUS
    before = inventories(world, old)
    world.apply()
    assert world.gpustack("undo", str(world.journal)).code == 0
    world.apply()

    assert world.plan() == []
    world.state(server, "start", "ACTIVE")
    world.back(old)
    assert inventories(world, old) == before
    assert reserved(world, old) == [1, 1]
    assert world.plan(everything=True) == []
    assert world.leftovers(old) == []
    assert world.boot(old).status == "ERROR"  # the rows are free, and yet nobody gets the devices
    for provider in before:
        reserve(world, provider, 0)
    for host in (old, new):
        gone(world, server, new) if host == new else None
        world.nova.control.periodic(host)
    world.agrees(old)


def test_an_allocation_is_taken_away_and_the_reservation_stays(world: World) -> None:
    (host,) = hosts(world, 1)
    server = world.boot(host)
    spare = leave(world, server, host)
    reserve(world, spare, 1)
    assert world.leftovers(host) == [(host, spare, server.id)]
    before, allocations = inventories(world, host), world.allocations(server)

    world.unset_leftovers()

    assert world.allocations(server).keys() == allocations.keys() - {spare}
    assert inventories(world, host) == before
    # Placement gives nobody a device that is reserved, so the way back is refused as well, and that is said.
    ran = world.gpustack("undo", str(world.journal), "--os-cloud", "embedded")
    assert "reserved" in ran.err, ran
    assert inventories(world, host) == before
    reserve(world, spare, 0)
    assert world.gpustack("undo", str(world.journal), "--os-cloud", "embedded").code == 0
    assert world.allocations(server) == allocations


def test_a_claim_of_a_used_device_with_which_nova_does_not_start(world: World) -> None:
    (host,) = hosts(world, 1)
    server = world.boot(host)
    gone(world, world.boot(host), host)
    stop(world, host)
    claim = f"UPDATE pci_devices SET status = 'claimed', instance_uuid = :vm, request_id = :request WHERE id = {FREE}"
    assert world.sql(claim, vm=server.id, request="11111111-2222-3333-4444-555555555555", host=host) == 1
    before = inventories(world, host)
    with pytest.raises(ControlError, match="exceed the capacity"):
        world.nova.control.restart_compute(host)  # it takes the claim for allocated, and Placement refuses
    world.nova.control.unseen(host, seconds=90)
    world.apply("--stopped", host)

    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    assert world.plan() == []
    assert inventories(world, host).keys() == before.keys()
    assert reserved(world, host) == [1, 1]
    world.state(server, "reboot", "ACTIVE")
