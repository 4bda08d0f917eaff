"""Virtual and physical functions of one card, as device_spec changes below guests that run."""

from __future__ import annotations

import pytest

from gpustack_demo.embedded import servers
from gpustack_demo.embedded.nova import EmbeddedDevice
from support.by_hand import repair_stopped, stop
from support.clouds import NAMED, world_of
from support.cloudworld import World

# With PCI in Placement Nova offers either a card or its functions, and does not start with both.
WITHOUT = [world_of(name, placement=False) for name in NAMED if name != "yoga"]
pytestmark = pytest.mark.parametrize("cloud", WITHOUT, indirect=True)

CARD, FUNCTIONS = "0000:a1:00.0", ("0000:a1:00.1", "0000:a1:00.2")
PCI = (
    EmbeddedDevice(address=CARD, vendor="10de", product="25b6", sriov_totalvfs=2, virtual_functions=FUNCTIONS),
    *(EmbeddedDevice(address=address, vendor="10de", product="25b7", physical_function=CARD) for address in FUNCTIONS),
)
ALIASES = """
alias = {"vendor_id": "10de", "product_id": "25b6", "device_type": "type-PF", "name": "card"}
alias = {"vendor_id": "10de", "product_id": "25b7", "device_type": "type-VF", "name": "function"}
"""
ALL = '[pci]\ndevice_spec = {"vendor_id": "10de"}\n' + ALIASES
ONLY_FUNCTIONS = '[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "25b7"}\n' + ALIASES


def states(world: World, host: str) -> dict[str, str]:
    return {address: status for address, status, _owner in world.rows(host)}


def boot(world: World, host: str, alias: str) -> servers.Server:
    flavor = servers.gpu_flavor(world.api, f"{alias}-{host}-{len(world.guests)}", alias)
    server = servers.boot(world.api, f"{alias}-{host}", flavor, host=host)
    world.guests.append(server)
    return server


def test_a_card_that_is_offered_above_a_function_in_use(world: World) -> None:
    """device_spec took in the card when a function was a guest's: nova-compute makes its row as if it were free."""
    (host,) = world.hosts(1, pci=PCI, config=ONLY_FUNCTIONS)
    server = boot(world, host, "function")
    assert server.status == "ACTIVE", server.fault
    files = world.nova.write_config(f"{host}-all", [ALL])
    world.nova.control.restart_compute(host, config=files)
    world.nova.control.periodic(host)
    assert states(world, host)[CARD] == "available"
    assert world.plan() == [f"I stale {host} block-parent"]

    repair_stopped(world, host)

    assert states(world, host)[CARD] == "unavailable"
    assert boot(world, host, "card").status == "ERROR"
    assert boot(world, host, "function").status == "ACTIVE"
    world.exclusive()
    for guest in world.guests:
        servers.delete(world.api, guest)
    world.guests.clear()
    world.nova.control.periodic(host)
    assert set(states(world, host).values()) == {"available"}  # Nova gives the card free with its last function
    assert world.plan(everything=True) == []
    assert boot(world, host, "card").status == "ACTIVE"


def test_what_is_blocked_for_a_reason_stays_so(world: World) -> None:
    (host,) = world.hosts(1, pci=PCI, config=ALL)
    for alias in ("function", "card"):
        server = boot(world, host, alias)
        assert server.status == "ACTIVE", server.fault
        assert "unavailable" in states(world, host).values()
        assert world.plan(everything=True) == []
        before = world.dump()
        world.apply(nothing=True)
        assert world.dump() == before
        servers.delete(world.api, server)
        world.nova.control.periodic(host)
        assert set(states(world, host).values()) == {"available"}
    world.guests.clear()


def test_functions_that_stay_blocked_below_a_free_card(world: World) -> None:
    """A crash between the two rows that Nova writes when a guest that had the card goes (bug 1969496)."""
    (host,) = world.hosts(1, pci=PCI, config=ALL)
    server = boot(world, host, "card")
    stop(world, host)
    freed = (
        "UPDATE pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL WHERE instance_uuid = :vm"
    )
    world.sql("UPDATE instances SET deleted = id, host = NULL WHERE uuid = :vm", vm=server.id)
    assert world.sql(freed, vm=server.id) == 1
    world.nova.control.wipe_host(host)
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    assert [states(world, host)[address] for address in (CARD, *FUNCTIONS)] == ["available", *["unavailable"] * 2]
    assert world.plan() == [f"H report {host}"] * 2  # perhaps an operator took them out of service

    repair_stopped(world, host, *(argument for address in FUNCTIONS for argument in ("--unblock", f"{host}/{address}")))

    world.guests.clear()
    assert boot(world, host, "function").status == "ACTIVE"
    assert boot(world, host, "function").status == "ACTIVE"
    world.exclusive()
