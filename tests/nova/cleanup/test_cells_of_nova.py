"""A resize into another cell, with a real Nova of two cells: the same instance lives in both until it is confirmed.

No guest can *take* PCI devices in another cell: Nova makes the copy of the instance with ``pci_devices = None``, to
which the claim there appends (``nova/objects/pci_device.py``, ``allocate``). It may leave its devices behind, when the
new flavor asks for none; and the attempt to take some has an end that must be left alone as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server

from gpustack_demo.embedded import servers
from support.clouds import WORLDS, running
from support.cloudworld import GPUS, World
from support.fleet_runs import listed

# With PostgreSQL Nova itself can't: it writes a boolean to instances.cleaned, which is an integer (seen in 2026.2).
TRIED = [
    parameter
    for parameter in WORLDS
    for release, _placement, database in parameter.values
    if release not in ("yoga", "2023.1") and database != "postgresql"
]
pytestmark = pytest.mark.parametrize("cloud", TRIED, indirect=True)


@pytest.fixture(scope="module")
def cloud(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    database_url: Callable[[str | None], str | None],
) -> Iterator[World]:
    """A Nova of two cells, whose policy lets administrators resize into the other."""
    release, placement, database = request.param
    directory = tmp_path_factory.mktemp("ssh")
    with running(release, placement, database_url(database), directory, cells=("cell1", "cell2")) as world:
        world.plain = world.api.compute.create_flavor(name="plain", ram=512, vcpus=2, disk=1)
        yield world


def two(world: World) -> tuple[str, str]:
    (old,), (new,) = world.hosts(1), world.hosts(1, cell="cell2")
    return old, new


def resize(world: World, server: Server, flavor: Flavor, away_from: str) -> Server:
    """Resize a guest into the other cell: Nova takes one of its own cell where there is any."""
    service = servers.service_id(world.api, away_from)
    world.api.compute.disable_service(service)
    world.api.compute.resize_server(server, flavor)
    server = servers.settled(world.api, server)
    world.api.compute.enable_service(service)
    return server


def copies(world: World, server: Server) -> dict[str, tuple[str, bool]]:
    """The states of the instance by cell, and whether it is hidden there."""
    query = sa.text("SELECT vm_state, hidden FROM instances WHERE uuid = :vm AND deleted = 0")
    states = {}
    for cell in ("cell1", "cell2"):
        with world.cell(cell).connect() as connection:
            for state, hidden in connection.execute(query, {"vm": server.id}):
                states[cell] = (state, bool(hidden))
    return states


def untouched(world: World) -> list[str]:
    """Nothing is repaired; what is said."""
    before = world.dump(), world.dump("cell2")
    world.apply(nothing=True)
    assert (world.dump(), world.dump("cell2")) == before
    return world.plan(everything=True)


def test_the_gpus_of_all_cells_are_listed(world: World) -> None:
    placed = {host: world.boot(host) for host in two(world)}
    for options in ((), ("--config-file", str(world.nova.nova_conf))):
        found, _messages = listed(world, *options)
        assert {(gpu["host"], gpu["server"]) for gpu in found if gpu["server"]} == {
            (host, server.id) for host, server in placed.items()
        }
        if options:
            assert sorted((gpu["cell"], gpu["state"]) for gpu in found) == [
                (cell, state) for cell in ("cell1", "cell2") for state in ("allocated", "free")
            ]


def test_a_resize_that_waits_for_its_confirmation(world: World) -> None:
    old, new = two(world)
    server = resize(world, world.boot(old), world.plain, old)
    assert (server.status, server.compute_host) == ("VERIFY_RESIZE", new)
    assert copies(world, server) == {"cell1": ("active", True), "cell2": ("resized", False)}
    assert {owner for _address, _status, owner in world.rows(old)} == {server.id, None}
    assert all("protected" in verdict for verdict in untouched(world))
    world.die(old)  # no nova-compute looks after the row any more
    assert all("protected" in verdict for verdict in untouched(world))
    # A row at the destination, as a Nova would write it that could take devices there.
    statement = "UPDATE pci_devices SET status = 'allocated', instance_uuid = :vm, request_id = 'r' WHERE id = "
    statement += (
        "(SELECT MIN(p.id) FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id WHERE c.host = :host)"
    )
    assert world.sql(statement, cell="cell2", vm=server.id, host=new) == 1
    assert all("protected" in verdict for verdict in untouched(world))
    free = (
        "UPDATE pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL WHERE instance_uuid = :vm"
    )
    assert world.sql(free, cell="cell2", vm=server.id) == 1
    world.back(old)
    assert world.plan(old) == []

    world.api.compute.revert_server_resize(server)
    server = servers.until(
        world.api, server, lambda instance: instance.status == "ACTIVE" and instance.task_state is None
    )
    assert copies(world, server) == {"cell1": ("active", False)}
    world.nova.control.periodic()
    assert world.plan(everything=True) == []
    assert world.nova.control.hostdevs(server.id).keys() == {old}
    world.agrees_beside(old, server)


def test_a_confirmation_after_which_the_old_host_died(world: World) -> None:
    """Nova frees the rows of the source in its next periodic: without one they are stale, their owner elsewhere."""
    old, new = two(world)
    server = resize(world, world.boot(old), world.plain, old)
    server = world.confirm(server)
    assert copies(world, server) == {"cell2": ("active", False)}
    assert f"A heals {old}" in world.plan(old, everything=True)
    world.die(old)
    assert world.plan(old) == [f"A stale {old} free"]
    before = world.dump()

    world.apply()
    assert world.plan(old) == []
    assert world.gpustack("undo", str(world.journal)).code == 0
    assert world.dump() == before
    world.apply()

    # Nova leaves the instance its old requests, so it seems to lack a device: that is told, and nothing is done.
    assert world.plan(new) == [f"L report {new}"]
    world.back(old)
    world.state(server, "reboot", "ACTIVE")
    world.agrees(old)


def test_a_device_that_nova_fails_to_take_in_the_other_cell(world: World) -> None:
    """The claim there fails half-way: nova-compute saves the device as taken, and forgets for whom."""
    old, new = two(world)
    server = world.boot(old)
    world.api.compute.migrate_server(server, host=new)
    server = servers.until(world.api, server, lambda instance: world.moves(server) == ["error"])
    assert copies(world, server) == {"cell1": ("active", False)}
    assert not [verdict for verdict in untouched(world) if "stale" in verdict]
    world.api.compute.reset_server_state(server, "active")
    for _time in range(2):
        world.nova.control.periodic()  # which does not free it
        assert world.plan(everything=True) == [f"A heals {new}"]
    for cell, table in (("cell2", "pci_devices"), ("cell1", "instances")):
        owner = "uuid" if table == "instances" else "instance_uuid"
        aged = f"UPDATE {table} SET updated_at = :long WHERE {owner} = :vm"
        assert world.sql(aged, cell=cell, long="2026-01-01 00:00:00", vm=server.id) == 1
    assert world.plan() == [f"R report {new}"]  # that should have gone long ago

    world.nova.control.restart_compute(new)

    assert world.plan(everything=True) == []
    assert world.nova.control.hostdevs(server.id).keys() == {old}
    for host, count in ((old, 1), (new, GPUS)):
        assert world.boot(host, count).status == "ACTIVE"
    world.exclusive()
