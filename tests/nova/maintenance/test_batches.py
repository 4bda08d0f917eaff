"""Several hosts at a time: real Novas of four hosts, the real ansible-playbook, hosts that are directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.cloud.closed import MAINTENANCE, set_reason
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from support.maintenance_world import CONFIG, RELEASES, World, flavors, prepared

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # openstacksdk warns of its own code

A, B, C, D = HOSTS = ("talk-a", "talk-b", "talk-c", "talk-d")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Of the four, the first two have a GPU each."""
    hosts = [EmbeddedHost(name=name, pci=gpus(1) if name in (A, B) else ()) for name in HOSTS]
    with EmbeddedNova(RELEASES[-1], hosts=hosts, config=[CONFIG]) as nova, nova.connection() as cloud:
        yield World(nova=nova, cloud=cloud, path=tmp_path_factory.mktemp("batches"), flavors=flavors(cloud))


def targets(world: World) -> set[str]:
    """Where guests were moved to, for as long as Nova has its books of it."""
    return {str(migration.dest_compute) for migration in world.cloud.compute.migrations() if migration.dest_compute}


def test_what_fails_on_one_host_of_a_batch_keeps_no_other_from_coming_back(four: World) -> None:
    world = four
    roots: dict[str, Path] = {name: world.new_host(name) for name in HOSTS}
    plain = [world.guest(f"plain-{name}", host=name) for name in (A, B)]
    gpu = world.guest("gpu-guest", "gpu", host=B)
    policy = {"gpustack_serial": 2, "gpustack_guests": "live-migrate"}
    code, output = world.play("prepare", roots, **policy, gpustack_device_guests="cold-migrate")
    assert code == 2, output
    # The only other GPU is in the other host of the batch, which is closed: so are both before the first guest moves.
    assert f"GPU611 {B} gpu-guest ({gpu.id})" in output
    closed, moved = (f"{name}: disable nova-compute of {name}" for name in (A, B)), "live-migrate plain-"
    assert max(output.index(message) for message in closed) < output.index(f"{A}: {moved}")
    assert targets(world) <= {C, D}
    assert [prepared(root) for root in roots.values()] == [True, False, False, False]
    assert [world.service(name) for name in (A, C, D)] == [("enabled", None)] * 3, "the first is back"
    status, reason = world.service(B)
    assert status == "disabled"
    assert f": failed: {B} before its reboot: GPU611 {B} gpu-guest" in (reason or "")
    assert "No valid host" in output, "the reason has room for the GPUs of the host, so a long text is cut there"
    remaining = output[output.index(f"{B}: back in service, when it is verified:") :]
    assert f"enable nova-compute of {B}" in remaining, "what is left to do is printed"
    assert world.state(gpu) == ("ACTIVE", B)
    assert {world.state(guest)[1] for guest in plain} <= {C, D}

    code, output = world.play("prepare", roots, **policy, gpustack_device_guests="stop")
    assert code == 0, output
    assert [prepared(root) for root in roots.values()] == [True] * 4
    assert [world.service(name) for name in HOSTS] == [("enabled", None)] * 4
    assert world.state(gpu) == ("ACTIVE", B)
    assert {world.state(guest) for guest in plain} <= {("ACTIVE", A), ("ACTIVE", B)}, "never to the other of the batch"
    assert [world.marks(guest) for guest in (*plain, gpu)] == [{}, {}, {}]


def test_a_limit_in_nova_keeps_the_rest_of_a_batch_in_service(four: World) -> None:
    """Another run has left a host out of service, and a batch has two hosts: the limit of two admits one of them."""
    world = four
    roots = {name: world.new_host(name) for name in (C, D)}  # no guest of the other test is on them
    set_reason(world.cloud, A, MAINTENANCE, "another run")
    code, output = world.play("prepare", roots, gpustack_serial=2, gpustack_max_disabled=2)
    assert code == 2, output
    assert "gpustack_serial of this run: 2 of 2 hosts at a time" in output
    (stays,) = (name for name in roots if f"gpustack_max_disabled 2, {name} stays in service" in output)
    assert [prepared(root) for name, root in roots.items() if name != stays] == [True]
    assert not prepared(roots[stays])
    assert {world.service(name) for name in roots} == {("enabled", None)}
    set_reason(world.cloud, A, MAINTENANCE, None)
    code, output = world.play("prepare", {stays: roots[stays]}, gpustack_max_disabled=2)
    assert code == 0, output
    assert prepared(roots[stays])
