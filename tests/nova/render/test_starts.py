"""Nova and Placement run with what gpustack renders: flavors give out the cards they should, and hosts are packed."""

from __future__ import annotations

import configparser
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.base.findings import errors
from gpustack.configure.desired import wanted
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.render import render
from gpustack.nova_options import releases
from gpustack.offer.flavor.apply import plan
from gpustack.offer.flavor.desired import wanted as flavors_of
from gpustack.offer.flavor.flavors import present_flavors
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from gpustack_demo.embedded.hosts import devices_of_snapshot, gpus
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova
from gpustack_demo.embedded.servers import boot, delete, gpu_flavor
from support.change_runs import apply_flavors as apply
from support.host_samples import Raw, function
from support.nova_hosts import host, raw

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: gpu, resource_class: GPU, traits: [BATCH]}
  p100: {match: {vendor: "10de", product: "15f8"}, alias: gpu, resource_class: GPU, traits: [BATCH]}
  a100: {match: {vendor: "10de", product: "20b2", addresses: ["0000:07:00.0", "0000:0f:00.0"]}, numa_policy: required}
  a16: {match: {vendor: "10de", product: "25b6", function: virtual}}
hosts: {gpu01: [k4200], gpu-nic01: [p100], gpu-nv01: {models: [a100], options: {nvswitch: isolated}}, gpu-vf01: [a16]}
nova: {release: "RELEASE", placement: PLACEMENT, class_by: pool}
flavors:
  "gpu-{count}": {model: k4200, count: [1, 2, 3, 4], vcpus: 1, ram: 512, disk: 1}
  batch4: {gpu: {min_memory: 4GiB, traits: [BATCH]}, vcpus: 1, ram: 512, disk: 1}
  batch8: {gpu: {min_memory: 8GiB, traits: [BATCH]}, vcpus: 1, ram: 512, disk: 1}
  "a100-{count}": {model: a100, count: [1, 2], vcpus: 1, ram: 512, disk: 1}
  "a16-{count}": {model: a16, count: [1, 2], vcpus: 1, ram: 512, disk: 1}
"""
PARTS = ["0000:a1:00.1", "0000:a1:00.2"]


def shared() -> list[Raw]:
    """A card whose virtual functions have its ids, as NVIDIA's and Intel's do."""
    card = function("0000:a1:00.0", ids="10de:25b6", driver="nvidia", sriov_totalvfs=2, sriov_numvfs=2)
    part = {"ids": "10de:25b6", "driver": None, "physical_function": "0000:a1:00.0"}
    return [{**card, "virtual_functions": PARTS}, *(function(address, **part) for address in PARTS)]


def apart() -> list[Raw]:
    """Cards and a network port of the host, each in a group of its own."""
    port = "0000:1b:00"
    return [
        {**entry, "iommu_group": 900 + number} if entry["address"].startswith(port) else entry
        for number, entry in enumerate(raw("shared-nic")["pci"])
    ]


FACTS = {
    "gpu01": host("k4200-prepared"),
    "gpu-nic01": host("shared-nic", pci=apart()),
    "gpu-nv01": host("nvswitch"),
    "gpu-vf01": host("k4200-prepared", hostname="gpu-vf01", pci=shared()),
}
PCI = {
    "gpu01": raw("k4200-prepared")["pci"],
    "gpu-nic01": apart(),
    "gpu-nv01": raw("nvswitch")["pci"],
    "gpu-vf01": shared(),
}
CARDS = {
    "gpu": {"gpu01": {"0000:84:00.0", "0000:88:00.0"}, "gpu-nic01": {"0000:1a:00.0", "0000:3b:00.0"}},
    "a100": {"gpu-nv01": {"0000:07:00.0", "0000:0f:00.0"}},
    "a16": {"gpu-vf01": {*PARTS}},
}
"""Of each alias: the addresses on each host."""
NO_HOST = "No valid host was found."
LARGE, SMALL = "large01", "small01"
"""Hosts with 8 and with 2 GPUs of one model, which the spec does not have."""
SIZES = {LARGE: 8, SMALL: 2}
H = '[pci]\nalias = {"name": "h", "vendor_id": "10de", "product_id": "2330", "device_type": "type-PCI"}\n'
OFFERED = '{"vendor_id": "10de", "product_id": "2330"}'
WEIGHER = """\
[filter_scheduler]
weight_classes = nova.scheduler.weights.all_weighers,gpustack_weigher.GpuPackingWeigher
"""


@pytest.fixture(scope="module", params=["off", "schedule"])
def placement(request, release_name) -> str:
    if request.param == "schedule" and releases.release(release_name).major < 27:
        pytest.skip(f"{release_name} has no PCI in Placement")
    return request.param


@pytest.fixture(scope="module")
def spec(release_name, placement) -> Spec:
    return parse_spec(SPEC.replace("RELEASE", release_name).replace("PLACEMENT", placement), "gpustack.yaml")


@pytest.fixture(scope="module")
def files(release_name, spec) -> dict[str, str]:
    """The rendered files by their target."""
    hosts = list(FACTS.values())
    rendering = render(wanted(spec, hosts, release=releases.release(release_name)), hosts=hosts)
    assert errors(rendering.findings) == []
    return {"placement" if "placement" in file.services else file.target: file.text for file in rendering.files}


@pytest.fixture(scope="module")
def nova(release_name, files) -> Iterator[EmbeddedNova]:
    hosts = [EmbeddedHost(name=name, pci=devices_of_snapshot(pci), config=[files[name]]) for name, pci in PCI.items()]
    hosts.append(EmbeddedHost(name="cpu01", config=[files["compute"]]))
    own = f"{H}{releases.device_spec_option(releases.release(release_name)).name} = {OFFERED}\n"
    for name, size in SIZES.items():
        hosts.append(EmbeddedHost(name=name, pci=gpus(size, product="2330"), config=[files["compute"], own]))
    config = [files["control"], H, WEIGHER]
    weigher = Path(__file__).parents[3] / "weigher"
    with EmbeddedNova(release_name, hosts=hosts, config=config, python_path=[weigher]) as running:
        yield running


@pytest.fixture(scope="module")
def cloud(nova):
    with nova.connection() as connection:
        yield connection


@pytest.fixture(scope="module")
def flavors(cloud, spec, release_name):
    """The flavors of the spec, as gpustack makes them, by name."""
    api = present_flavors(cloud)
    desired = flavors_of(spec, release=releases.release(release_name))
    assert not apply(api, plan(api, desired.flavors).operations)
    return {flavor.name: cloud.compute.get_flavor(flavor.id) for flavor in api.flavors()}


def test_a_flavor_by_memory_gets_cards_that_have_it(nova, cloud, flavors):
    """The other host has free cards of the same alias, with less memory."""
    small, large = CARDS["gpu"]["gpu01"], CARDS["gpu"]["gpu-nic01"]
    servers = [boot(cloud, f"batch8-{number}", flavors["batch8"]) for number in range(len(large) + 1)]
    try:
        *placed, last = servers
        assert [server.status for server in servers] == [*(["ACTIVE"] * len(large)), "ERROR"]
        assert last.fault["message"].startswith(NO_HOST)
        assigned = [nova.control.hostdevs(server.id) for server in placed]
        assert {tuple(hosts) for hosts in assigned} == {("gpu-nic01",)}
        assert {address for hosts in assigned for address in hosts["gpu-nic01"]} == large
        servers.append(boot(cloud, "batch4", flavors["batch4"]))
        ((host, addresses),) = nova.control.hostdevs(servers[-1].id).items()
        assert host == "gpu01"
        assert set(addresses) < small
    finally:
        for server in servers:
            delete(cloud, server)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("alias", CARDS)
def test_every_card_goes_to_one_guest_and_one_more_finds_no_host(nova, cloud, flavors, alias, count):
    guests = sum(map(len, CARDS[alias].values())) // count
    servers = [boot(cloud, f"{alias}-{number}", flavors[f"{alias}-{count}"]) for number in range(guests)]
    try:
        assert [(server.status, server.fault) for server in servers] == [("ACTIVE", None)] * len(servers)
        assigned: dict[str, list[str]] = {}
        for server in servers:
            ((host, addresses),) = nova.control.hostdevs(server.id).items()
            assert len(addresses) == count
            assigned.setdefault(host, []).extend(addresses)
        assert {name: sorted(devices) for name, devices in assigned.items()} == {
            name: sorted(devices) for name, devices in CARDS[alias].items()
        }
        servers.append(boot(cloud, f"{alias}-one-more", flavors[f"{alias}-1"]))
        assert servers[-1].status == "ERROR"
        assert servers[-1].fault["message"].startswith(NO_HOST)
    finally:
        for server in servers:
            delete(cloud, server)
        nova.control.periodic()


def test_more_gpus_than_any_host_has_find_no_host_although_that_many_are_free(cloud, flavors):
    server = boot(cloud, "three", flavors["gpu-3"])
    try:
        assert server.status == "ERROR"
        assert server.fault["message"].startswith(NO_HOST)
    finally:
        delete(cloud, server)


@pytest.mark.every_release
def test_nova_tracks_nothing_but_the_cards(nova, placement):
    for name, expected in (("gpu01", 2), ("gpu-nic01", 2), ("gpu-nv01", 2), ("gpu-vf01", 2), ("cpu01", 0)):
        assert sum(pool["count"] for pool in nova.control.tracker(name)["pools"]) == expected, (name, placement)


@pytest.mark.every_release
def test_the_linter_finds_nothing_against_it(files, release_name, tmp_path):
    arguments = []
    for target, text in files.items():
        if target == "placement":
            continue
        path = tmp_path / target / "nova.conf"
        path.parent.mkdir()
        path.write_text(text)
        arguments.append(f"{'api,scheduler,conductor' if target == 'control' else 'compute'}={path}")
    hosts = list(FACTS.values())
    report = lint(arguments, LintSubject(release=releases.release(release_name), hosts=hosts))
    assert errors(report.findings) == []


@pytest.mark.every_release
def test_the_scheduler_reads_the_rendered_multiplier(nova):
    assert nova.control.option("scheduler", "filter_scheduler", "pci_weight_multiplier") == 10.0


@pytest.fixture
def sizes(cloud):
    """An aggregate of the large and the small host."""
    aggregate = cloud.compute.create_aggregate(name="sizes")
    for name in SIZES:
        cloud.compute.add_host_to_aggregate(aggregate, name)
    yield aggregate
    for name in SIZES:
        cloud.compute.remove_host_from_aggregate(aggregate, name)
    cloud.compute.delete_aggregate(aggregate)


def test_the_weigher_prefers_the_larger_used_part(nova, cloud, sizes):
    """Of 8 GPUs, 5 are in use. Nova's own weigher takes the empty host with 2: it has the fewest free GPUs."""
    one, two, three = (gpu_flavor(cloud, f"h-{count}", "h", count) for count in (1, 2, 3))
    servers = [boot(cloud, f"used-{n}", flavor, host=LARGE) for n, flavor in enumerate((two, three))]
    try:
        assert [server.status for server in servers] == ["ACTIVE"] * 2
        for weight, expected in (("0", SMALL), (None, LARGE)):
            cloud.compute.set_aggregate_metadata(sizes, {"gpu_packing_weight_multiplier": weight})
            servers.append(boot(cloud, f"packed-{expected}", one))
            assert (servers[-1].status, servers[-1].compute_host) == ("ACTIVE", expected)
            delete(cloud, servers.pop())
    finally:
        for server in servers:
            delete(cloud, server)
        nova.control.periodic(LARGE)


def candidates(cloud, count: int) -> list[set[str]]:
    """Placement's candidates for a number of GPUs: the providers of each."""
    groups = "&".join(f"resources{n}=CUSTOM_PCI_10DE_2330:1" for n in range(count))
    url = f"/allocation_candidates?resources=VCPU:1&group_policy=none&{groups}"
    answer = cloud.placement.get(url, microversion="1.36").json()
    return [set(candidate["allocations"]) for candidate in answer["allocation_requests"]]


READS = """\
import sys
from oslo_config import cfg
from placement import wsgi
for variables in ({}, {"OS_PLACEMENT_CONFIG_DIR": sys.argv[1]}):
    conf = cfg.ConfigOpts()
    wsgi._parse_args(conf, [], wsgi._get_config_files(variables))
    print(conf.placement.max_allocation_candidates, conf.workarounds.optimize_for_wide_provider_trees)
"""


@pytest.fixture
def for_placement(files) -> str:
    """The rendered file for Placement."""
    if "placement" not in files:
        pytest.skip("without PCI in Placement, and before 2023.2, nothing is rendered for Placement")
    return files["placement"]


@pytest.mark.every_release
def test_placement_reads_the_rendered_drop_in(nova, for_placement, tmp_path):
    """With and without OS_PLACEMENT_CONFIG_DIR; ``~/.placement`` stands for ``/etc/placement``."""
    drop_in = tmp_path / ".placement/placement.conf.d/300-gpustack.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(for_placement)
    directory = drop_in.parents[1]
    (directory / "placement.conf").write_text(
        "[placement_database]\nconnection = x\n[placement]\nmax_allocation_candidates = 5\n"
    )
    command = [nova.environment.program("python"), "-W", "ignore", "-c", READS, directory]
    environment = {**nova.environment.variables(), "HOME": str(tmp_path)}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wide = "optimize_for_wide_provider_trees" in for_placement  # 2025.2's Placement 14 has no such option
    assert process.stdout.splitlines() == [f"1000 {wide}"] * 2


@pytest.fixture
def limited(nova, for_placement):
    """Placement with the options that gpustack renders for it."""
    parser = configparser.ConfigParser()
    parser.read_string(for_placement)
    options = {f"{group}/{name}": value for group in parser.sections() for name, value in parser[group].items()}
    nova.control.configure_placement(options)
    yield lambda **changes: nova.control.configure_placement({f"placement/{k}": v for k, v in changes.items()})
    nova.control.configure_placement(dict.fromkeys(options))


@pytest.mark.every_release
@pytest.mark.usefixtures("for_placement")
def test_the_rendered_options_limit_the_candidates_of_placement(nova, cloud, request):
    assert len(candidates(cloud, 4)) == 8 * 7 * 6 * 5
    limited = request.getfixturevalue("limited")
    assert len(candidates(cloud, 4)) == 1000
    roots = {provider.id for provider in cloud.placement.resource_providers() if provider.name in SIZES}
    limited(max_allocation_candidates="2")
    assert set.union(*candidates(cloud, 2)) >= roots
    limited(allocation_candidates_generation_strategy="depth-first")
    assert not set.union(*candidates(cloud, 2)) >= roots
    limited(max_allocation_candidates="1000", allocation_candidates_generation_strategy="breadth-first")
    server = boot(cloud, "six", gpu_flavor(cloud, "h-6", "h", 6))
    try:
        assert (server.status, server.compute_host) == ("ACTIVE", LARGE)
        assert len(nova.control.hostdevs(server.id)[LARGE]) == 6
    finally:
        delete(cloud, server)
