"""Real Nova boots a flavor until it finds no valid host: the number is the predicted one."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server
from openstack.connection import Connection

from gpustack.cli.app import main
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.apply import plan
from gpustack.offer.flavor.compare import FlavorChoices
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.flavor.flavors import present_flavors
from gpustack.spec.load import parse_spec
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from gpustack_demo.embedded.servers import boot, delete, force_down, service_id
from support.change_runs import apply_flavors as apply

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),  # openstacksdk warns of its own code
    pytest.mark.filterwarnings("ignore::openstack.warnings.OpenStackDeprecationWarning"),
]

FILTERS = (
    *("ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter", "NUMATopologyFilter"),
    *("PciPassthroughFilter", "AggregateInstanceExtraSpecsFilter"),
)
CONFIG = """
[DEFAULT]
initial_cpu_allocation_ratio = 2.0
[quota]
instances = -1
cores = -1
ram = -1
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
  split-isolate: {model: v100, ISOLATED}
  split-resources: {model: v100, EXPLICIT}
  split-mixed: {model: v100, vcpus: 4, ram: 512, disk: 1, MIXED}
  node-memory: {model: k4200, vcpus: 1, ram: 70GiB, disk: 1, numa: {nodes: 1, policy: required}}
"""
SPEC = SPEC.replace(
    "ISOLATED",
    'vcpus: 2, ram: 512, disk: 1, cpu_policy: dedicated, extra_specs: {"hw:emulator_threads_policy": isolate}',
).replace("MIXED", 'extra_specs: {"hw:cpu_policy": mixed, "hw:cpu_dedicated_mask": "0"}')
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
    with EmbeddedNova(name, hosts=hosts, config=[config]) as nova, nova.connection() as connection:
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


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A state of the cloud that keeps a flavor off all hosts.

    :ivar step: the first step at which Nova refuses the hosts with GPUs.
    :ivar made: makes the state; the end of the context is the printed fix.
    :ivar code: of the finding.
    """

    flavor: str
    step: str
    code: str
    made: Callable[[World], contextlib.AbstractContextManager[None]]
    zone: str = ""


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


SITUATIONS = {
    "disabled": Situation(flavor="g1", step="compute_status_filter", code="GPU574", made=disabled),
    "down": Situation(flavor="g1", step="ComputeFilter", code="GPU575", made=down),
    "metadata": Situation(flavor="rack", step="AggregateInstanceExtraSpecsFilter", code="GPU573", made=other_racks),
    "zone": Situation(flavor="g1", step="map_az_to_placement_aggregate", code="GPU573", made=empty_zone, zone="az3"),
    "GPUs": Situation(flavor="g1", step="PCI", code="GPU579", made=lambda world: taken(world, *["g1"] * 5)),
    "fragments": Situation(flavor="g2", step="PCI", code="GPU579", made=lambda world: taken(world, "g1", "g2", "g1")),
    "memory": Situation(
        flavor="memory", step="Placement: MEMORY_MB", code="GPU576", made=lambda world: taken(world, *["memory"] * 2)
    ),
    "disk": Situation(
        flavor="storage", step="Placement: DISK_GB", code="GPU576", made=lambda world: taken(world, *["storage"] * 2)
    ),
    "processors": Situation(
        flavor="processors",
        step="Placement: VCPU",
        code="GPU576",
        made=lambda world: taken(world, *["processors"] * 4),
    ),
    "NUMA nodes": Situation(
        flavor="required", step="NUMATopologyFilter", code="GPU578", made=lambda world: taken(world, *["required"] * 2)
    ),
    "no PCPU": Situation(
        flavor="split-resources",
        step="Placement: PCPU",
        code="GPU576",
        made=lambda world: taken(world, *["split-resources"] * 4),
    ),
}


@pytest.mark.skipif("GPUSTACK_WHY" not in os.environ, reason="make why runs the situations")
@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.every_release
def test_the_predicted_step_is_novas_and_the_fix_works(
    world: World, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``why flavor`` names the step of nova-scheduler's log; once the cause is gone, the flavor boots."""
    case, world.undo = SITUATIONS[name], []
    gpus, step = ("split",) if case.flavor.startswith("split") else ("gpu1", "gpu2"), case.step
    if step == "PCI":
        step = "Placement: CUSTOM_PCI_10DE_11B4" if world.placement else "PciPassthroughFilter"
    zone = {"availability_zone": case.zone} if case.zone else {}
    files = (world.nova.nova_conf, world.nova.directory / "etc" / "api")
    more = [word for file in files for word in ("--config-file", str(file))]
    more += ["--availability-zone", case.zone] if case.zone else []
    with case.made(world):
        capsys.readouterr()
        code = main(["why", "flavor", case.flavor, "--spec", str(world.spec), "-f", "json", "--exit-code", *more])
        output = capsys.readouterr()
        assert code == 3, output.err
        rows = json.loads(output.out)
        assert {(row["step"], row["code"]) for row in rows if set(gpus) & set(row["hosts"])} == {(step, case.code)}
        before = world.nova.log.stat().st_size
        server = boot(world.cloud, name.replace(" ", "-"), world.flavors[case.flavor], **zone)
        assert server.status == "ERROR"
        delete(world.cloud, server)
        log = world.nova.log.read_bytes()[before:].decode()
        last = re.findall(r"(\w+): \(start: \d+, end: 0\)", log)
        assert last or "Got no allocation candidates" in log
        if last:  # the filter that removes the last host
            assert last[-1] in {row["step"] for row in rows}
    try:
        server = boot(world.cloud, "fixed", world.flavors[case.flavor], **zone)
        assert server.status == "ACTIVE", server.fault
        delete(world.cloud, server)
    finally:
        for undo in world.undo:
            undo()
