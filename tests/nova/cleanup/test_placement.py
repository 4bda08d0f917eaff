"""What Placement is left with, on a real Placement: what is taken away and what is not; killed at every write."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from openstack.compute.v2.server import Server

from gpustack.changes.change import ChangeOutcome, ChangeResult
from gpustack.cloud import placement
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import Selection
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.hosts import gpus
from support.by_hand import leave
from support.cleanup_runs import run, undone
from support.clouds import BOTH_WAYS, nova_conf
from support.cloudworld import World
from support.killer import Killer

PLACED = [parameter for parameter in BOTH_WAYS if "placement" in str(parameter.id)]
one_release = pytest.mark.parametrize("cloud", PLACED[-1:], indirect=True)
each_release = pytest.mark.parametrize("cloud", PLACED, indirect=True)

SELECTION = Selection(grace=timedelta(0), classes=frozenset({"Q", "S"}))


def sources(world: World) -> Sources:
    return Sources.from_nova_conf([world.nova.nova_conf])


def stale(world: World) -> list[dict]:
    return [verdict.to_dict() for verdict in plan.make(sources(world), SELECTION, world.api).repairs]


def known(verdicts: list[dict]) -> list[dict]:
    """What the verdicts say, without the time of nova-compute's last report, which goes on."""
    return [
        one | {"evidence": [text.partition("; it was last seen")[0] for text in one["evidence"]]} for one in verdicts
    ]


def carry_out(world: World, verdicts: list[dict], path: Path, ask: object = None) -> list[ChangeOutcome]:
    return run(sources(world), path, verdicts, ask, SELECTION, world.api)


@one_release
def test_killed_at_every_write(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    spare = leave(world, server, host)
    before = world.allocations(server)
    original, allocated = placement.put, set()
    for at in range(1, 100):
        path, second = tmp_path / f"{at}.jsonl", tmp_path / f"{at}-second.jsonl"
        planned = stale(world)
        assert [verdict["allocation"]["provider"] for verdict in planned] == [spare]
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                killer = Killer(at)
                monkeypatch.setattr(os, "fsync", killer.around(os.fsync))
                monkeypatch.setattr(placement, "put", killer.around(original))
                with world.nova.connection() as cloud:
                    results = run(sources(world), path, planned, None, SELECTION, cloud)
                    assert [outcome.result for outcome in results] == [ChangeResult.DONE]
                os._exit(0)
            os._exit(1)
        _pid, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL)
        allocations = world.allocations(server)
        assert allocations in (before, {uuid: allocation for uuid, allocation in before.items() if uuid != spare})
        allocated.add(spare in allocations)
        if at % 2:  # go on, before going back
            remaining = stale(world)
            assert bool(remaining) is (spare in allocations)
            carry_out(world, remaining, second)
            assert spare not in world.allocations(server)
            list(undone(second, sources(world), world.api))
        if path.exists() and path.stat().st_size:
            list(undone(path, sources(world), world.api))
        assert world.allocations(server) == before, at
        if status == 0:
            break
    assert at > 8
    assert allocated == {True, False}


@one_release
def test_what_must_stay(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    leave(world, server, host)
    (verdict,) = stale(world)
    before = world.allocations(server)

    # Its host can't be asked, though the guest runs there; a guest has the device, by its hypervisor's word.
    users = dict.fromkeys(verdict["allocation"]["addresses"].split(), frozenset({server.id}))
    for number, (answer, result) in enumerate(
        ((Usage(gap="no way"), ChangeResult.SKIPPED), (Usage(users=users, gap="no way"), ChangeResult.SKIPPED))
    ):
        (outcome,) = carry_out(world, [verdict], tmp_path / f"left-{number}", lambda host, answer=answer: answer)
        assert outcome.result is result, outcome.detail

    # The guest's row was freed by hand: the allocation is all that keeps its GPU from others.
    with world.engine.connect() as connection:
        (row,) = connection.exec_driver_sql(f"SELECT id FROM pci_devices WHERE instance_uuid = '{server.id}'").scalars()
    world.sql("UPDATE pci_devices SET status = 'available', instance_uuid = NULL WHERE id = :id", id=row)
    assert stale(world) == []
    (outcome,) = carry_out(world, [verdict], tmp_path / "lacks")
    assert outcome.result is ChangeResult.SKIPPED
    assert "lacks a device" in outcome.detail
    assert world.allocations(server) == before
    world.sql("UPDATE pci_devices SET status = 'allocated', instance_uuid = :vm WHERE id = :id", vm=server.id, id=row)


@one_release
def test_changed_at_the_last_moment_and_used_since(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    leave(world, server, host)
    planned = stale(world)
    original = placement.put

    def meanwhile(*arguments: object) -> bool:
        consumer = placement.allocations_of(world.api, server.id)
        assert original(world.api, server.id, consumer, consumer["allocations"])  # Nova writes the same, and bumps it
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(placement, "put", meanwhile)
        (outcome,) = carry_out(world, planned, tmp_path / "late")
    assert outcome.result is ChangeResult.SKIPPED
    assert known(stale(world)) == known(planned)

    (outcome,) = carry_out(world, planned, tmp_path / "journal")
    assert outcome.result is ChangeResult.DONE
    world.agrees_beside(host)  # a new guest boots on the GPU that was given free
    (outcome,) = undone(tmp_path / "journal", sources(world), world.api)
    assert outcome.result is ChangeResult.SKIPPED


@one_release
def test_without_the_cloud_nothing_is_written(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    leave(world, server, host)
    saved = tmp_path / "plan.json"
    plan.make(sources(world), SELECTION, world.api).save(saved)
    assert "skipped" in world.gpustack("apply", str(saved), "--yes", "--journal", str(tmp_path / "j")).err
    assert len(stale(world)) == 1


@one_release
@pytest.mark.parametrize("page", ["class-q", "class-s"])
def test_the_commands_of_the_runbook(world: World, page: str) -> None:
    (host,) = world.hosts(1, gpus(1 if page == "class-q" else 2))
    if page == "class-q":  # the guest of another host
        (other,) = world.hosts(1)
        server = world.boot(other)
    else:
        server = world.boot(host)
    before, spare = world.allocations(server), leave(world, server, host)
    text = (Path(__file__).parents[3] / f"docs/runbook/{page}.md").read_text(encoding="utf-8")
    world.hypervisors()
    codes = []
    for line in re.findall(r"^\$ gpustack cleanup (.+)$", text, re.MULTILINE):
        argv = [{"gpu01": host, "mycloud": "embedded"}.get(argument, argument) for argument in shlex.split(line)]
        more = ["--yes"] if argv[0] == "apply" else []
        ran = world.gpustack(*argv, *more)
        codes.append((argv[0], ran.code, "No stale rows" in ran.out))
        if argv[0] == "apply":
            assert world.allocations(server) == before
    assert codes == [("plan", 0, False), ("apply", 0, False), ("plan", 0, True), ("undo", 0, False)]
    assert spare in world.allocations(server)


FIRST, SECOND = "0000:81:00.0", "0000:82:00.0"


def devices(world: World, server: Server) -> dict[str, list[str]]:
    """The addresses of a guest's devices in Placement and in its domain, by host."""
    providers = {provider.id: provider.name for provider in world.api.placement.resource_providers()}
    names = (providers[uuid].partition("_") for uuid in world.allocations(server))
    held: dict[str, list[str]] = {}
    for host, _separator, address in names:
        if address:
            held.setdefault(host, []).append(address.lower())
    return {host: sorted(addresses) for host, addresses in held.items()}


@each_release
def test_a_move_that_allocates_a_second_device(world: World, tmp_path: Path) -> None:
    """Nova's claim of a move takes its requests from the flavor, without the provider that Placement chose.

    ``nova/compute/resource_tracker.py``, ``_move_claim``. Placement can choose the second GPU only, by its trait; the
    claim does not compare traits, and takes the first GPU. Nova then allocates that one too.
    """
    config = nova_conf(world.nova.release, placement=True, second=True)
    source, target = world.hosts(2, config=config)
    flavor = servers.gpu_flavor(world.api, f"second-{source}", "second", 1)
    server = servers.boot(world.api, f"a-{source}", flavor, host=source)
    world.guests.append(server)
    assert devices(world, server) == world.nova.control.hostdevs(server.id) == {source: [SECOND]}

    server = world.migrate(server, target)
    assert world.plan(target, everything=True, placement=True) == [f"S protected {target}"]
    server = world.confirm(server)
    world.nova.control.periodic(source)
    world.nova.control.periodic(target)
    assert world.nova.control.hostdevs(server.id)[target] == [FIRST]
    assert devices(world, server) == {target: [FIRST, SECOND]}
    assert world.plan(placement=True) == [f"S stale {target} unset-allocation"]
    before = world.allocations(server)

    # The target has a free GPU, and nobody gets it.
    other = servers.boot(world.api, f"b-{source}", flavor, host=source)
    world.guests.append(other)
    assert world.migrate(other, target).compute_host == source
    world.apply("--class", "S", "--os-cloud", "embedded")
    assert devices(world, server) == {target: [FIRST]}
    assert world.gpustack("undo", str(world.journal), "--os-cloud", "embedded").code == 0
    assert world.allocations(server) == before
    world.apply("--class", "phantom-allocation", "--os-cloud", "embedded")
    other = world.confirm(world.migrate(other, target))

    assert world.nova.control.hostdevs(other.id)[target] == [SECOND]
    world.nova.control.periodic(target)
    assert world.plan(placement=True) == []
    ran = world.gpustack("undo", str(world.journal), "--os-cloud", "embedded")
    assert (ran.code, "belongs to instance" in ran.err) == (14, True), ran
    assert devices(world, server) == {target: [FIRST]}
    world.exclusive()


def heal(world: World, server: Server, directory: Path) -> str:
    """What ``nova-manage placement heal_allocations`` says of a guest. Its ports are left out: there is no Neutron."""
    clouds = yaml.safe_load(world.nova.clouds_yaml.read_text(encoding="utf-8"))["clouds"]["embedded"]
    url = clouds["placement_endpoint_override"]
    signing_in = directory / "placement.conf"
    signing_in.write_text(
        f"[placement]\nauth_type = admin_token\nendpoint = {url}\nendpoint_override = {url}\n"
        f"token = {clouds['auth']['token']}\n"
    )
    arguments = ("--instance", server.id, "--verbose", "--skip-port-allocations")
    command = ("--config-file", str(signing_in), "placement", "heal_allocations", *arguments)
    process = world.nova.manage(*command, check=False)
    assert process.returncode in (0, 4), process.stdout + process.stderr
    return process.stdout


@one_release
def test_a_device_that_placement_gives_away_though_it_is_taken(world: World, tmp_path: Path) -> None:
    host, neighbour = world.hosts(2)
    server = world.boot(host)
    before = placement.allocations_of(world.api, server.id)
    (tree,) = (provider.id for provider in world.api.placement.resource_providers(name=host))

    def of_host() -> list[tuple[str, str]]:
        cleanup_plan = plan.make(sources(world), SELECTION, world.api)
        return [(verdict.status.value, verdict.because) for verdict in cleanup_plan.verdicts if verdict.host == host]

    # Somebody deletes all that the guest has: no periodic adds the device to nothing.
    assert placement.put(world.api, server.id, before, {})
    world.nova.control.periodic(host)
    ((status, because),) = of_host()
    assert (status, "no allocation of this host" in because) == ("report", True)
    # As the advice has it: Nova's own tool writes processors, memory and disk; then nova-compute adds the device.
    assert "Successfully created allocations" in heal(world, server, tmp_path)
    resources = world.allocations(server)
    assert resources == {tree: before["allocations"][tree]["resources"]}
    ((status, _because),) = of_host()
    assert status in ("heals", "report")
    world.nova.control.periodic(host)
    assert of_host() == []
    assert world.allocations(server).keys() == before["allocations"].keys()

    # Where it has an allocation of another host alone, the tool leaves it so, and the advice is another.
    allocations = placement.allocations_of(world.api, server.id)
    (other_tree,) = (provider.id for provider in world.api.placement.resource_providers(name=neighbour))
    assert placement.put(world.api, server.id, allocations, {other_tree: before["allocations"][tree]})
    output = heal(world, server, tmp_path)
    assert "Successfully" not in output
    assert world.allocations(server).keys() == {other_tree}
    world.nova.control.periodic(host)
    (verdict,) = (entry for entry in plan.make(sources(world), SELECTION, world.api).verdicts if entry.host == host)
    assert verdict.status.value == "report"
    assert f"allocations of {other_tree} alone" in verdict.advice


@one_release
def test_rows_that_somebody_deleted_under_a_guest(world: World) -> None:
    """All that is left of its GPU is the allocation, and what nova-compute remembers until it is restarted."""
    (host,) = world.hosts(1)
    server = world.boot(host)
    devices = sa.Table("pci_devices", sa.MetaData(), autoload_with=world.engine, resolve_fks=False)
    condition = devices.c.compute_node_id.in_(
        sa.text("SELECT id FROM compute_nodes WHERE host = :host").bindparams(host=host).columns(sa.column("id"))
    )
    with world.engine.begin() as connection:
        rows = [dict(row) for row in connection.execute(sa.select(devices).where(condition)).mappings()]
        assert connection.execute(devices.delete().where(condition)).rowcount == len(rows) > 0
    assert world.plan() == [f"L report {host}"]

    of_host = [verdict for verdict in plan.make(sources(world), SELECTION, world.api).verdicts if verdict.host == host]

    assert [(verdict.klass, verdict.status.value, verdict.owner, verdict.repair) for verdict in of_host] == [
        ("Q", "report", server.id, None)
    ]
    assert "the device has no row" in of_host[0].because
    with world.engine.begin() as connection:
        connection.execute(devices.insert(), rows)
    assert world.plan(everything=True) == []
