"""States that operators and crashes leave below a real Nova."""

from __future__ import annotations

from openstack.compute.v2.server import Server

from gpustack.cloud import placement
from support.cloudworld import World

FREE = "(SELECT MIN(id) FROM (SELECT p.id FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id"
FREE += " WHERE c.host = :host AND p.status = 'available') AS free)"


def stop(world: World, host: str) -> None:
    """Stop nova-compute; its guests keep running. Its last report is 90 seconds ago."""
    world.nova.control.stop_compute(host)
    world.nova.control.unseen(host, seconds=90)


def repair_stopped(world: World, host: str, *arguments: str) -> None:
    """Stop, repair, start, as in the playbook."""
    assert ": skipped: " in world.apply(*arguments, code=14).err  # not while it runs
    stop(world, host)
    world.apply("--stopped", host, *arguments)
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    assert world.plan() == []


def leave(world: World, server: Server, host: str) -> str:
    """Give a guest an allocation of the host's other GPU, as Nova's healing does for a surplus row; its provider."""
    (tree,) = (provider.id for provider in world.api.placement.resource_providers(name=host))
    document = world.api.placement.get(f"/resource_providers?in_tree={tree}", microversion="1.28").json()
    consumer = placement.allocations_of(world.api, server.id)
    (spare,) = (
        provider["uuid"]
        for provider in document["resource_providers"]
        if provider["uuid"] not in consumer["allocations"] and provider["uuid"] != tree
    )
    gpu = next(held for held in consumer["allocations"].values() if "VCPU" not in held["resources"])
    assert placement.put(world.api, server.id, consumer, {**consumer["allocations"], spare: gpu})
    return str(spare)


def replace_provider(world: World, host: str, address: str) -> None:
    """Delete the resource provider of a GPU; nova-compute creates it again, without a reservation."""
    name = f"{host}_{address}"
    (old,) = world.api.placement.resource_providers(name=name)
    world.api.placement.delete_resource_provider(old)
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    (new,) = world.api.placement.resource_providers(name=name)
    assert new.id != old.id


def switch_cell(world: World, cell: str, *, disabled: bool) -> None:
    """Disable a cell or enable it, as ``nova-manage cell_v2 update_cell`` does, and send SIGHUP to nova-scheduler."""
    world.sql(
        "UPDATE cell_mappings SET disabled = :disabled WHERE name = :cell_name",
        cell="api",
        disabled=disabled,
        cell_name=cell,
    )
    world.nova.control.reload_scheduler()
