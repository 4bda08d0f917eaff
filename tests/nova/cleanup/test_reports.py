"""Leaks that are reported only, and lookalikes of leaks, on a real Nova."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from openstack.compute.v2.server import Server

from gpustack_demo.embedded import servers
from gpustack_demo.embedded.nova import gpus
from support.by_hand import FREE, stop
from support.clouds import WORLDS
from support.cloudworld import GPUS, World
from support.sysroot import SysRoot

pytestmark = pytest.mark.parametrize("cloud", WORLDS, indirect=True)


def look(
    world: World,
    host: str,
    addresses: list[str],
    directory: Path,
    *,
    unoffered: tuple[str, ...] = (),
    meanwhile: Callable[[], object] = lambda: None,
) -> list[str]:
    """What class O says of a host that has K4200s at these addresses.

    :param unoffered: addresses of cards that device_spec does not offer.
    :param meanwhile: what happens after the host was looked at.
    """
    root = SysRoot(Path(tempfile.mkdtemp(dir=directory))).host(name=host)
    for address in (*addresses, *unoffered):
        root.function(address, vendor="10de", product="11b5" if address in unoffered else "11b4")
    facts, offered = directory / "facts.json", directory / "compute.conf"
    offered.write_text('[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "11b4"}\n')
    time.sleep(1)  # rows have whole seconds: those written so far are older than the facts
    world.scan(root.path, facts)
    meanwhile()
    arguments = ("--all", "--host", host, "--class", "O", "--snapshot", str(facts), "--compute-config", str(offered))
    document = json.loads(world.gpustack("plan", *arguments, "-f", "json").out)
    return sorted(
        f"{verdict['status']} {' '.join(device['address'] for device in verdict['devices'])}" for verdict in document
    )


def hold(world: World, server: Server) -> list[int]:
    """The ids of the rows that name a guest."""
    with world.engine.connect() as connection:
        query = sa.text("SELECT id FROM pci_devices WHERE instance_uuid = :vm ORDER BY id")
        return list(connection.execute(query, {"vm": server.id}).scalars())


@pytest.mark.every_release
def test_a_gpu_that_died_and_one_at_a_new_address(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    (in_use,) = world.nova.control.hostdevs(server.id)[host]
    addresses = [device.address for device in gpus(GPUS)]
    (spare,) = set(addresses) - {in_use}
    assert look(world, host, addresses, tmp_path) == []

    # The free GPU is gone, another sits at a new address: nova-compute sees neither until it is started again.
    moved = [in_use, "0000:91:00.0"]
    assert look(world, host, moved, tmp_path) == ["report ", f"report {spare}"]
    before = world.dump()
    world.apply(nothing=True)
    assert world.dump() == before
    pci = tuple(gpu for gpu in gpus(GPUS) if gpu.address == in_use) + gpus(1, bus=0x91)
    world.nova.control.restart_compute(host, pci=pci)
    world.nova.control.periodic(host)

    assert look(world, host, moved, tmp_path) == []
    assert world.plan(everything=True) == []  # the row of the one that is gone is soft-deleted, in status removed
    world.agrees_beside(host, server)


def test_a_gpu_that_died_under_its_guest(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    (in_use,) = world.nova.control.hostdevs(server.id)[host]
    remaining = tuple(gpu for gpu in gpus(GPUS) if gpu.address != in_use)
    world.nova.control.restart_compute(host, pci=remaining)
    world.nova.control.periodic(host)

    assert look(world, host, [gpu.address for gpu in remaining], tmp_path) == [f"report {in_use}"]

    assert world.plan() == []  # without the host's facts nothing is said, and nothing is done


def test_what_only_looks_like_other_hardware(world: World, tmp_path: Path) -> None:
    old, new = world.hosts(2)
    addresses = [device.address for device in gpus(GPUS)]
    guests = []

    # A card that device_spec does not offer needs no row.
    assert look(world, old, addresses, tmp_path, unoffered=("0000:c1:00.0",)) == []
    # A guest was given a GPU after the host was looked at: it must have come back.
    verdicts = look(world, old, [], tmp_path, meanwhile=lambda: guests.append(world.boot(old)))
    (in_use,) = world.nova.control.hostdevs(guests[0].id)[old]
    (spare,) = set(addresses) - {in_use}
    assert verdicts == [f"report {spare}", f"undecided {in_use}"]
    # The guest is being moved away from a GPU that is gone.
    world.nova.control.fail(old, "copy", action="hang")
    world.api.compute.migrate_server(guests[0], host=new)
    world.nova.control.wait_for_fault(old, "copy")
    assert look(world, old, [spare], tmp_path) == [f"protected {in_use}"]
    assert look(world, new, addresses, tmp_path) == []
    world.nova.control.clear_faults(old)
    server = servers.settled(world.api, guests[0])
    assert server.status == "VERIFY_RESIZE"
    assert look(world, old, [spare], tmp_path) == []  # class A protects the row from now on


def test_a_row_that_lost_its_owner_or_its_status_under_a_guest(world: World) -> None:
    """It looks like any row whose status and owner contradict one another: but a guest has the device."""
    (host,) = world.hosts(1)
    server = world.boot(host)
    rows = {(status, owner) for _address, status, owner in world.rows(host)}
    for hurt, expected in (
        ("instance_uuid = NULL", ["J report", "L report"]),
        ("status = 'available'", ["J report", "L report", "P report"]),
    ):
        (row,) = hold(world, server)
        assert world.sql(f"UPDATE pci_devices SET {hurt} WHERE id = :id", id=row) == 1
        before = world.dump()
        assert world.plan() == [f"{verdict} {host}" for verdict in expected]
        world.apply(nothing=True)
        assert world.dump() == before
        back = "UPDATE pci_devices SET status = 'allocated', instance_uuid = :vm WHERE id = :id"
        world.sql(back, id=row, vm=server.id)
        assert {(status, owner) for _address, status, owner in world.rows(host)} == rows
    assert world.plan(everything=True) == []

    # Which is what all the caution is for: nova-compute gives the device free when it starts, under its guest.
    (row,) = hold(world, server)
    world.sql("UPDATE pci_devices SET instance_uuid = NULL WHERE id = :id", id=row)
    world.nova.control.restart_compute(host)
    assert {status for _address, status, _owner in world.rows(host)} == {"available"}
    assert world.nova.control.hostdevs(server.id)[host]


def test_a_row_of_another_request_under_a_guest(world: World) -> None:
    """The guest came home with two rows, and somebody freed the wrong one: it has as many as it asks for."""
    if not world.request_ids:
        pytest.skip("no row shows its request")
    (host,) = world.hosts(1)
    server = world.boot(host)
    assert world.against_restart(host) == set()
    (row_id,) = hold(world, server)
    statement = "UPDATE pci_devices SET status = 'allocated', instance_uuid = :vm, request_id = :request WHERE id = "
    stop(world, host)
    assert world.sql(statement + FREE, vm=server.id, request="11111111-2222-3333-4444-555555555555", host=host) == 1
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    freed = "UPDATE pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL WHERE id = :id"
    with world.engine.connect() as connection:
        request = connection.execute(
            sa.text("SELECT request_id FROM pci_devices WHERE id = :id"), {"id": row_id}
        ).scalar()
    assert world.sql(freed, id=row_id) == 1
    before = world.dump()

    assert world.plan() == [f"F report {host}", f"L report {host}", f"P report {host}"]

    advice = world.gpustack("plan", "--host", host).err
    assert "do not restart nova-compute" in advice
    assert "restart nova-compute" not in advice.replace("do not restart nova-compute", "")
    world.apply(nothing=True)
    assert world.dump() == before

    assert world.against_restart(host) == {"GPU386"}
    # Which is what the caution is for: a start offers the device that the guest uses.
    world.nova.control.restart_compute(host)
    offered = {address for address, status, _owner in world.rows(host) if status == "available"}
    assert set(world.nova.control.hostdevs(server.id)[host]) == offered
    assert world.plan()[:2] == [f"F report {host}", f"L report {host}"]
    world.sql(statement + ":id", vm=server.id, request=request, id=row_id)


def test_a_restart_is_advised_only_after_the_host_has_answered(world: World) -> None:
    """A guest that Nova deleted still runs: by the databases a restart is harmless, and it would offer its device."""
    (host,) = world.hosts(1)
    server = world.boot(host)
    (row,) = hold(world, server)
    deletion = "UPDATE instances SET deleted = id, host = NULL WHERE uuid = :vm"
    world.sql(deletion, vm=server.id)
    world.sql("UPDATE pci_devices SET instance_uuid = NULL WHERE id = :id", id=row)
    assert world.against_restart(host) == {"GPU386"}
    assert f"J stale {host} restart" in world.plan()
    ran = world.apply("--class", "J", code=14)
    assert "skipped: restart" not in ran.err
    assert "nova-compute would offer it when it starts" in ran.err
    world.silent = {host}
    assert world.apply("--class", "J", code=14).err.count(": skipped: undecided: ") == 1
    world.sql("UPDATE instances SET deleted = 0, host = :host WHERE uuid = :vm", vm=server.id, host=host)
    world.sql("UPDATE pci_devices SET instance_uuid = :vm WHERE id = :id", id=row, vm=server.id)


def test_a_periodic_that_fails(world: World) -> None:
    old, new = world.hosts(2)
    server = world.boot(old)
    world.nova.control.fail(old, "rt.update_available_resource", times=0)
    moved = "UPDATE instances SET host = :new, node = :new, updated_at = :long WHERE uuid = :vm"
    long = "2026-01-01 00:00:00"
    assert world.sql(moved, new=new, vm=server.id, long=long) == 1
    world.sql("UPDATE pci_devices SET updated_at = :long WHERE instance_uuid = :vm", long=long, vm=server.id)
    before = world.dump()
    assert f"R report {old}" in world.plan()
    world.apply(code=None)
    assert world.dump() == before
    back = "UPDATE instances SET host = :old, node = :old WHERE uuid = :vm"
    world.sql(back, old=old, vm=server.id)
    world.nova.control.clear_faults(old)


@pytest.mark.every_release
def test_a_node_of_another_name(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    renamed = "UPDATE instances SET node = :node WHERE uuid = :vm"
    stop(world, host)
    world.sql(renamed, node=f"{host}.example.org", vm=server.id)
    before = world.dump()
    assert world.plan() == [f"N report {host}"]
    world.apply("--stopped", host, nothing=True)
    assert world.dump() == before
    world.sql(renamed, node=host, vm=server.id)
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    assert world.plan() == []
    world.agrees_beside(host, server)


def test_a_resize_that_hangs_at_every_step(world: World) -> None:
    for step, on_source in (("copy", True), ("finish", False)):
        old, new = world.hosts(2)
        server = world.boot(old)
        faulty = old if on_source else new
        world.nova.control.fail(faulty, step, action="hang")
        world.api.compute.migrate_server(server, host=new)
        world.nova.control.wait_for_fault(faulty, step)
        before = world.dump()
        assert all("protected" in verdict for verdict in world.plan(everything=True)), step
        world.apply(nothing=True)
        assert world.dump() == before
        world.nova.control.clear_faults(faulty)
        server = servers.settled(world.api, server)
        assert server.status == "VERIFY_RESIZE"


@pytest.mark.every_release
def test_a_domain_that_nova_lost(world: World) -> None:
    """As after a database error at the end of a spawn: the domain runs, and Nova offers its GPU."""
    host, second = world.hosts(2)
    server = world.boot(host)
    world.boot(second)
    assert world.plan(ask=True) == []
    lost = "UPDATE instances SET host = NULL, node = NULL, vm_state = 'error' WHERE uuid = :vm"
    assert world.sql(lost, vm=server.id) == 1
    world.nova.control.periodic(host)
    assert [status for _address, status, _owner in world.rows(host)] == ["available"] * 2
    assert world.plan() == []  # the databases alone show nothing
    before = world.dump()
    assert world.plan(ask=True) == [f"T report {host}"]
    (address,) = world.nova.control.hostdevs(server.id)[host]
    ran = world.gpustack("explain", host, address)
    assert f"in use by {server.id}" in ran.out, ran
    assert "is 'available', no owner" in ran.out
    assert f"class T (domain-drift) on {host}, report" in ran.out
    assert world.dump() == before
    world.leave()


def test_a_domain_that_nova_placed_elsewhere(world: World) -> None:
    """nova-compute was down, the guest was not, and it was evacuated: two domains of one instance."""
    old, new = world.hosts(2)
    server = world.boot(old)
    world.nova.control.kill_compute(old)
    servers.force_down(world.api, old)
    world.evacuate(server, new)
    assert f"T report {old}" in world.plan(ask=True)
    assert f"A report {old}" in world.plan(ask=True)  # the plan is settled by the answer
    world.leave()


def test_moves_whose_host_died_are_stuck(world: World) -> None:
    """Each loses a GPU for ever, and a week later too."""
    for step, dying, when in (
        ("resize_claim", "new", "after"),  # resize_prep
        ("finish_resize_call", "old", "before"),  # resize_migrated
        ("finish", "new", "before"),  # resize_finish
    ):
        old, new = world.hosts(2)
        server = world.boot(old)
        host = {"old": old, "new": new}[dying]
        world.nova.control.fail(host, step, action="hang", when=when)
        world.api.compute.migrate_server(server, host=new)
        world.nova.control.wait_for_fault(host, step)
        world.die(host)
        leaked = new if step == "resize_claim" else old
        world.nova.control.periodic(old if host == new else new)
        before = world.dump()
        assert f"A protected {leaked}" in world.plan(old, new, everything=True), step
        verdicts = world.plan(old, new, stuck=0)
        assert f"A stuck {leaked}" in verdicts, step
        assert all(verdict.split()[1] == "stuck" for verdict in verdicts), (step, verdicts)
        world.apply(nothing=True)
        assert world.dump() == before
    world.leave()


def test_confirmations_whose_source_died_are_stuck(world: World) -> None:
    # With PCI in Placement, a second move to a host can fail after the first: see test_placement.py.
    waiting, confirming, new, other_new = world.hosts(4)
    server = world.migrate(world.boot(waiting), new)
    assert world.plan(stuck=0) == []  # a person may take his time
    second = world.migrate(world.boot(confirming), other_new)
    world.nova.control.fail(confirming, "confirm", action="hang")
    world.api.compute.confirm_server_resize(second)
    world.nova.control.wait_for_fault(confirming, "confirm")
    world.die(waiting)
    world.die(confirming)
    assert world.plan(stuck=0) == sorted([f"A stuck {waiting}", f"A stuck {confirming}"])
    assert server.status == "VERIFY_RESIZE"
    world.leave()


@pytest.mark.every_release
def test_a_power_cut_in_the_middle_of_a_copy(world: World) -> None:
    """Nova fails to revert the move, clears the task, and the server can't be started; then both GPUs are of use."""
    old, new = world.hosts(2)
    server = world.boot(old)
    world.nova.control.fail(old, "copy", action="hang")
    world.api.compute.migrate_server(server, host=new)
    world.nova.control.wait_for_fault(old, "copy")
    world.die(old)
    assert world.plan(stuck=0) == [f"A stuck {new}"]
    world.back(old)
    world.nova.control.periodic(new)
    assert "Failed to revert crashed migration" in world.nova.log.read_text(errors="replace")
    assert world.api.compute.get_server(server.id).task_state is None
    assert world.plan() == []
    assert world.plan(stuck=0) == [f"A stale {new} fail-migration"]
    before = world.dump()
    world.booted(old, seconds=3600)  # by its own word it never went down: the disk may still be copied
    refused = world.apply("--wait", "0", "--stuck-after", "0", code=14)
    assert f"{old} does not show that its nova-compute started after" in refused.err
    assert world.dump() == before
    world.booted(old, seconds=0)
    world.apply("--wait", "0", "--stuck-after", "0", code=14)
    world.nova.control.periodic(new)

    assert world.plan(stuck=0) == []
    assert [status for _address, status, _owner in world.rows(new)] == ["available"] * 2
    if world.placement:  # what the destination was given for the move is left to class Q
        assert {host for host, _provider, _consumer in world.leftovers(new)} == {new}
        world.unset_leftovers()
    world.agrees(new, world.api.compute.get_server(server.id))


def test_a_failed_revert_is_reported_until_somebody_decides(world: World) -> None:
    old, new = world.hosts(2)
    server = world.migrate(world.boot(old), new)
    world.nova.control.fail(new, "revert")
    world.api.compute.revert_server_resize(server)
    server = servers.until(
        world.api, server, lambda instance: instance.status == "ERROR" and instance.task_state is None
    )
    world.nova.control.clear_faults(new)
    before = world.dump()
    assert all(verdict.split()[1] in ("report", "protected") for verdict in world.plan(everything=True))
    world.apply(code=None)
    assert world.dump() == before
