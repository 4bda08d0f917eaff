"""Real Nova boots a flavor until it finds no valid host: the number is the predicted one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.exceptions import HttpException

from gpustack.changes.change import ChangeResult
from gpustack.cli.app import main
from gpustack.hosts.facts.store import save_snapshot
from gpustack.nova_options.releases import release
from gpustack.novadb.sources import Sources
from gpustack.offer.flavor.apply import plan
from gpustack.offer.flavor.compare import FlavorChoices
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.flavor.flavors import present_flavors
from gpustack.repair.plan import Selection
from gpustack.repair.plan import make as plan_cleanup
from gpustack.spec.load import parse_spec
from gpustack_demo.embedded.nova import IMAGE, EmbeddedHost, EmbeddedNova, gpus
from gpustack_demo.embedded.servers import boot, delete, force_down, service_id, settled
from support.cellfile import answering
from support.change_runs import apply_flavors as apply
from support.cleanup_runs import run as run_cleanup
from support.fleet_answers import facts
from support.members import connection_of, member

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),  # openstacksdk warns of its own code
    pytest.mark.filterwarnings("ignore::openstack.warnings.OpenStackDeprecationWarning"),
]

FILTERS = (
    *("ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter"),
    *("ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter", "NUMATopologyFilter"),
    *("PciPassthroughFilter", "AggregateInstanceExtraSpecsFilter", "AggregateMultiTenancyIsolation"),
    "NumInstancesFilter",
)
CONFIG = """
[DEFAULT]
initial_cpu_allocation_ratio = 2.0
[quota]
instances = -1
cores = -1
ram = -1
[scheduler]
enable_isolated_aggregate_filtering = true
[compute]
cpu_dedicated_set = 0-3,8-11
cpu_shared_set = 4-7,12-15
[pci]
alias = {"name": "k4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}
alias = {"name": "p100", "vendor_id": "10de", "product_id": "15f8", "device_type": "type-PCI"}
alias = {"name": "v100", "vendor_id": "10de", "product_id": "1db4", "device_type": "type-PCI"}
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
device_spec = {"vendor_id": "10de", "product_id": "15f8"}
device_spec = {"vendor_id": "10de", "product_id": "1db4"}
[filter_scheduler]
enabled_filters = FILTERS
max_instances_per_host = 8
""".replace("FILTERS", ",".join(FILTERS))
WITHOUT_PCPU = "\n".join(line for line in CONFIG.splitlines() if not line.startswith("cpu_"))
PLACEMENT = """
[pci]
report_in_placement = true
[filter_scheduler]
pci_in_placement = true
"""
SPEC = """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  p100: {match: {vendor: "10de", product: "15f8"}}
  v100: {match: {vendor: "10de", product: "1db4"}}
hosts: {"gpu[1:2]": [k4200], plain: [p100], split: [v100]}
nova: {release: "RELEASE", placement: PLACEMENT}
flavors:
  resident: {model: k4200, vcpus: 2, ram: 1GiB, disk: 1, cpu_policy: dedicated, numa: {policy: required}}
  "g{count}": {model: k4200, count: [1, 2, 5], vcpus: 1, ram: 512, disk: 1}
  processors: {model: k4200, vcpus: 8, ram: 512, disk: 1}
  too-many-processors: {model: k4200, vcpus: 9, ram: 512, disk: 1}
  memory: {model: k4200, vcpus: 1, ram: HALF_RAM, disk: 1}
  storage: {model: k4200, vcpus: 1, ram: 512, disk: HALF_DISK}
  required: {model: k4200, vcpus: 3, ram: 1GiB, disk: 1, cpu_policy: dedicated, numa: {policy: required}}
  preferred: {model: k4200, vcpus: 3, ram: 1GiB, disk: 1, cpu_policy: dedicated, numa: {policy: preferred}}
  three: {model: k4200, count: 3, vcpus: 1, ram: 1GiB, disk: 1, cpu_policy: dedicated, numa: {policy: required}}
  rack: {model: k4200, vcpus: 1, ram: 512, disk: 1, extra_specs: {"aggregate_instance_extra_specs:rack": <or> a <or> b}}
  trait: {model: k4200, vcpus: 1, ram: 512, disk: 1, extra_specs: {"trait:CUSTOM_FAST": required}}
  plain-dedicated: {model: p100, vcpus: 2, ram: 512, disk: 1, cpu_policy: dedicated}
  plain-isolate: {model: p100, ISOLATED}
  plain-resources: {model: p100, EXPLICIT}
  plain: {model: p100, vcpus: 1, ram: 512, disk: 1}
  split-isolate: {model: v100, ISOLATED}
  split-resources: {model: v100, EXPLICIT}
  split-mixed: {model: v100, vcpus: 4, ram: 512, disk: 1, MIXED}
  devices-only: {model: k4200, vcpus: 1, ram: 512, disk: 1, NOTHING}
  node-memory: {model: k4200, vcpus: 1, ram: 70GiB, disk: 1, numa: {nodes: 1, policy: required}}
"""
SPEC = SPEC.replace(
    "ISOLATED",
    'vcpus: 2, ram: 512, disk: 1, cpu_policy: dedicated, extra_specs: {"hw:emulator_threads_policy": isolate}',
).replace("MIXED", 'extra_specs: {"hw:cpu_policy": mixed, "hw:cpu_dedicated_mask": "0"}')
NOTHING = '{"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}'
SPEC = SPEC.replace("NOTHING", f"extra_specs: {NOTHING}")
SPEC = SPEC.replace("EXPLICIT", 'vcpus: 2, ram: 512, disk: 1, extra_specs: {"resources:PCPU": "2"}')
HOSTS = [
    EmbeddedHost(name="gpu1", pci=gpus(4), cpus_per_node=8),
    EmbeddedHost(name="gpu2", pci=tuple(replace(gpu, numa_node=1) for gpu in gpus(2)), cpus_per_node=8),
    EmbeddedHost(name="plain", pci=gpus(9, product="15f8"), cpus_per_node=8, config=[WITHOUT_PCPU]),
    EmbeddedHost(name="split", pci=gpus(6, product="1db4"), cpus_per_node=8),
]
"""``gpu1`` has two GPUs on each NUMA node, of which one instance has one of node 0; ``gpu2`` has both on node 1.
``plain`` does not distinguish shared and dedicated processors, so that it has no ``PCPU`` in Placement.
"""


WORLDS = [("2025.2", False), ("2026.2", True)]
"""Releases, without and with PCI in Placement."""


class World:
    """A Nova with an instance, and the flavors of a spec."""

    def __init__(self, nova: EmbeddedNova, cloud: Connection, spec: Path, *, placement: bool) -> None:
        self.nova, self.cloud, self.spec, self.placement = nova, cloud, spec, placement
        self.flavors: dict[str, Flavor] = {}
        self.undo: list[Callable[[], object]] = []
        self.group: str | None = None
        """The server group of the next instance."""
        self.other = cloud
        """The connection of another project, with ``make why``."""

    def predicted(
        self, flavor: str, capsys: pytest.CaptureFixture[str], *options: str, databases: bool = True
    ) -> dict[str, Any]:
        """The row of a flavor in the output of the command."""
        # The second has the filters of the scheduler.
        files = (self.nova.nova_conf, self.nova.directory / "etc" / "api") if databases else ()
        more = [*options, *(word for file in files for word in ("--config-file", str(file)))]
        capsys.readouterr()
        code = main(["capacity", str(self.spec), "--flavor", flavor, "-f", "json", *more])
        output = capsys.readouterr()
        assert code == 0, output.err
        (row,) = json.loads(output.out)
        return dict(row)

    def booted(self, flavor: str, **placement: str) -> int:
        """Boot instances until Nova finds no valid host, and delete them."""
        servers: list[Server] = []
        try:
            while len(servers) < 20:
                server = boot(self.cloud, f"{flavor}-{len(servers)}", self.flavors[flavor], **placement)
                servers.append(server)
                if server.status == "ERROR":
                    assert server.fault["message"].startswith("No valid host was found."), server.fault
                    return len(servers) - 1
        finally:
            for server in servers:
                self.cloud.compute.delete_server(server.id)
            for server in servers:
                delete(self.cloud, server)
        raise AssertionError(f"{flavor}: 20 instances, and no end")


@pytest.fixture(scope="module", params=WORLDS, ids=["2025.2", "2026.2-placement"])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    name, placement = request.param
    config = CONFIG + PLACEMENT if placement else CONFIG
    plain = [WITHOUT_PCPU + PLACEMENT if placement else WITHOUT_PCPU]
    hosts = [replace(host, config=plain) if host.config else host for host in HOSTS]
    real = {"keystone": True, "images": True} if "GPUSTACK_WHY" in os.environ else {}
    with EmbeddedNova(name, hosts=hosts, config=[config], **real) as nova, nova.connection() as connection:
        listed = connection.compute.get("/os-hypervisors/detail", microversion="2.53").json()["hypervisors"]
        text = SPEC.replace("RELEASE", name).replace("PLACEMENT", "schedule" if placement else "off")
        text = text.replace("HALF_DISK", str(listed[0]["local_gb"] // 2 + 1))
        text = text.replace("HALF_RAM", str(listed[0]["memory_mb"] // 2 + 1))
        path = tmp_path_factory.mktemp("capacity") / "gpustack.yaml"
        path.write_text(text)
        world = World(nova, connection, path, placement=placement)
        api = present_flavors(connection)
        desired = wanted(parse_spec(text, "spec"), release=release(name))
        assert not apply(api, plan(api, desired.flavors, FlavorChoices()).operations, jobs=1)
        world.flavors = {flavor.name: connection.compute.get_flavor(flavor.id) for flavor in api.flavors()}
        if real:
            directory = tmp_path_factory.mktemp("other")
            world.other = connection_of(member(connection, nova.clouds_yaml, directory, user="eve", project="other"))
            make_flavors(world)
        resident = boot(connection, "resident", world.flavors["resident"], host="gpu1")
        assert resident.status == "ACTIVE", resident.fault
        yield world


@pytest.fixture
def world(cloud: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The shared Nova, and the environment that leads to it."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    for name, value in cloud.nova.variables().items():
        if name.startswith("OS_"):
            monkeypatch.setenv(name, value)
    return cloud


@pytest.mark.parametrize(
    ("flavor", "number", "reasons"),
    [
        pytest.param("g1", 5, [], id="GPUs"),
        pytest.param("g2", 2, ["fragments"], id="fragments"),
        pytest.param("processors", 4, ["vCPUs"], id="processors"),
        pytest.param("memory", 2, ["RAM"], id="memory"),
        pytest.param("required", 2, ["NUMA nodes"], id="numa-required"),
        pytest.param("node-memory", 3, ["NUMA nodes"], id="numa-memory"),
        pytest.param("plain", 8, ["instances"], id="instances"),
    ],
)
def test_nova_refuses_after_the_predicted_number(
    world: World, flavor: str, number: int, reasons: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    compare(world, flavor, number, reasons, capsys)


@pytest.mark.parametrize(
    ("flavor", "host", "step"),
    [
        ("plain-resources", "plain", "Placement: PCPU"),
        ("too-many-processors", "gpu1", "Placement: max_unit"),
        ("three", "gpu1", "NUMATopologyFilter"),
        ("g5", "gpu1", "PciPassthroughFilter"),
    ],
)
def test_why_names_the_step_of_novas_log(
    world: World, flavor: str, host: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if step == "PciPassthroughFilter" and world.placement:
        step = "Placement: CUSTOM_PCI_10DE_11B4"
    files = (world.nova.nova_conf, world.nova.directory / "etc" / "api")
    more = [word for file in files for word in ("--config-file", str(file))]
    capsys.readouterr()
    code = main(["why", "flavor", flavor, "--spec", str(world.spec), "-f", "json", "--exit-code", *more])
    output = capsys.readouterr()
    assert code == 3, output.err
    rows = json.loads(output.out)
    assert {row["step"] for row in rows if host in row["hosts"]} == {step}
    # Nova logs the filter that refuses the last hosts; Placement accepts some without these GPUs.
    filters = [name for name in FILTERS if name in {row["step"] for row in rows}]
    before = world.nova.log.stat().st_size
    assert world.booted(flavor) == 0
    log = world.nova.log.read_bytes()[before:].decode()
    if not filters:
        assert "Got no allocation candidates from the Placement API" in log
    else:
        assert re.search(rf"Filter results: .*{filters[-1]}: \(start: \d+, end: 0\)", log), log[-2000:]


@pytest.mark.parametrize(
    ("flavor", "number"),
    [
        ("plain-dedicated", 8),  # two of 16 processors each; Nova's second request, for VCPU
        ("plain-isolate", 4),  # three of eight on a node
        ("plain-resources", 0),  # without a second request
        ("split-isolate", 2),  # three of four dedicated ones on a node
        ("split-resources", 4),
        ("split-mixed", 4),  # three of 16 shares, and one dedicated one
    ],
)
def test_nova_boots_the_predicted_number_with_dedicated_processors(
    world: World, flavor: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    row = world.predicted(flavor, capsys)
    booted = world.booted(flavor)
    assert (row["least"], row["most"], booted) == (number, number, number), row


@pytest.mark.parametrize(
    ("flavor", "number", "reasons"),
    [
        pytest.param("too-many-processors", 0, ["Placement"], id="too-many-processors"),
        pytest.param("storage", 2, ["disk"], id="disk"),
        pytest.param("devices-only", 0, ["Placement"], id="devices-only"),
        pytest.param("preferred", 3, ["NUMA nodes"], id="numa-preferred"),
        pytest.param("three", 0, ["NUMA nodes", "fragments"], id="numa-required-three-GPUs"),
    ],
)
@pytest.mark.every_release
def test_nova_refuses_after_the_predicted_number_for_further_reasons(
    world: World, flavor: str, number: int, reasons: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if not world.placement:
        pytest.skip("one release is enough: these limits do not depend on PCI in Placement")
    compare(world, flavor, number, reasons, capsys)


def compare(world: World, flavor: str, number: int, reasons: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Compare the prediction with the number of instances that Nova boots."""
    row = world.predicted(flavor, capsys)
    booted = world.booted(flavor)
    assert (row["least"], row["most"], booted) == (booted, booted, booted), row
    assert [limit["reason"] for limit in row["limits"]] == reasons
    assert booted == number


def test_a_disabled_host_gets_none(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    service = service_id(world.cloud, "gpu2")
    world.cloud.compute.disable_service(service)
    try:
        row = world.predicted("g2", capsys)
        assert (row["least"], row["most"], world.booted("g2")) == (1, 1, 1)
        assert [(limit["reason"], limit["gpus"]) for limit in row["limits"]] == [("disabled", 2), ("fragments", 1)]
    finally:
        world.cloud.compute.enable_service(service)


def test_a_host_that_is_forced_down_gets_none(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    force_down(world.cloud, "gpu2")
    try:
        row = world.predicted("g2", capsys)
        assert (row["least"], row["most"], world.booted("g2")) == (1, 1, 1)
        assert [(limit["reason"], limit["gpus"]) for limit in row["limits"]] == [("down", 2), ("fragments", 1)]
    finally:
        force_down(world.cloud, "gpu2", down=False)


@pytest.mark.every_release
def test_a_reserved_gpu_is_not_counted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    if not world.placement:
        pytest.skip("GPUs are reserved in Placement")
    with reserved(world.cloud, "gpu2_0000:81:00.0"):
        for databases in (True, False):
            row = world.predicted("g2", capsys, databases=databases)
            assert (row["least"], row["most"]) == (1, 1)
            assert [(limit["reason"], limit["gpus"]) for limit in row["limits"]] == [("fragments", 2), ("reserved", 1)]
        assert world.booted("g2") == 1


def test_aggregates_and_zones_limit_the_hosts(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    compute = world.cloud.compute
    aggregate = compute.create_aggregate(name="racks", availability_zone="az2")
    try:
        compute.add_host_to_aggregate(aggregate, "gpu2")
        compute.set_aggregate_metadata(aggregate, {"rack": "b, c"})
        row = world.predicted("rack", capsys)
        assert (row["least"], row["most"], world.booted("rack")) == (2, 2, 2)
        assert [(limit["reason"], limit["gpus"]) for limit in row["limits"]] == [("aggregate", 3)]
        row = world.predicted("g1", capsys, "--availability-zone", "az2")
        assert (row["least"], row["most"], world.booted("g1", availability_zone="az2")) == (2, 2, 2)
        assert [(limit["reason"], limit["gpus"]) for limit in row["limits"]] == [("availability zone", 3)]
        assert {entry["zone"] for entry in row["hosts"]} == {None, "az2"}
    finally:
        compute.remove_host_from_aggregate(aggregate, "gpu2")
        compute.delete_aggregate(aggregate)
    row = world.predicted("rack", capsys)
    assert (row["least"], row["most"]) == (0, 0)


@pytest.mark.every_release
def test_a_trait_limits_the_hosts(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    if not world.placement:
        pytest.skip("one release is enough: traits do not depend on PCI in Placement")
    assert world.predicted("trait", capsys)["most"] == 0  # nobody has it
    placement = world.cloud.placement
    assert placement.put("/traits/CUSTOM_FAST", microversion="1.6").ok
    (root,) = placement.get("/resource_providers?name=gpu2").json()["resource_providers"]
    path = f"/resource_providers/{root['uuid']}/traits"
    content = placement.get(path, microversion="1.6").json()
    assert placement.put(path, json={**content, "traits": [*content["traits"], "CUSTOM_FAST"]}, microversion="1.6").ok
    row = world.predicted("trait", capsys)
    assert (row["least"], row["most"], world.booted("trait")) == (2, 2, 2)
    assert [(limit["reason"], limit["gpus"]) for limit in row["limits"]] == [("Placement", 3)]


@contextlib.contextmanager
def reserved(cloud: Connection, name: str) -> Iterator[None]:
    """Reserve a device in Placement."""
    (provider,) = cloud.placement.get(f"/resource_providers?name={name}").json()["resource_providers"]
    path = f"/resource_providers/{provider['uuid']}/inventories"

    def reserve(count: int) -> None:
        inventories = cloud.placement.get(path).json()
        for inventory in inventories["inventories"].values():
            inventory["reserved"] = count
        assert cloud.placement.put(path, json=inventories, microversion="1.26").ok

    reserve(1)
    try:
        yield
    finally:
        reserve(0)


@pytest.mark.every_release
def test_without_the_databases_a_number_is_not_shown_as_certain(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    g1, required = (world.predicted(name, capsys, databases=False) for name in ("g1", "required"))
    if world.placement:
        assert (g1["least"], g1["most"]) == (5, 5)
        assert (required["least"], required["most"]) == (0, 4)  # processors by host, not by node
    else:
        assert (g1["least"], g1["most"], g1["free_gpus"]) == (0, None, 0)
        assert required["most"] is None
    assert required["doubts"]


def why(world: World, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    """The answer of a command of ``gpustack why``."""
    files = (world.nova.nova_conf, world.nova.directory / "etc" / "api")
    more = [word for file in files for word in ("--config-file", str(file))]
    capsys.readouterr()
    code = main(["why", *words, "--spec", str(world.spec), "-f", "json", *more])
    output = capsys.readouterr()
    return code, dict(json.loads(output.out)) if output.out else {}, output.err


def test_a_failed_instance_has_the_phase_and_fits_later(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    services = [service_id(world.cloud, host.name) for host in HOSTS if host.name.startswith("gpu")]
    for service in services:
        world.cloud.compute.disable_service(service)
    server = boot(world.cloud, "refused", world.flavors["g1"])
    try:
        code, found, err = why(world, capsys, "instance", "refused", "--exit-code")
        assert code == 3, err
        assert (found["phase"], found["fits_on"]) == ("scheduler", [])
        assert found["reason"].startswith("No valid host was found")
        assert "compute_status_filter" in {cause["step"] for cause in found["causes"]}
    finally:
        for service in services:
            world.cloud.compute.enable_service(service)
    _code, found, err = why(world, capsys, "instance", server.id)
    assert set(found["fits_on"]) == {"gpu1", "gpu2"}
    assert "fits on 2 hosts now" in err
    delete(world.cloud, server)


def test_the_log_of_the_scheduler_is_quoted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    server = boot(world.cloud, "three", world.flavors["three"])
    _code, found, err = why(world, capsys, "instance", server.id, "--scheduler-log", str(world.nova.log))
    assert "NUMATopologyFilter: (start: " in found["log"][-1], err
    assert "NUMATopologyFilter" in {cause["step"] for cause in found["causes"]}
    assert "GPU582" not in {entry["code"] for entry in found["findings"]}
    delete(world.cloud, server)


def test_a_failed_spawn_names_the_hosts_that_were_tried(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for host in HOSTS[:2]:
        world.nova.control.fail(host.name, "spawn")
    server = boot(world.cloud, "unbuilt", world.flavors["g1"])
    for host in HOSTS[:2]:
        world.nova.control.clear_faults(host.name)
    _code, found, err = why(world, capsys, "instance", server.id)
    assert (found["status"], found["phase"]) == ("ERROR", "build"), err
    assert set(found["tried"]) <= {"gpu1", "gpu2"}
    assert found["tried"]
    assert "GPU581" in {entry["code"] for entry in found["findings"]}
    delete(world.cloud, server)


def test_each_gpu_of_a_running_instance_is_followed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = why(world, capsys, "instance", "resident")
    assert code == 0, err
    (gpu,) = found["gpus"]
    in_placement = True if world.placement else None
    assert (gpu["alias"], gpu["row"], gpu["placement"], gpu["broken"]) == ("k4200", True, in_placement, None)
    with lost_row(world, found["instance"]):
        _code, found, _err = why(world, capsys, "instance", "resident")
    assert [gpu["broken"] for gpu in found["gpus"]] == ["row"]
    assert "GPU584" in {entry["code"] for entry in found["findings"]}


def test_each_gpu_of_a_host_is_followed(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``gpu2`` has both of its GPUs free; then a row is gone, as before nova-compute starts again."""
    save_snapshot(tmp_path / "fleet.json", [facts("gpu2", 0x81, 0x82).model_dump(mode="json", by_alias=True)])
    files = (world.nova.nova_conf, world.nova.directory / "etc" / "api")
    more = [word for file in files for word in ("--config-file", str(file))]
    words = ["--spec", str(world.spec), "--snapshot", str(tmp_path / "fleet.json"), "-f", "json", *more]
    engine = sa.create_engine(world.nova.database_url())
    where = (
        "address = '0000:82:00.0'"
        " AND compute_node_id = (SELECT id FROM compute_nodes WHERE host = 'gpu2' AND deleted = 0)"
    )
    try:
        for deleted, broken, text in (("0", None, "2 free"), ("id", "row", "1 in Nova (restart nova-compute)")):
            with engine.begin() as connection:
                connection.execute(sa.text(f"UPDATE pci_devices SET deleted = {deleted} WHERE {where}"))
            capsys.readouterr()
            code = main(["why", "host", "gpu2", *words])
            output = capsys.readouterr()
            assert code == 0, output.err
            links = {row["address"]: row["broken"] for row in json.loads(output.out)}
            assert links == {"0000:81:00.0": None, "0000:82:00.0": broken}, output.err
            assert text in output.err
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE pci_devices SET deleted = 0 WHERE {where}"))
        engine.dispose()


@contextlib.contextmanager
def lost_row(world: World, instance: str) -> Iterator[None]:
    """Free the row of an instance, and assign it again."""
    engine = sa.create_engine(world.nova.database_url())
    where = {"vm": instance}
    with engine.begin() as connection:
        query = sa.text("SELECT id, request_id FROM pci_devices WHERE instance_uuid = :vm")
        rows = [dict(row) for row in connection.execute(query, where).mappings()]
        free = "UPDATE pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL"
        connection.execute(sa.text(f"{free} WHERE instance_uuid = :vm"), where)
    try:
        yield
    finally:
        take = "UPDATE pci_devices SET status = 'allocated', instance_uuid = :vm, request_id = :request_id"
        with engine.begin() as connection:
            for row in rows:
                connection.execute(sa.text(f"{take} WHERE id = :id"), {**row, **where})
        engine.dispose()


@contextlib.contextmanager
def disabled(world: World) -> Iterator[None]:
    services = [service_id(world.cloud, name) for name in ("gpu1", "gpu2")]
    for service in services:
        world.cloud.compute.disable_service(service)
    try:
        yield
    finally:
        for service in services:
            world.cloud.compute.enable_service(service)


@contextlib.contextmanager
def down(world: World) -> Iterator[None]:
    for name in ("gpu1", "gpu2"):
        force_down(world.cloud, name)
    try:
        yield
    finally:
        for name in ("gpu1", "gpu2"):
            force_down(world.cloud, name, down=False)


@contextlib.contextmanager
def other_racks(world: World) -> Iterator[None]:
    """No aggregate has the rack of the flavor; the fix adds one."""
    compute = world.cloud.compute
    yield
    aggregate = compute.create_aggregate(name="situations")
    compute.add_host_to_aggregate(aggregate, "gpu2")
    compute.set_aggregate_metadata(aggregate, {"rack": "a"})
    world.undo.append(lambda: compute.remove_host_from_aggregate(aggregate, "gpu2"))
    world.undo.append(lambda: compute.delete_aggregate(aggregate))


@contextlib.contextmanager
def empty_zone(world: World) -> Iterator[None]:
    """A zone without a GPU; the fix adds a host."""
    compute = world.cloud.compute
    aggregate = compute.create_aggregate(name="situations", availability_zone="az3")
    compute.add_host_to_aggregate(aggregate, "plain")
    yield
    compute.add_host_to_aggregate(aggregate, "gpu2")
    world.undo += [lambda name=name: compute.remove_host_from_aggregate(aggregate, name) for name in ("gpu2", "plain")]
    world.undo.append(lambda: compute.delete_aggregate(aggregate))


@contextlib.contextmanager
def taken(world: World, *flavors: str) -> Iterator[None]:
    """Instances hold what the flavor needs; the fix deletes them."""
    servers = [boot(world.cloud, f"holder-{n}", world.flavors[name]) for n, name in enumerate(flavors)]
    assert {server.status for server in servers} == {"ACTIVE"}
    try:
        yield
    finally:
        for server in servers:
            delete(world.cloud, server)


@contextlib.contextmanager
def in_aggregate(world: World, metadata: dict[str, str]) -> Iterator[None]:
    """An aggregate of both hosts with GPUs; the fix removes it."""
    compute = world.cloud.compute
    aggregate = compute.create_aggregate(name="situations")
    for name in ("gpu1", "gpu2"):
        compute.add_host_to_aggregate(aggregate, name)
    compute.set_aggregate_metadata(aggregate, metadata)
    try:
        yield
    finally:
        for name in ("gpu1", "gpu2"):
            compute.remove_host_from_aggregate(aggregate, name)
        compute.delete_aggregate(aggregate)


@contextlib.contextmanager
def quota(world: World, name: str, value: str) -> Iterator[None]:
    """A quota of the project; the fix removes it."""
    path = f"/os-quota-sets/{world.cloud.current_project_id}"
    assert world.cloud.compute.put(path, json={"quota_set": {name: int(value), "force": True}}).ok
    try:
        yield
    finally:
        assert world.cloud.compute.put(path, json={"quota_set": {name: -1, "force": True}}).ok


@contextlib.contextmanager
def private(world: World) -> Iterator[None]:
    """Another project boots; the fix gives it access."""
    yield
    world.cloud.compute.flavor_add_tenant_access(world.flavors["private"], world.other.current_project_id)


@contextlib.contextmanager
def all_reserved(world: World) -> Iterator[None]:
    """Every GPU is reserved in Placement; the fix returns them."""
    providers = world.cloud.placement.get("/resource_providers").json()["resource_providers"]
    with contextlib.ExitStack() as stack:
        for provider in providers:
            if re.match(r"gpu[12]_0000:", provider["name"]):
                stack.enter_context(reserved(world.cloud, provider["name"]))
        yield


@contextlib.contextmanager
def stale(world: World) -> Iterator[None]:
    """A migration that failed on its source pins a GPU of ``gpu1``; instances hold the others."""
    moved = boot(world.cloud, "moved", world.flavors["g1"], host="gpu2")
    world.nova.control.fail("gpu2", "copy")
    world.cloud.compute.migrate_server(moved, host="gpu1")
    if settled(world.cloud, moved).status == "ERROR":
        world.cloud.compute.reset_server_state(moved, "active")
    world.nova.control.clear_faults("gpu2")
    world.nova.control.periodic()
    try:
        with taken(world, "g1", "g1", "g1"):
            yield
            sources = Sources.from_nova_conf([world.nova.nova_conf])
            selection = Selection(grace=timedelta(0))
            repairs = [verdict.to_dict() for verdict in plan_cleanup(sources, selection).repairs]
            assert {repair["host"] for repair in repairs} == {"gpu1"}, repairs
            path = world.spec.with_name("journal.jsonl")
            outcomes = run_cleanup(
                sources, path, repairs, lambda host: answering(sources, using(world, host))(host), selection
            )
            assert {outcome.result for outcome in outcomes} == {ChangeResult.DONE}, outcomes
            world.nova.control.periodic()
            fixed = boot(world.cloud, "after", world.flavors["g1"])
            assert fixed.status == "ACTIVE", fixed.fault
            delete(world.cloud, fixed)
    finally:
        delete(world.cloud, moved)


def using(world: World, host: str) -> dict[str, frozenset[str]]:
    """The users of the devices of a host's domains."""
    domains = world.nova.control.domains(host)
    return {address: frozenset({domain["uuid"]}) for domain in domains for address in domain["hostdevs"]}


@contextlib.contextmanager
def grouped(world: World, policy: str, *hosts: str) -> Iterator[None]:
    """Instances of a server group are on hosts; the fix deletes them."""
    group = world.cloud.compute.create_server_group(name=policy, policy=policy)
    world.group = group.id
    servers = [boot(world.cloud, f"member-{host}", world.flavors["g1"], host=host, group=group.id) for host in hosts]
    assert {server.status for server in servers} == {"ACTIVE"}
    try:
        with contextlib.ExitStack() as stack:
            if policy == "affinity":  # no GPU is left beside the member
                stack.enter_context(taken_on(world, *hosts))
            yield
    finally:
        for server in servers:
            delete(world.cloud, server)
        world.undo.append(lambda: world.cloud.compute.delete_server_group(group))


STATES: dict[str, Callable[..., contextlib.AbstractContextManager[None]]] = {
    "": lambda _world: contextlib.nullcontext(),
    "disabled": disabled,
    "down": down,
    "other_racks": other_racks,
    "empty_zone": empty_zone,
    "taken": taken,
    "quota": quota,
    "private": private,
    "all_reserved": all_reserved,
    "grouped": grouped,
    "stale": stale,
    "other_projects": lambda world: in_aggregate(world, {"filter_tenant_id": "0" * 32}),
    "isolating": lambda world: in_aggregate(world, {"trait:CUSTOM_ISOLATED": "required"}),
}
SITUATIONS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "situations.yaml").read_text())
BASE = {"pci_passthrough:alias": "k4200:1"}
MADE: dict[str, dict[str, str]] = {
    "private": {},
    "custom-resource": {"resources:CUSTOM_LICENSE": "1"},
    "trait-slow": {"trait:CUSTOM_SLOW": "required"},
    "trait-forbidden": {"trait:CUSTOM_SLOW": "forbidden"},
    "other-policy": {"hw:pci_numa_affinity_policy": "strict"},
    "threads": {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
    "tpm": {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"},
    "pages": {"hw:mem_page_size": "1048576"},
    "unknown-alias": {"pci_passthrough:alias": "nowhere:1"},
    "indivisible": {"hw:numa_nodes": "3"},
    "shared": {"hw:cpu_policy": "shared"},
    "two-nodes": {"hw:numa_nodes": "2"},
    "no-mask": {"hw:cpu_policy": "mixed"},
    "real-time": {"hw:cpu_realtime": "yes"},
    "emulator": {"hw:emulator_threads_policy": "isolate"},
}
"""Flavors of situations that a spec would not have."""


def make_flavors(world: World) -> None:
    compute = world.cloud.compute
    for name, specs in MADE.items():
        flavor = compute.create_flavor(name=name, vcpus=2, ram=512, disk=1, is_public=name != "private")
        compute.create_flavor_extra_specs(flavor, {**BASE, **specs})
        world.flavors[name] = flavor


def predicted(world: World, case: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The rows of ``why flavor``, which sees the state as the scheduler will."""
    projects = {"own": world.cloud, "other": world.other}
    options = {"--availability-zone": case.get("zone")}
    options["--project"] = projects[case["project"]].current_project_id if "project" in case else None
    if "image" in case:
        data, formats = io.BytesIO(b"0" * 512), {"disk_format": "raw", "container_format": "bare"}
        options["--image"] = world.cloud.image.create_image(
            name="situation", data=data, wait=True, visibility="public", **formats, **case["image"]
        ).id
    files = (world.nova.nova_conf, world.nova.directory / "etc" / "api")
    more = [word for file in files for word in ("--config-file", str(file))]
    more += [word for name, value in options.items() if value for word in (name, value)]
    capsys.readouterr()
    code = main(["why", "flavor", case["flavor"], "--spec", str(world.spec), "-f", "json", "--exit-code", *more])
    output = capsys.readouterr()
    assert code == 3, output.err
    return list(json.loads(output.out))


@contextlib.contextmanager
def taken_on(world: World, *hosts: str) -> Iterator[None]:
    """An instance holds another GPU of each host."""
    servers = [boot(world.cloud, f"beside-{host}", world.flavors["g1"], host=host) for host in hosts]
    assert {server.status for server in servers} == {"ACTIVE"}
    yield
    for server in servers:
        delete(world.cloud, server)


def refusal(world: World, case: dict[str, Any], name: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any]:
    """The API's fault or the scheduler's log, and for a case with a group, the rows of ``why instance``."""
    more = {"availability_zone": case["zone"]} if "zone" in case else {}
    more |= {"image": world.nova.control.image(case["image"])} if "image" in case else {}
    more |= {"group": world.group} if "group" in case else {}
    before = world.nova.log.stat().st_size
    cloud = world.other if case.get("project") == "other" else world.cloud
    try:
        server = boot(cloud, name.replace(" ", "-"), world.flavors[case["flavor"]], **more)
    except HttpException as error:
        return f"API: {error.details or error}", None
    assert server.status == "ERROR"
    rows = why(world, capsys, "instance", server.id)[1]["causes"] if "group" in case else None
    delete(world.cloud, server)
    return world.nova.log.read_bytes()[before:].decode(), rows


@pytest.mark.skipif("GPUSTACK_WHY" not in os.environ, reason="make why runs the situations")
@pytest.mark.parametrize("name", [name for name in SITUATIONS if name != "lost race"])
@pytest.mark.every_release
def test_the_predicted_step_is_novas_and_the_fix_works(
    world: World, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``why flavor`` names the step of nova-scheduler or of the API; once the cause is gone, the flavor boots."""
    case, world.undo = SITUATIONS[name], []
    if case.get("placement") and not world.placement:
        pytest.skip("needs PCI in Placement")
    gpus, step = set(case.get("hosts", "gpu1 gpu2").split()), case["step"]
    if step == "PCI":
        step = "Placement: CUSTOM_PCI_10DE_11B4" if world.placement else "PciPassthroughFilter"
    state, *words = case.get("state", "").split() or [""]
    try:
        with STATES[state](world, *words):
            rows = [] if "group" in case else predicted(world, case, capsys)
            novas, of_instance = refusal(world, case, name, capsys)
            rows = of_instance or rows
            found = {(row["step"], row["code"]) for row in rows if gpus & set(row["hosts"])}
            # With PCI in Placement, hosts without enough GPUs reach no filter.
            early = world.placement and step != "PciPassthroughFilter"
            steps = {"GPU579": "Placement: CUSTOM_PCI_10DE_11B4"} if early else {}
            expected, maybe = (
                {(steps.get(code, step), code) for code in case.get(key, "").split()} for key in ("code", "maybe")
            )
            assert found - maybe == expected, f"{found}\n{novas[-3000:]}"
            check_step(rows, case, gpus, novas)
        cloud = world.other if case.get("project") == "other" else world.cloud
        zone = {"availability_zone": case["zone"]} if "zone" in case else {}
        zone |= {"group": world.group} if "group" in case else {}
        server = boot(cloud, "fixed", world.flavors[case.get("fixed", case["flavor"])], **zone)
        assert server.status == "ACTIVE", server.fault
        delete(world.cloud, server)
    finally:
        for undo in world.undo:
            undo()


@pytest.mark.skipif("GPUSTACK_WHY" not in os.environ, reason="make why runs the situations")
@pytest.mark.every_release
def test_an_instance_that_lost_a_race_names_the_claim(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two schedulers choose the last GPU for two instances: the second one reads the host as before the first."""
    if world.placement:
        pytest.skip("with PCI in Placement, the scheduler allocates the GPU before nova-compute claims it")
    case, compute, control = SITUATIONS["lost race"], world.cloud.compute, world.nova.control
    engine = sa.create_engine(world.nova.database_url())
    with taken(world, "g1", "g1", "g1", "g1"):
        for host in ("gpu1", "gpu2"):
            control.fail(host, "claim", action="hang", times=0)
        racers = []
        try:
            for number in (1, 2):
                more = {"flavor_id": world.flavors[case["flavor"]].id, "image_id": IMAGE, "networks": "none"}
                racers.append(compute.create_server(name=f"racer-{number}", **more))
                deadline = time.monotonic() + 60
                while sum(control.hits(host, "claim") for host in ("gpu1", "gpu2")) < number:
                    assert time.monotonic() < deadline, world.nova.log.read_text()[-3000:]
                    time.sleep(0.1)
                with engine.begin() as connection:  # newer than the scheduler's own record of the first choice
                    later = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=2)
                    connection.execute(sa.text("UPDATE compute_nodes SET updated_at = :later"), {"later": later})
        finally:
            engine.dispose()
            for host in ("gpu1", "gpu2"):
                control.clear_faults(host)
        states = {server.status: server for server in (settled(world.cloud, racer) for racer in racers)}
        assert set(states) == {"ACTIVE", "ERROR"}, states
        loser = states["ERROR"]
        assert case["fault"] in loser.fault["message"], loser.fault
        # The embedded Nova's lines lack the instance, which a deployment's have.
        assert "Failed to claim: Claim pci failed" in world.nova.log.read_text()
        log = tmp_path / "nova-compute.log"
        log.write_text(
            f"INFO nova.compute.claims [None req-1] [instance: {loser.id}] Failed to claim: Claim pci failed\n"
        )
        for words, text in (
            ([], "now PciPassthroughFilter (needs 1, free: 0)"),
            (["--scheduler-log", str(log)], "Claim pci failed"),
        ):
            _code, found, err = why(world, capsys, "instance", loser.id, *words)
            assert (found["phase"], len(found["tried"])) == ("build", 1), err
            lost = [entry["message"] for entry in found["findings"] if entry["code"] == case["code"]]
            assert text in ", ".join(lost), found["findings"]
        for server in states.values():
            delete(world.cloud, server)
        fixed = boot(world.cloud, "fixed", world.flavors[case["flavor"]])
        assert fixed.status == "ACTIVE", fixed.fault
        delete(world.cloud, fixed)


def check_step(rows: list[dict[str, Any]], case: dict[str, Any], gpus: set[str], novas: str) -> None:
    """Compare the hosts that each filter removed with the predicted ones.

    Placement may refuse hosts without GPUs of the flavor earlier: they are not asked about.
    """
    if case["step"].startswith("API"):
        assert novas.startswith("API: ")
        assert case["fault"].lower() in novas.lower(), novas
        return
    results = re.findall(r"'?(\w+): \(start: (\d+), end: (\d+)\)", novas)
    if not results:
        assert "Got no allocation candidates" in novas, novas[-3000:]
    for name in FILTERS:
        hosts = {host for row in rows if row["step"] == name for host in row["hosts"]}
        removed = sum(int(start) - int(end) for logged, start, end in results if logged == name)
        assert len(hosts & gpus) <= removed <= len(hosts), (name, rows, results)
