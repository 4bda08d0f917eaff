"""The sources of a question about a flavor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.base.errors import UsageError
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.cloud.limits import Limit, Present
from gpustack.nova_options.aggregates import Aggregate
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity import read as placement
from gpustack.operate.capacity.assess import State
from gpustack.operate.capacity.model import Cards, Host, Outcome
from gpustack.operate.why import read
from gpustack.operate.why.read import FlavorAnswer, FlavorQuestion, WhySources, answer, unknown
from support.fleet_cloud import StandIn

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu1: [k4200]}\n'
FLAVOR = Flavor(
    id="id-1",
    name="g1",
    sizes=Sizes(vcpus=1, ram=512, disk=1),
    extra_specs={"pci_passthrough:alias": "k4200:1"},
)


KNOWN = State(
    hosts=(),
    flavors={
        "g1": FLAVOR,
        "private": replace(FLAVOR, id="id-2", name="private", public=False),
        "cpu": replace(FLAVOR, id="id-3", name="cpu", extra_specs={}),
        "bare": replace(FLAVOR, id="id-4", name="bare", extra_specs={"pci_passthrough:alias": "k4200"}),
    },
)


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(read, "state", lambda *_arguments, **_options: KNOWN)
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_a_flavor_is_found_by_name_or_id(spec: Path) -> None:
    for name in ("g1", "id-1"):
        found = answer(StandIn().connection, FlavorQuestion(name=name), WhySources(spec=spec))
        assert (found.capacity.demand.flavor, found.capacity.least, found.steps) == ("g1", 0, None)


def test_images_of_one_name_need_an_id(spec: Path) -> None:
    cloud = StandIn()
    images: list[dict[str, Any]] = [
        {"id": f"i{number}", "name": "ubuntu", "status": "active", "visibility": "public"} for number in (1, 2)
    ]
    cloud.answers["image /images"] = (200, {"images": images})
    with pytest.raises(UsageError, match="2 images are named 'ubuntu'"):
        answer(cloud.connection, FlavorQuestion(name="g1", image="ubuntu"), WhySources(spec=spec))
    images[1]["hw_numa_nodes"] = "3"
    found = answer(cloud.connection, FlavorQuestion(name="g1", image="i2"), WhySources(spec=spec))
    assert "not divisible by 3 NUMA nodes" in found.capacity.demand.refused  # the image's properties count
    plain = answer(cloud.connection, FlavorQuestion(name="g1", image="i1"), WhySources(spec=spec))
    assert (plain.capacity.most, plain.capacity.demand.refused) == (0, "")


@pytest.mark.parametrize(
    ("image", "refused"),
    [
        ({}, ""),
        ({"min_ram": 512, "min_disk": 1, "size": 1 << 30}, ""),
        ({"min_ram": 513}, "the image ubuntu needs 513 MiB of RAM (min_ram), the flavor has 512"),
        ({"min_disk": 2}, "the image ubuntu needs 2 GiB of disk, the flavor has 1"),
        ({"size": (1 << 30) + 1}, "the image ubuntu needs 2 GiB of disk, the flavor has 1"),
        ({"status": "deactivated"}, "the image ubuntu is deactivated"),
    ],
)
def test_the_api_refuses_an_image_that_is_too_large_for_the_flavor(
    spec: Path, image: dict[str, Any], refused: str
) -> None:
    cloud = StandIn()
    entry = {"id": "i1", "name": "ubuntu", "status": "active", "visibility": "public", **image}
    cloud.answers["image /images"] = (200, {"images": [entry]})
    found = answer(cloud.connection, FlavorQuestion(name="g1", image="ubuntu"), WhySources(spec=spec))
    assert found.capacity.demand.refused == refused


def host(name: str, count: int) -> Host:
    amounts = {"VCPU": 32, "MEMORY_MB": 1 << 17, "DISK_GB": 1000}
    return Host(uuid=name, name=name, cards=(Cards(aliases=frozenset({"k4200"}), count=count),), amounts=amounts)


PROJECT = "a" * 32
LIMITS = {"maxTotalInstances": 10, "totalInstancesUsed": 2, "maxTotalRAMSize": -1, "totalRAMUsed": 1 << 20}


def asked(
    monkeypatch: pytest.MonkeyPatch,
    spec: Path,
    question: FlavorQuestion,
    *,
    hosts: tuple[Host, ...] = (host("gpu1", 3), host("GPU2", 0)),
    limits: dict[str, int] | None = None,
    scheduler: Scheduler = Scheduler(),  # noqa: B008
) -> FlavorAnswer:
    """The answer in a cloud with two hosts, and a project with access to no private flavor."""
    known = replace(KNOWN, hosts=hosts, scheduler=scheduler)
    monkeypatch.setattr(read, "state", lambda *_arguments, **_options: known)
    monkeypatch.setattr(placement, "accepted", lambda _cloud, _demand, nodes, _progress: frozenset(nodes))
    cloud = StandIn()
    if limits is not None:
        of_project = {"limits": {"absolute": {**LIMITS, "maxTotalCores": 20, "totalCoresUsed": 12, **limits}}}
        cloud.answers[f"compute /limits?tenant_id={PROJECT}"] = (200, of_project)
    access = {"flavor_access": [{"flavor_id": "id-2", "tenant_id": "b" * 32}]}
    cloud.answers["compute /flavors/id-2/os-flavor-access"] = (200, access)
    return answer(cloud.connection, question, WhySources(spec=spec, scheduler=scheduler))


@pytest.mark.parametrize(
    ("count", "scheduler", "number"),
    [
        (8, Scheduler(by_devices=True), "40320"),
        (7, Scheduler(by_devices=True), ""),
        (8, Scheduler(by_devices=False), ""),  # Placement is not asked for GPUs
        (8, Scheduler(by_devices=True, candidates=1000), ""),
    ],
)
def test_many_candidates_of_one_host_are_slow(
    monkeypatch: pytest.MonkeyPatch, spec: Path, count: int, scheduler: Scheduler, number: str
) -> None:
    many = replace(FLAVOR, extra_specs={"pci_passthrough:alias": f"k4200:{count}"})
    monkeypatch.setitem(KNOWN.flavors, "g1", many)  # type: ignore[arg-type]
    found = asked(monkeypatch, spec, FlavorQuestion(name="g1"), hosts=(host("gpu1", count),), scheduler=scheduler)
    assert [entry.code.value for entry in found.many] == (["GPU595"] if number else [])
    assert all(number in entry.message for entry in found.findings)


@pytest.mark.parametrize(
    ("accepted", "step"),
    [
        (None, ("Placement: traits", "CUSTOM_NOPE, unknown to Placement")),
        (frozenset(), ("Placement: traits", "CUSTOM_NOPE")),
        (frozenset({"gpu1"}), ("PciPassthroughFilter", 1)),
    ],
)
def test_placement_is_the_first_cause_also_if_no_gpu_is_free(
    monkeypatch: pytest.MonkeyPatch, spec: Path, accepted: frozenset[str] | None, step: tuple[str, Any]
) -> None:
    """Nova asks Placement before its filters: a GPU that becomes free would not help."""
    strange = replace(FLAVOR, extra_specs={**FLAVOR.extra_specs, "trait:CUSTOM_NOPE": "required"})
    known = replace(KNOWN, hosts=(host("gpu1", 0),), flavors={"g1": strange})
    monkeypatch.setattr(read, "state", lambda *_arguments, **_options: known)
    monkeypatch.setattr(placement, "accepted", lambda *_arguments: accepted)
    (cause,) = answer(StandIn().connection, FlavorQuestion(name="g1"), WhySources(spec=spec)).causes
    assert (cause.step.name, cause.step.wanted) == step


def test_hosts_are_counted_or_one_is_explained(monkeypatch: pytest.MonkeyPatch, spec: Path) -> None:
    found = asked(monkeypatch, spec, FlavorQuestion(name="g1"))
    assert (found.least, found.steps, found.allowed, found.gaps) == (3, None, None, [])
    assert [(cause.hosts, cause.step.name) for cause in found.causes] == [(["GPU2"], "PciPassthroughFilter")]
    assert [entry.code.value for entry in found.findings] == ["GPU579"]
    for name, least in (("gpu1", 3), ("gpu2", 0)):
        one = asked(monkeypatch, spec, FlavorQuestion(name="g1", host=name))
        assert (one.least, len(one.causes)) == (least, int(not least))
        assert one.steps
        assert {step.name for step in one.steps} >= {"API", "PciPassthroughFilter"}
    small = replace(host("gpu1", 0), amounts={"VCPU": 0, "MEMORY_MB": 1 << 17, "DISK_GB": 1000})
    found = asked(monkeypatch, spec, FlavorQuestion(name="g1", host="gpu1"), hosts=(small,))
    failed = [step.name for step in found.steps or () if step.outcome is Outcome.FAILED]
    assert failed[:2] == ["Placement: VCPU", "PciPassthroughFilter"]  # the steps after the first cause too
    with pytest.raises(UsageError, match="there is no host with GPUs of the spec 'gpu3'") as wrong:
        asked(monkeypatch, spec, FlavorQuestion(name="g1", host="gpu3"))
    assert wrong.value.remedy == "use one of: gpu1"


@pytest.mark.parametrize(
    ("name", "names", "remedy"),
    [
        ("g2", ["g1", "other"], "use one of: g1"),
        ("xyz", ["b", "a"], "use one of: a, b"),
        ("xyz", [], "this user sees no flavor: check --os-cloud"),
        ("xyz", [f"h{number}" for number in range(9)], "use one of: h0, h1, h2, h3, h4, h5, h6, h7 and 1 more"),
    ],
)
def test_an_unknown_name_leads_to_the_nearest(name: str, names: list[str], remedy: str) -> None:
    error = unknown("flavor", name, names)
    assert (error.what, error.remedy) == (f"there is no flavor {name!r}", remedy)


def test_flavors_and_images_that_can_not_be_used(monkeypatch: pytest.MonkeyPatch, spec: Path) -> None:
    for question, text in (
        (FlavorQuestion(name="g3"), "there is no flavor 'g3'"),
        (FlavorQuestion(name="cpu"), "the flavor cpu requests no GPU\n.*name a flavor with it"),
        (FlavorQuestion(name="bare"), "the flavor bare requests no GPU\n.*Nova reads NAME:COUNT, not 'k4200'"),
    ):
        with pytest.raises(UsageError, match=text):
            asked(monkeypatch, spec, question)
    cloud = StandIn(answers={"image /images": (200, {"images": []})})
    with pytest.raises(UsageError, match="there is no image 'ubuntu'"):
        answer(cloud.connection, FlavorQuestion(name="g1", image="ubuntu"), WhySources(spec=spec))


@pytest.mark.parametrize(
    ("limits", "allowed", "refused"),
    [
        ({}, 8, ""),  # 8 instances, 8 cores
        ({"totalInstancesUsed": 7}, 3, ""),
        ({"maxTotalInstances": 0, "totalInstancesUsed": 0}, 0, "instances needs 1, 0 left"),
        ({"totalCoresUsed": 20}, 0, "cores needs 1, 0 left"),
        ({"totalCoresUsed": 25}, 0, "cores needs 1, 0 left"),
        ({"maxTotalRAMSize": 1 << 20, "totalCoresUsed": 19}, 0, "ram needs 512, 0 left"),
        ({"maxTotalRAMSize": (1 << 20) + 512}, 1, ""),
        ({"maxTotalRAMSize": (1 << 20) + 511}, 0, "ram needs 512, 511 left"),
        ({"maxTotalCores": -1, "maxTotalInstances": -1}, None, ""),
    ],
)
def test_the_quota_of_a_project_limits_instances(
    monkeypatch: pytest.MonkeyPatch, spec: Path, limits: dict[str, int], allowed: int | None, refused: str
) -> None:
    found = asked(monkeypatch, spec, FlavorQuestion(name="g1", project=PROJECT), limits=limits)
    assert (found.allowed, found.capacity.demand.quota) == (allowed, refused)
    assert found.least == (3 if allowed is None else min(3, allowed) if not refused else 0)
    assert found.capacity.demand.project == PROJECT
    assert {cause.step.name for cause in found.causes} == ({"API: quota"} if refused else {"PciPassthroughFilter"})


@pytest.mark.parametrize(("unified", "allowed"), [(True, 2), (False, 8), (None, 8)])
def test_limits_of_keystone_count_if_nova_enforces_them(
    monkeypatch: pytest.MonkeyPatch, spec: Path, unified: bool | None, allowed: int
) -> None:
    """One for all projects, which another project and this one replace. Keystone is a stand-in."""
    default = Limit(id="1", resource_class="DISK_GB", limit=3)
    limits = (replace(default, id="2", limit=1, project="b" * 32), replace(default, id="3", limit=7, project=PROJECT))
    of_ram = replace(default, id="4", resource_class="MEMORY_MB", limit=1024)  # as many as fit in DISK_GB
    keystone = SimpleNamespace(
        present=lambda: Present(defaults=(default, of_ram), limits=limits),
        used=lambda project: {"DISK_GB": 5} if project == PROJECT else {},
    )
    monkeypatch.setattr(read, "LimitsCloud", lambda _cloud: keystone)
    question = FlavorQuestion(name="g1", project=PROJECT)
    assert asked(monkeypatch, spec, question, limits={}, scheduler=Scheduler(unified=unified)).allowed == allowed


def test_dedicated_processors_are_no_vcpus_of_limits_in_keystone(monkeypatch: pytest.MonkeyPatch, spec: Path) -> None:
    """Nova counts them as ``class:PCPU`` there, and as cores of a quota of its own."""
    dedicated = replace(FLAVOR, extra_specs={**FLAVOR.extra_specs, "hw:cpu_policy": "dedicated"})
    monkeypatch.setitem(KNOWN.flavors, "g1", dedicated)  # type: ignore[arg-type]
    keystone = SimpleNamespace(present=Present, used=lambda _project: {})
    monkeypatch.setattr(read, "LimitsCloud", lambda _cloud: keystone)
    question, limits = FlavorQuestion(name="g1", project=PROJECT), {"maxTotalCores": 0, "totalCoresUsed": 0}
    for unified, allowed, quota in ((True, 8, ""), (False, 0, "cores needs 1, 0 left")):
        found = asked(monkeypatch, spec, question, limits=limits, scheduler=Scheduler(unified=unified))
        assert (found.allowed, found.capacity.demand.quota) == (allowed, quota)


@pytest.mark.parametrize(
    ("metadata", "required", "hosts"),
    [
        ({"filter_tenant_id": PROJECT}, None, {"gpu1"}),
        ({"filter_tenant_id_2": PROJECT}, None, {"gpu1"}),
        ({"filter_tenant_id": f"{PROJECT},{'b' * 32}"}, None, None),  # Nova compares the complete value here
        ({"owner": PROJECT}, None, None),
        ({"filter_tenant_id": "b" * 32}, True, set()),
    ],
)
def test_a_project_is_confined_to_its_aggregates(
    monkeypatch: pytest.MonkeyPatch,
    spec: Path,
    metadata: dict[str, str],
    required: bool | None,
    hosts: set[str] | None,
) -> None:
    aggregates = (Aggregate(name="a", hosts=frozenset({"GPU1"}), metadata=metadata),)
    monkeypatch.setitem(vars(KNOWN), "aggregates", aggregates)
    question, known = FlavorQuestion(name="g1", project=PROJECT), Scheduler(required=required)
    found = asked(monkeypatch, spec, question, limits={}, scheduler=known)
    assert found.capacity.demand.confined == hosts


def test_a_question_without_a_project_is_confined_to_no_aggregate(monkeypatch: pytest.MonkeyPatch, spec: Path) -> None:
    metadata = {"filter_tenant_id": PROJECT, "note": ""}
    aggregates = (Aggregate(name="a", hosts=frozenset({"gpu1"}), metadata=metadata),)
    monkeypatch.setitem(vars(KNOWN), "aggregates", aggregates)
    found = asked(monkeypatch, spec, FlavorQuestion(name="g1"), scheduler=Scheduler(required=True))
    assert found.capacity.demand.confined is None


def test_a_private_flavor_needs_access(monkeypatch: pytest.MonkeyPatch, spec: Path) -> None:
    found = asked(monkeypatch, spec, FlavorQuestion(name="private", project=PROJECT), limits={})
    assert {cause.step.name for cause in found.causes} == {"API"}
    assert "has no access to the private flavor" in found.capacity.demand.refused
    for name in ("g1", "private"):
        open_to_all = asked(monkeypatch, spec, FlavorQuestion(name=name))
        assert open_to_all.capacity.demand.refused == ""
    silent = asked(monkeypatch, spec, FlavorQuestion(name="g1", project=PROJECT))
    assert (silent.allowed, len(silent.gaps), silent.capacity.demand.project) == (None, 1, PROJECT)
