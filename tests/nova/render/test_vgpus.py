"""Nova and Placement run with what gpustack renders for mediated devices: each flavor gets devices of its type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpustack.base.findings import errors
from gpustack.configure.desired import wanted
from gpustack.configure.providers import PATH
from gpustack.configure.render import render
from gpustack.nova_options import releases
from gpustack.offer.flavor.apply import plan
from gpustack.offer.flavor.desired import wanted as flavors_of
from gpustack.offer.flavor.flavors import present_flavors
from gpustack.spec.load import parse_spec
from gpustack_demo.embedded.hosts import EmbeddedDevice, MdevType
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova
from gpustack_demo.embedded.servers import boot, delete
from support.change_runs import apply_flavors as apply
from support.mediated_hosts import TYPES, card, mediated_host

LARGE, SMALL, OWN, UNUSED = (f"0000:{bus}:00.0" for bus in (41, 42, 43, 44))
SPEC = f"""\
version: 1
models:
  large: {{match: {{vendor: "10de", product: "25b6", addresses: ["{LARGE}"]}}, vgpu: {{type: A16-8Q}}}}
  small: {{match: {{vendor: "10de", product: "25b6", addresses: ["{SMALL}"]}}, vgpu: {{type: A16-4Q}}}}
  own:
    match: {{vendor: "10de", product: "20b5"}}
    vgpu: {{type: A100-1-5C, mig: 1g.5gb, count: 1, resource_class: CUSTOM_A100_1_5C}}
hosts: {{gpu01: [large, small, own]}}
nova: {{release: "RELEASE"}}
flavors:
  large: {{model: large, vcpus: 1, ram: 512, disk: 1}}
  small: {{model: small, vcpus: 1, ram: 512, disk: 1}}
  own: {{model: own, vcpus: 1, ram: 512, disk: 1}}
"""
FACTS = mediated_host(card(LARGE), card(SMALL), card(OWN, kind="A100"), card(UNUSED))
A16 = {number: kind["available"] for number, kind in TYPES.items() if "A16" in str(kind["name"])}


def devices() -> Iterator[EmbeddedDevice]:
    for number, function in enumerate(FACTS.pci):
        types = A16 if function.product == "25b6" else {"nvidia-474": 1}
        yield EmbeddedDevice(
            address=function.address,
            vendor=function.vendor,
            product=function.product,
            iommu_group=number,
            mdev_types=tuple(MdevType(id=kind, name=kind, instances=most) for kind, most in types.items()),
        )


@pytest.fixture(scope="module")
def spec(release_name):
    return parse_spec(SPEC.replace("RELEASE", release_name), "gpustack.yaml")


@pytest.fixture(scope="module")
def host(release_name, spec, tmp_path_factory):
    """The host with its rendered files."""
    rendering = render(wanted(spec, [FACTS], release=releases.release(release_name)), hosts=[FACTS])
    assert errors(rendering.findings) == []
    files = {(file.target, Path(file.path).name): file.text for file in rendering.files}
    directory = tmp_path_factory.mktemp("provider_config")
    (directory / Path(PATH).name).write_text(files["gpu01", Path(PATH).name], encoding="utf-8")
    providers = f"[compute]\nprovider_config_location = {directory}\n"
    (text,) = [text for (target, name), text in files.items() if target == "gpu01" and name.endswith(".conf")]
    return EmbeddedHost(name="gpu01", pci=tuple(devices()), config=[text, providers])


@pytest.fixture(scope="module")
def nova(release_name, spec, host):
    rendering = render(wanted(spec, [FACTS], release=releases.release(release_name)), services=["api", "scheduler"])
    (control,) = [file.text for file in rendering.files if file.target == "control"]
    with EmbeddedNova(release_name, hosts=[host], config=[control]) as running:
        yield running


@pytest.fixture(scope="module")
def cloud(nova):
    with nova.connection() as connection:
        yield connection


@pytest.fixture(scope="module")
def flavors(cloud, spec, release_name):
    api = present_flavors(cloud)
    desired = flavors_of(spec, release=releases.release(release_name), hosts=[FACTS])
    assert errors(desired.findings) == []
    assert not apply(api, plan(api, desired.flavors).operations)
    assert {flavor.state for flavor in api.flavors() if flavor.ours} == {"managed"}
    assert plan(api, desired.flavors).operations == ()
    return {flavor.name: cloud.compute.get_flavor(flavor.id) for flavor in api.flavors()}


def provider_of(cloud, server) -> dict[str, dict[str, int]]:
    """The resources of an instance beside those of the host, by the name of their provider."""
    found = cloud.placement.get(f"/allocations/{server.id}").json()["allocations"]
    names = {p["uuid"]: p["name"] for p in cloud.placement.get("/resource_providers").json()["resource_providers"]}
    return {names[uuid]: entry["resources"] for uuid, entry in found.items() if names[uuid] != "gpu01"}


def node_of(address: str) -> str:
    """The name of the provider of a card."""
    return f"gpu01_pci_{address.replace(':', '_').replace('.', '_')}"


def inventory_of(cloud, name: str) -> dict[str, dict[str, int]]:
    """The inventory of a provider."""
    (provider,) = cloud.placement.get(f"/resource_providers?name={name}").json()["resource_providers"]
    return cloud.placement.get(f"/resource_providers/{provider['uuid']}/inventories").json()["inventories"]


@pytest.mark.parametrize(
    ("name", "address", "resources", "number"),
    [("large", LARGE, "VGPU", 2), ("small", SMALL, "VGPU", 4), ("own", OWN, "CUSTOM_A100_1_5C", 1)],
)
def test_instances_get_devices_of_the_flavors_type_until_none_is_left(
    cloud, flavors, release_name, name, address, resources, number
):
    if releases.release(release_name).major < 30:
        pytest.skip("the driver writes to sysfs to create a device, which the stand-in of libvirt has not")
    servers = [boot(cloud, f"{name}-{place}", flavors[name]) for place in range(number + 1)]
    try:
        *placed, last = servers
        names = {p["name"] for p in cloud.placement.get("/resource_providers").json()["resource_providers"]}
        assert names == {"gpu01", *map(node_of, (LARGE, SMALL, OWN))}, "nothing of the card outside the spec"
        assert [server.status for server in servers] == [*(["ACTIVE"] * number), "ERROR"]
        node = node_of(address)
        assert [provider_of(cloud, server) for server in placed] == [{node: {resources: 1}}] * number
        assert "No valid host was found" in str(last.fault)
    finally:
        for server in servers:
            delete(cloud, server)


def test_nova_leaves_a_provider_behind_whose_type_is_removed_under_an_instance(
    nova, cloud, flavors, host, spec, release_name
):
    """Therefore gpustack renders no such file. Up to 2024.1, nova-compute would not start after the reboot."""
    if releases.release(release_name).major < 30:
        pytest.skip("the driver writes to sysfs to create a device, which the stand-in of libvirt has not")
    server = boot(cloud, "kept", flavors["large"])
    try:
        (before,) = provider_of(cloud, server)
        nova.control.power_off_host("gpu01")
        changed = [part.replace("nvidia-711,", "") for part in host.config]
        nova.start_compute(replace(host, config=changed))
        assert inventory_of(cloud, before)["VGPU"]["total"] == 2, "Placement still offers it"
        second = boot(cloud, "second", flavors["large"])
        assert (second.status, "Exceeded maximum number of retries" in str(second.fault)) == ("ERROR", True)
        delete(cloud, second)
        nova.control.stop_compute("gpu01")
        nova.start_compute(host)
        used = mediated_host(
            card(LARGE, used={"nvidia-711": f"instance {server.id}"}), card(SMALL), card(OWN, kind="A100"), card(UNUSED)
        )
        other = parse_spec(SPEC.replace("A16-8Q", "A16-4Q").replace("RELEASE", release_name), "gpustack.yaml")
        (refused,) = wanted(other, [used], release=releases.release(release_name)).unknown["gpu01"]
        assert (refused.code, server.id in refused.message) == ("GPU974", True)
    finally:
        delete(cloud, server)
