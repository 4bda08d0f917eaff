"""vGPUs with real Nova and Placement, on cards of Nova's libvirt fixture: no driver of a vendor creates the devices."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server

from gpustack.hosts.facts.store import save_snapshot
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.hosts import EmbeddedDevice, MdevType
from support.clouds import NAMED, nova_conf
from support.cloudworld import World
from support.fleet_runs import execute, listed
from support.host_samples import Raw
from support.mediated_hosts import card, mediated_host, parted
from support.page import Page
from support.vgpu_cards import CARDS, DEVICES, FIRST, SECOND

CLOUDS = pytest.mark.parametrize("cloud", [pytest.param((name, False), id=name) for name in NAMED], indirect=True)
SPEC = """
version: 1
models:
  large: {match: {vendor: "10de", product: "25b6", addresses: ["0000:84:00.0"]}, vgpu: {type: A16-8Q}}
  small:
    match: {vendor: "10de", product: "25b6", addresses: ["0000:85:00.0"]}
    vgpu: {type: A16-4Q, resource_class: CUSTOM_A16_4Q}
hosts: {HOSTS}
nova: {release: "RELEASE", placement: "off"}
flavors:
  large: {model: large, vcpus: 1, ram: 64MiB, disk: 0}
  small: {model: small, vcpus: 1, ram: 64MiB, disk: 0}
"""


def facts(host: str, first: Raw | None = None) -> Raw:
    """The facts of a host with the two cards."""
    return mediated_host(first or card(FIRST), card(SECOND), name=host).model_dump(by_alias=True)


@dataclass
class Vgpus:
    """A cloud with vGPUs, and the files that gpustack reads."""

    world: World
    hosts: list[str]
    flavors: dict[str, Flavor]
    spec: Path
    snapshot: Path

    def boot(self, flavor: str, host: str) -> Server:
        server = servers.boot(self.world.api, f"{flavor}-{len(self.world.guests)}", self.flavors[flavor], host=host)
        self.world.guests.append(server)
        return server

    def of_placement(self) -> dict[tuple[str, str], tuple[str, int, int, list[str]]]:
        """Class, units, used units and consumers of each card, by host and address, as Placement has them."""
        found = {}
        placement = self.world.api.placement
        for entry in placement.get("/resource_providers", microversion="1.31").json()["resource_providers"]:
            host, separator, card_name = entry["name"].partition("_pci_")
            if not separator or host not in self.hosts:
                continue
            path = f"/resource_providers/{entry['uuid']}"
            inventories = placement.get(f"{path}/inventories", microversion="1.31").json()["inventories"]
            allocations = placement.get(f"{path}/allocations", microversion="1.31").json()["allocations"]
            ((name, inventory),) = inventories.items()
            used = sum(allocation["resources"][name] for allocation in allocations.values())
            address = "{}:{}:{}.{}".format(*card_name.split("_"))
            units = inventory["total"] - inventory["reserved"]
            found[host, address] = (name, units, used, sorted(allocations))
        return found

    def of_list(self, *arguments: str) -> dict[tuple[str, str], tuple[str, int, int, list[str]]]:
        """The same, as ``gpu list`` has it."""
        gpus, self.messages = listed(self.world, *arguments)
        return {
            (gpu["host"], gpu["address"]): (
                gpu["resource_class"],
                0 if gpu["state"] == "reserved" else gpu["units"],
                gpu["used"],
                sorted(holder["consumer"] for holder in gpu["holders"]),
            )
            for gpu in gpus
        }

    def of_health(self) -> dict[tuple[str, str], tuple[int, int, list[str]]]:
        """Units, used units and consumers of each card, as ``health`` has them."""
        files = ("--snapshot", str(self.snapshot), "--spec", str(self.spec))
        ran = execute(self.world.nova.clouds_yaml, "health", "--instances", *files, "-f", "json")
        assert ran.code == 0, ran
        return {
            (gpu["host"], gpu["address"]): (
                gpu["units"],
                gpu["used"],
                sorted(holder["consumer"] for holder in gpu["holders"]),
            )
            for gpu in json.loads(ran.out)
        }

    def capacity(self, *arguments: str) -> dict[str, int]:
        """The number of further instances by flavor, as ``capacity`` has it."""
        files = (str(self.spec), "--snapshot", str(self.snapshot))
        ran = execute(self.world.nova.clouds_yaml, "capacity", *files, "-f", "json", *arguments)
        assert ran.code == 0, ran
        return {entry["flavor"]: entry["least"] for entry in json.loads(ran.out)}

    def compare(self) -> None:
        """Check that ``gpu list``, ``health`` and ``capacity`` have the numbers of Placement."""
        expected: dict[tuple[str, str], tuple[str, int, int, list[str]]] = {}
        found = self.of_list("--spec", str(self.spec))
        while expected != (expected := self.of_placement()):  # Nova removes allocations after its last answer
            found = self.of_list("--spec", str(self.spec))
        assert found == expected
        assert self.of_health() == {place: amounts[1:] for place, amounts in expected.items()}
        free = {"large": 0, "small": 0}
        for (_host, address), (_name, units, used, _consumers) in expected.items():
            free["large" if address == FIRST else "small"] += units - used
        assert self.capacity() == free

    @property
    def databases(self) -> tuple[str, str]:
        return "--config-file", str(self.world.nova.nova_conf)


@pytest.fixture
def vgpus(world: World, request: pytest.FixtureRequest, tmp_path: Path) -> Vgpus:
    """Two hosts with two types on two cards, one with a custom class."""
    release = request.node.callspec.params["cloud"][0]
    hosts = world.hosts(2, CARDS, nova_conf(release, placement=False) + DEVICES)
    flavors = {}
    for name, resource in (("large", "VGPU"), ("small", "CUSTOM_A16_4Q")):
        flavors[name] = world.api.compute.find_flavor(name) or world.api.compute.create_flavor(
            name=name, ram=64, vcpus=1, disk=0
        )
        world.api.compute.create_flavor_extra_specs(flavors[name], {f"resources:{resource}": "1"})
    spec = tmp_path / "gpustack.yaml"
    of_hosts = ", ".join(f"{host}: [large, small]" for host in hosts)
    spec.write_text(SPEC.replace("HOSTS", of_hosts).replace("RELEASE", release), encoding="utf-8")
    snapshot = tmp_path / "hosts.json"
    save_snapshot(snapshot, [facts(host) for host in hosts])
    return Vgpus(world=world, hosts=hosts, flavors=flavors, spec=spec, snapshot=snapshot)


@CLOUDS
def test_list_and_capacity_have_the_numbers_of_placement_at_each_step(vgpus: Vgpus) -> None:
    world, (first, second) = vgpus.world, vgpus.hosts
    vgpus.compare()
    assert vgpus.capacity() == {"large": 4, "small": 8}
    larges = [vgpus.boot("large", first) for _ in range(3)]
    assert [server.status for server in larges] == ["ACTIVE", "ACTIVE", "ERROR"]
    assert "No valid host" in larges[2].fault["message"]
    small = vgpus.boot("small", first)
    assert small.status == "ACTIVE"
    vgpus.compare()
    created = world.nova.control.mediated(first)
    assert sorted((device["type"], device["parent"]) for device in created) == [
        ("nvidia-710", "pci_0000_85_00_0"),
        ("nvidia-711", "pci_0000_84_00_0"),
        ("nvidia-711", "pci_0000_84_00_0"),
    ]
    world.drop(larges[0])
    vgpus.compare()
    world.nova.control.restart_compute(first)
    world.nova.control.periodic(first)
    vgpus.compare()
    again = vgpus.boot("large", first)  # with the device that the deleted instance left
    assert (again.status, len(world.nova.control.mediated(first))) == ("ACTIVE", len(created))
    moved = world.migrate(again, second)
    assert moved.status == "VERIFY_RESIZE", moved.fault
    vgpus.compare()
    world.confirm(moved)
    vgpus.compare()
    assert vgpus.of_placement()[second, FIRST][3] == [again.id]
    # The databases have no rows of mediated devices.
    assert vgpus.of_list("--spec", str(vgpus.spec), *vgpus.databases) == vgpus.of_placement()
    assert vgpus.capacity(*vgpus.databases) == vgpus.capacity()
    gpus, messages = listed(world, "--spec", str(vgpus.spec), "--host", second)
    (gpu,) = (gpu for gpu in gpus if gpu["host"] == second and gpu["address"] == FIRST)
    assert (gpu["model"], gpu["used"], gpu["units"], gpu["server"]) == ("A16-8Q", 1, 2, again.id)
    assert "GPU7" not in messages
    ran = execute(world.nova.clouds_yaml, "gpu", "show", second, FIRST, "--spec", str(vgpus.spec), "-f", "json")
    assert ran.code == 0, ran
    assert [holder["server"] for holder in json.loads(ran.out)["holders"]] == [again.id]
    out = vgpus.spec.parent / "page"
    out.mkdir()
    ran = execute(world.nova.clouds_yaml, "report", "--out", str(out), "--spec", str(vgpus.spec))
    assert ran.code == 0, ran
    rows = [
        ["".join(cell.itertext()) for cell in row]
        for row in Page((out / "index.html").read_text(encoding="utf-8")).find(".//details/table/tbody/tr")
    ]
    assert [row for row in rows if row[0].startswith(FIRST) and row[2].startswith(again.name)], rows


@CLOUDS
def test_a_provider_that_nova_left_behind_is_a_finding_and_not_free(vgpus: Vgpus) -> None:
    world, (first, second) = vgpus.world, vgpus.hosts
    assert vgpus.of_list("--spec", str(vgpus.spec), "--snapshot", str(vgpus.snapshot)) == vgpus.of_placement()
    assert "GPU7" not in vgpus.messages
    # The first card leaves the configuration, and the second one gets its type.
    config = nova_conf("2026.2", placement=False) + DEVICES.replace(SECOND, "none").replace(FIRST, SECOND)
    config = config.replace("device_addresses = none", "device_addresses = 0000:99:00.0")
    restarted(vgpus, first, config)
    found = vgpus.of_placement()
    assert [found[first, address][0] for address in (FIRST, SECOND)] == ["VGPU", "VGPU"]
    text = vgpus.spec.read_text(encoding="utf-8").replace(f"{first}: [large, small]", f"{first}: [small]")
    vgpus.spec.write_text(text, encoding="utf-8")
    gpus, messages = listed(world, "--spec", str(vgpus.spec), "--snapshot", str(vgpus.snapshot))
    states = {(gpu["host"], gpu["address"]): gpu["state"] for gpu in gpus}
    assert states[first, FIRST] == "inconsistent"
    assert f"GPU713 {first} {FIRST}" in messages
    assert f"GPU712 {first} {SECOND}" in messages  # Placement has the class VGPU, the spec another
    assert vgpus.capacity() == {"large": 2 + 2, "small": 4}
    # Placement has 2 and 4 devices of one class on the second host: an instance gets three of one card only.
    restarted(vgpus, second, nova_conf("2026.2", placement=False) + DEVICES.replace("mdev_class", "#"))
    vgpus.flavors["triple"] = world.api.compute.find_flavor("triple") or world.api.compute.create_flavor(
        name="triple", ram=64, vcpus=1, disk=0
    )
    world.api.compute.create_flavor_extra_specs(vgpus.flavors["triple"], {"resources:VGPU": "3"})
    text += "  triple: {model: large, count: 3, vcpus: 1, ram: 64MiB, disk: 0}\n"
    vgpus.spec.write_text(text, encoding="utf-8")
    for fits, status in ((1, "ACTIVE"), (0, "ERROR")):
        assert vgpus.capacity()["triple"] == fits
        assert vgpus.boot("triple", second).status == status
    assert vgpus.capacity() == {"large": 2 + 2 + 1, "small": 0, "triple": 0}


@CLOUDS
def test_nova_keeps_a_reservation_only_of_a_card_that_left_its_configuration(vgpus: Vgpus) -> None:
    world, (first, _second) = vgpus.world, vgpus.hosts
    arguments = (first, FIRST, "--reason", "fault", "--yes", "--spec", str(vgpus.spec))
    ran = execute(world.nova.clouds_yaml, "gpu", "disable", *arguments)
    assert ran.code == 0, ran
    assert vgpus.of_placement()[first, FIRST][1] == 0
    assert next(world.api.compute.services(host=first)).status == "disabled", ran.out
    time.sleep(1.1)  # longer than resource_provider_association_refresh
    world.nova.control.periodic(first)
    assert vgpus.of_placement()[first, FIRST][1] == 2
    restarted(vgpus, first, nova_conf("2026.2", placement=False) + DEVICES.replace(FIRST, "0000:99:00.0"))
    assert execute(world.nova.clouds_yaml, "gpu", "disable", *arguments).code == 0
    time.sleep(1.1)
    world.nova.control.periodic(first)
    restarted(vgpus, first, None)
    assert vgpus.of_placement()[first, FIRST][1] == 0
    assert execute(world.nova.clouds_yaml, "gpu", "disable", *arguments, "--no-disable-service").code == 0
    assert next(world.api.compute.services(host=first)).status == "enabled"


PARTS = ("0000:84:00.1", "0000:84:00.2")
ONE_EACH = (
    EmbeddedDevice(address=FIRST, vendor="10de", product="25b7", sriov_totalvfs=2, virtual_functions=PARTS),
    *(
        EmbeddedDevice(
            address=address,
            vendor="10de",
            product="25b7",
            physical_function=FIRST,
            mdev_types=(MdevType(id="nvidia-711", name="NVIDIA A16-8Q", instances=1),),
        )
        for address in PARTS
    ),
)
OF_ONE_EACH = f"""
[devices]
enabled_mdev_types = nvidia-711
[mdev_nvidia-711]
device_addresses = {",".join(PARTS)}
mdev_class = CUSTOM_PART
"""


@CLOUDS
def test_each_virtual_function_with_a_mediated_device_is_a_provider(vgpus: Vgpus) -> None:
    """An instance gets one device; one virtual function leaves service alone."""
    world = vgpus.world
    (host,) = world.hosts(1, ONE_EACH, nova_conf("2026.2", placement=False) + OF_ONE_EACH)
    vgpus.hosts.append(host)
    model = 'part: {match: {vendor: "10de", product: "25b7"}, vgpu: {type: A16-8Q, resource_class: CUSTOM_PART}}'
    text = vgpus.spec.read_text(encoding="utf-8").replace("models:\n", f"models:\n  {model}\n")
    vgpus.spec.write_text(text.replace("hosts: {", f"hosts: {{{host}: [part], "), encoding="utf-8")

    def refusal(name: str) -> tuple[str, int, int] | None:
        """The first step at which the host refuses an instance of a flavor, with the wanted and the free devices."""
        arguments = ("why", "flavor", name, "--host", host, "--spec", str(vgpus.spec), "-f", "json")
        ran = execute(world.nova.clouds_yaml, *arguments)
        assert ran.code == 0, ran
        failed = (step for step in json.loads(ran.out) if step["outcome"] == "failed")
        return next(((step["step"], step["wanted"], step["available"]) for step in failed), None)

    for count in (1, 2):
        flavor = world.api.compute.create_flavor(name=f"part{count}", ram=64, vcpus=1, disk=0)
        world.api.compute.create_flavor_extra_specs(flavor, {"resources:CUSTOM_PART": str(count)})
        vgpus.flavors[f"part{count}"] = flavor
    assert (refusal("part1"), refusal("part2")) == (None, ("Placement: CUSTOM_PART", 2, 1))
    assert vgpus.boot("part2", host).status == "ERROR"
    arguments = (host, PARTS[0], "--reason", "fault", "--yes", "--spec", str(vgpus.spec))
    ran = execute(world.nova.clouds_yaml, "gpu", "disable", *arguments)
    assert ran.code == 0, ran
    assert [vgpus.of_placement()[host, part][1] for part in PARTS] == [0, 1]
    assert execute(world.nova.clouds_yaml, "gpu", "enable", *arguments[:2], *arguments[-3:]).code == 0
    assert [vgpus.boot("part1", host).status for _ in range(3)] == ["ACTIVE", "ACTIVE", "ERROR"]
    assert refusal("part1") == ("Placement: CUSTOM_PART", 1, 0)


def restarted(vgpus: Vgpus, host: str, config: str | None) -> None:
    """Restart nova-compute, with another configuration if given."""
    path = vgpus.spec.parent / f"{host}.conf"
    changes = {}
    if config is not None:
        path.write_text(config, encoding="utf-8")
        changes["config"] = [str(path)]
    vgpus.world.nova.control.restart_compute(host, **changes)
    vgpus.world.nova.control.periodic(host)


PLACED = pytest.mark.parametrize(
    "cloud", [pytest.param((name, True), id=f"{name}-placement") for name in NAMED], indirect=True
)
WITH_PARTS = (
    EmbeddedDevice(address=FIRST, vendor="10de", product="25b7", sriov_totalvfs=2, virtual_functions=PARTS),
    *(EmbeddedDevice(address=address, vendor="10de", product="25b7", physical_function=FIRST) for address in PARTS),
)
OF_PARTS = """
[pci]
device_spec = {"vendor_id": "10de", "product_id": "25b7", "managed": "no", "address": {"function": "[1-2]"}}
"""
PARTS_SPEC = """
version: 1
models: {part: {match: {vendor: "10de", product: "25b7"}, vgpu: {type: A16-8Q}, alias: function}}
hosts: {HOST: [part]}
nova: {release: "RELEASE", placement: schedule}
flavors: {part: {model: part, vcpus: 1, ram: 64MiB, disk: 0}}
"""


@PLACED
def test_virtual_functions_with_a_type_are_counted_like_placement(
    world: World, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Nova takes them as PCI devices; the fixture has no driver that gives them a type, the facts have it."""
    release = request.node.callspec.params["cloud"][0]
    (host,) = world.hosts(1, WITH_PARTS, nova_conf(release, placement=True) + OF_PARTS)
    spec, snapshot = tmp_path / "gpustack.yaml", tmp_path / "hosts.json"
    spec.write_text(PARTS_SPEC.replace("HOST", host).replace("RELEASE", release), encoding="utf-8")
    raw = mediated_host(*parted(FIRST, 2, current="711"), name=host).model_dump(by_alias=True)
    for function in raw["pci"]:
        function["product"] = "25b7"
    save_snapshot(snapshot, [raw])
    flavor = servers.gpu_flavor(world.api, "part", "function", 1)

    def seen() -> tuple[tuple[str, str, int, int], int]:
        """The card as ``gpu list`` has it, and the number of further instances."""
        files = ("--snapshot", str(snapshot))
        (gpu,) = listed(world, "--spec", str(spec), *files)[0]
        ran = execute(world.nova.clouds_yaml, "capacity", str(spec), *files, "-f", "json")
        assert ran.code == 0, ran
        (capacity,) = json.loads(ran.out)
        return (gpu["model"], gpu["address"], gpu["used"], gpu["units"]), capacity["least"]

    try:
        for used in (0, 1, 2):
            assert seen() == (("A16-8Q", FIRST, used, 2), 2 - used)
            server = servers.boot(world.api, f"part{used}", flavor, host=host)
            world.guests.append(server)
            assert server.status == ("ACTIVE" if used < len(PARTS) else "ERROR")
        world.nova.control.restart_compute(host)
        world.nova.control.periodic(host)
        world.drop(world.guests[0])
        assert seen() == (("A16-8Q", FIRST, 1, 2), 1)
        for server in list(world.guests):
            world.drop(server)
        # The provider counts both virtual functions: only device_spec takes one of them out of service.
        files = ("--spec", str(spec), "--snapshot", str(snapshot))
        disable = ("gpu", "disable", host, PARTS[0], "--reason", "fault", "--yes", *files)
        for databases in ((), ("--config-file", str(world.nova.nova_conf))):  # unless the card is reserved
            card = execute(world.nova.clouds_yaml, *disable[:3], FIRST, *disable[4:], *databases)
            part = execute(world.nova.clouds_yaml, *disable, *databases)
            assert (card.code, part.code, "for its card" in part.out) == (0, 0, True), part
            assert next(world.api.compute.services(host=host)).status == "enabled"
            enable = ("gpu", "enable", host, FIRST, "--yes", *files, *databases)
            assert execute(world.nova.clouds_yaml, *enable).code == 0
        ran = execute(world.nova.clouds_yaml, *disable)
        assert (ran.code, seen()) == (0, (("A16-8Q", FIRST, 0, 2), 0)), ran
        assert next(world.api.compute.services(host=host)).status == "disabled"
        entry = f'out_of_service: [{{host: {host}, address: "{PARTS[0]}", reason: fault}}]\n'
        spec.write_text(spec.read_text(encoding="utf-8") + entry, encoding="utf-8")
        assert "GPU459" not in listed(world, *files)[1]  # the host is closed
        rendered = execute(
            world.nova.clouds_yaml, "nova", "render", str(spec), host, *files[2:], "--service", "compute"
        )
        assert rendered.code == 0, rendered
        path = tmp_path / "host.conf"
        entries = [line for line in rendered.out.splitlines() if line.startswith("device_spec")]
        assert len(entries) == 1, rendered
        path.write_text("\n".join((nova_conf(release, placement=True), "[pci]", *entries, "")), encoding="utf-8")
        world.nova.control.restart_compute(host, config=[str(path)])
        world.nova.control.periodic(host)
        assert seen() == (("A16-8Q", FIRST, 0, 1), 0)
        assert "unknown" in execute(world.nova.clouds_yaml, *disable).out
        ran = execute(world.nova.clouds_yaml, *disable, "--config-file", str(world.nova.nova_conf))
        assert "out of service: Nova does not have the GPU" in ran.out, ran
        assert next(world.api.compute.services(host=host)).status == "enabled"
        assert seen() == (("A16-8Q", FIRST, 0, 1), 1)
    finally:
        world.api.compute.delete_flavor(flavor)
