"""Plans of limits as data: the words of operations and findings, case by case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustack.cloud.flavors import Sizes
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, Present
from gpustack.configure.desired import markers_of
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.desired import wanted as wanted_flavors
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.quota.compare import Check, checks, compare, differing, enforced, gaps, gpus_of, sums, uncounted
from gpustack.offer.quota.desired import WantedLimits, wanted
from gpustack.spec.load import parse_spec
from gpustack.spec.markers import markers
from gpustack.spec.model import Placement
from gpustack.spec.quotas import CountedBy
from support.fleet_answers import facts
from support.host_samples import function, host
from support.mediated_hosts import card, mediated_host

A, B = "CUSTOM_GPU_QUOTA_A100", "CUSTOM_GPU_QUOTA_K4200"
RESEARCH = Project(id="p1", name="research", domain="default")
TWIN = Project(id="p2", name="research", domain="lab")
WANTED = WantedLimits(models={A: "a100", B: "k4200"}, defaults={A: 0, B: 1}, projects={"research": {A: 4}})
OURS = "GPUs: a100 [gpustack]"


def default(name: str, limit: int, description: str = OURS) -> Limit:
    return Limit(id=f"d-{name}", resource_class=name, limit=limit, description=description)


def of(project: str, name: str, limit: int, description: str = OURS) -> Limit:
    return Limit(id=f"{project}-{name}", resource_class=name, limit=limit, project=project, description=description)


SYNCED = Present(defaults=(default(A, 0), default(B, 1)), limits=(of("p1", A, 4),))


@pytest.mark.parametrize(
    ("present", "projects", "options", "expected"),
    [
        pytest.param(
            Present(),
            [RESEARCH],
            {},
            [
                "create the default limit for a100: 0",
                "create the default limit for k4200: 1",
                "create the limit of research for a100: 4",
                "0 unchanged",
            ],
            id="empty",
        ),
        pytest.param(SYNCED, [RESEARCH], {}, ["3 unchanged"], id="synced"),
        pytest.param(
            Present(defaults=(default(A, 2, ""), default(B, 1)), limits=(of("p1", A, -1, ""),)),
            [RESEARCH],
            {},
            [
                "delete the limit of research for a100 (was -1)",
                "change the default limit for a100: 0 (was 2)",
                "create the limit of research for a100: 4",
                "1 unchanged",
            ],
            id="a default changes only without limits of projects",
        ),
        pytest.param(
            Present(defaults=(default(A, 2), default(B, 1)), limits=(of("p9", A, 3), of("p1", A, 1))),
            [RESEARCH],
            {},
            [
                "change the limit of research for a100: 4 (was 1)",
                "1 unchanged",
                "GPU753 default",
                "GPU749 p9",
            ],
            id="foreign limits keep the default",
        ),
        pytest.param(
            Present(defaults=(default(A, 0), default(B, 1)), limits=(of("p1", A, -1, ""),)),
            [RESEARCH],
            {},
            ["change the limit of research for a100: 4 (was -1)", "2 unchanged"],
            id="changed by hand",
        ),
        pytest.param(
            SYNCED,
            [],
            {},
            ["2 unchanged", "GPU740 research", "GPU749 p1: has the limit 4 of a100, which the spec lacks"],
            id="no such project",
        ),
        pytest.param(
            SYNCED,
            [RESEARCH, TWIN],
            {},
            [
                "2 unchanged",
                "GPU741 research: 2 projects have this name: p1 (domain default), p2 (domain lab)",
                "GPU749 p1: has the limit 4 of a100, which the spec lacks",
            ],
            id="two of this name",
        ),
        pytest.param(
            Present(
                defaults=(*SYNCED.defaults, default("CUSTOM_GPU_QUOTA_T4", 1)),
                limits=(*SYNCED.limits, of("p9", A, 7, "by hand"), of("p9", "CUSTOM_GPU_QUOTA_T4", 2)),
            ),
            [RESEARCH],
            {"prune": True},
            [
                "delete the limit of p9 for CUSTOM_GPU_QUOTA_T4 (was 2)",
                "delete the default limit for CUSTOM_GPU_QUOTA_T4 (was 1)",
                "3 unchanged",
                "GPU749 p9: has the limit 7 of a100, which the spec lacks",
            ],
            id="prune: defaults last, and only with the mark",
        ),
        pytest.param(
            Present(defaults=(*SYNCED.defaults, default("T4", 1)), limits=(*SYNCED.limits, of("p9", "T4", 2, ""))),
            [RESEARCH],
            {"prune": True},
            ["3 unchanged", "GPU749 default: has the limit 1 of T4"],
            id="prune: not with limits of others",
        ),
        pytest.param(
            Present(
                defaults=(*SYNCED.defaults, default("VCPU", 8, "")), limits=(*SYNCED.limits, of("p9", "VCPU", 7, ""))
            ),
            [RESEARCH],
            {"prune": True},
            ["3 unchanged"],
            id="limits of others",
        ),
        pytest.param(
            Present(defaults=SYNCED.defaults, limits=SYNCED.limits, used={"p1": {A: 5, "VCPU": 9}}),
            [RESEARCH],
            {},
            ["3 unchanged", "GPU742 research: uses 5 of a100, and its limit is 4"],
            id="below the use",
        ),
        pytest.param(
            SYNCED,
            [RESEARCH],
            {"totals": {A: 3}},
            [
                "3 unchanged",
                "GPU743 default: the limit 1 of k4200 is above the number of GPUs of all hosts (0)",
                "GPU743 research: the limit 4 of a100 is above the number of GPUs of all hosts (3)",
            ],
            id="above the total",
        ),
        pytest.param(SYNCED, [RESEARCH], {"totals": {A: 4, B: 1}}, ["3 unchanged"], id="as many as there are"),
        pytest.param(replace(SYNCED, used={"p1": {A: 4}}), [RESEARCH], {}, ["3 unchanged"], id="at the use"),
        pytest.param(
            Present(defaults=SYNCED.defaults, limits=SYNCED.limits, complete=False, model="strict_two_level"),
            [RESEARCH],
            {},
            [
                "3 unchanged",
                "GPU751 Keystone: the enforcement model is strict_two_level; expected flat",
                "GPU748 Keystone",
            ],
            id="doubts about Keystone",
        ),
    ],
)
def test_plans(present: Present, projects: list[Project], options: dict[str, Any], expected: list[str]) -> None:
    plan = compare(WANTED, present, {"research": projects}, **options)
    lines = [operation.describe() for operation in plan.operations]
    lines.append(f"{plan.unchanged} unchanged")
    lines += [f"{found.code} {found.place}: {found.message}" for found in plan.findings]
    assert len(lines) == len(expected), lines
    assert [line for line, start in zip(lines, expected, strict=True) if not line.startswith(start)] == []


def test_projects_of_one_name_are_told_apart_by_the_id_in_the_spec() -> None:
    twins = replace(WANTED, projects={"p1": {A: 4}, "p2": {A: 2}})
    present = Present(defaults=(default(A, 1),), limits=(of("p1", A, 3),))
    plan = compare(twins, present, {"p1": [RESEARCH], "p2": [TWIN]})
    assert [change.describe() for change in plan.operations if not change.of_default] == [
        "delete the limit of research (p1) for a100 (was 3)",
        "create the limit of research (p1) for a100: 4",
        "create the limit of research (p2) for a100: 2",
    ]


def test_the_remedy_for_a_use_above_the_limit_names_the_project() -> None:
    present = replace(SYNCED, used={"p1": {A: 5}})
    (found,) = compare(WANTED, present, {"research": [RESEARCH]}).findings
    assert "`gpustack gpu list --project p1`" in found.remedy


def test_a_limit_of_zero_is_not_below_a_use_of_none() -> None:
    wanted = replace(WANTED, projects={"research": {A: 0, B: 0}})
    present = replace(SYNCED, limits=(of("p1", A, 0), of("p1", B, 0)), used={"p1": {"VCPU": 9}})
    assert compare(wanted, present, {"research": [RESEARCH]}).findings == ()


SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"gpu*": [k4200]}
nova: {release: "2026.2", placement: schedule}
quotas: {count: COUNT, default: {k4200: 1}}
"""
HOSTS = [facts("gpu1", 0x81, 0x82), facts("gpu2", 0x81), facts("other", 0x81)]
MARKER = "CUSTOM_GPU_QUOTA_K4200"


@pytest.mark.parametrize(("count", "name"), [("marker", MARKER), ("device", "CUSTOM_PCI_10DE_11B4")])
def test_gpus_of_the_spec_are_counted(count: str, name: str) -> None:
    spec = parse_spec(SPEC.replace("COUNT", count), "spec")
    gpus = gpus_of(spec, HOSTS)
    assert gpus == {"gpu1": {name: 2}, "gpu2": {name: 1}, "other": {}}
    assert sums(gpus, wanted(spec)) == {name: 3}


def test_cards_count_for_the_limit_of_their_alias() -> None:
    """Two models have the alias of the limited one; the third has no limit."""
    models = """\
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: shared}
  p100: {match: {vendor: "10de", product: "15f8"}, alias: shared}
  v100: {match: {vendor: "10de", product: "1db4"}}
"""
    hosts = "hosts: {gpu01: [k4200, p100, v100]}\nquotas: {default: {k4200: 1}}\n"
    text = f"version: 1\nmodels:\n{models}{hosts}nova: {{release: '2026.2'}}\n"
    ids = ("10de:11b4", "10de:15f8", "10de:15f8", "10de:1db4")
    cards = [function(f"0000:0{n}:00.0", ids=of_card, iommu_group=n) for n, of_card in enumerate(ids)]
    assert gpus_of(parse_spec(text, "spec"), [host(*cards)]) == {"gpu01": {"CUSTOM_GPU_QUOTA_SHARED": 3}}


def test_hosts_with_other_totals_are_reported() -> None:
    spec = parse_spec(SPEC.replace("COUNT", "marker"), "spec")
    placement = {"gpu1": {MARKER: 2, "VCPU": 8}, "other": {MARKER: 1}}
    found = [(f.code, f.place) for f in differing(spec, gpus_of(spec, HOSTS), placement)]
    assert found == [("GPU746", "gpu2"), ("GPU746", "other")]


def test_devices_have_no_markers_to_compare() -> None:
    spec = parse_spec(SPEC.replace("COUNT", "device"), "spec")
    assert list(differing(spec, gpus_of(spec, HOSTS), {})) == []


OF_FLAVORS = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: k-4200}
  p100: {match: {vendor: "10de", product: "15f8"}}
hosts: {gpu1: [k4200, p100]}
nova: {release: "2025.2"}
flavors:
  "g{count}": {model: k4200, count: [1, 2], vcpus: 1, ram: 64MiB, disk: 0}
  both: {gpus: {k4200: 2, p100: 1}, vcpus: 1, ram: 64MiB, disk: 0}
quotas: {default: {k4200: 0}}
"""
KEY = "resources:CUSTOM_GPU_QUOTA_K_4200"
SIZES = Sizes(vcpus=1, ram=64, disk=0)


def test_flavors_of_the_spec_request_their_markers() -> None:
    flavors = wanted_flavors(parse_spec(OF_FLAVORS, "spec"), release=release("2025.2")).flavors
    assert {flavor.name: flavor.extra_specs.get(KEY) for flavor in flavors} == {"g1": "1", "g2": "2", "both": "2"}
    assert not [key for flavor in flavors for key in flavor.extra_specs if "P100" in key]


@pytest.mark.parametrize(
    ("extra_specs", "codes"),
    [
        ({"pci_passthrough:alias": "k-4200:2", KEY: "2"}, []),
        ({"pci_passthrough:alias": "k-4200:2"}, ["GPU744"]),
        ({"pci_passthrough:alias": "k-4200:2,p100:1", KEY: "3"}, ["GPU745"]),
        ({KEY: "1"}, ["GPU745"]),
        ({"pci_passthrough:alias": "p100:1"}, []),
        ({}, []),
    ],
)
def test_flavors_of_the_cloud(extra_specs: dict[str, str], codes: list[str]) -> None:
    flavor = PresentFlavor(id="1", name="g", sizes=SIZES, extra_specs=extra_specs)
    assert [found.code for found in uncounted(parse_spec(OF_FLAVORS, "spec"), [flavor])] == codes


OF_VGPUS = """\
version: 1
models: {large: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}}}
hosts: {gpu01: [large]}
nova: {release: "2025.2"}
quotas: {default: {large: 1}}
"""
OF_LARGE = "CUSTOM_GPU_QUOTA_LARGE"


@pytest.mark.parametrize(
    ("extra_specs", "codes"),
    [
        ({"resources:VGPU": "2", f"resources:{OF_LARGE}": "2"}, []),
        ({"resources:VGPU": "2"}, ["GPU744"]),
        ({"resources:VGPU": "2", f"resources:{OF_LARGE}": "1"}, ["GPU745"]),
    ],
)
def test_flavors_request_a_marker_for_each_vgpu(extra_specs: dict[str, str], codes: list[str]) -> None:
    flavor = PresentFlavor(id="1", name="g", sizes=SIZES, extra_specs=extra_specs)
    assert [found.code for found in uncounted(parse_spec(OF_VGPUS, "spec"), [flavor])] == codes


def test_hosts_have_a_marker_for_each_vgpu() -> None:
    """As ``provider.yaml`` has them."""
    spec, host = parse_spec(OF_VGPUS, "spec"), mediated_host(card("0000:84:00.0", used={"nvidia-711": None}))
    gpus = gpus_of(spec, [host])
    assert gpus == {"gpu01": {OF_LARGE: 3}} == {"gpu01": markers_of(spec, host)}
    assert list(differing(spec, gpus, {"gpu01": {OF_LARGE: 3}})) == []


def test_without_quotas_there_are_no_markers() -> None:
    spec = parse_spec(OF_FLAVORS.partition("quotas")[0], "spec")
    assert markers(spec) == {}


TOP = Path(__file__).parents[4]


@pytest.mark.parametrize("check", checks(), ids=lambda check: f"{check.count}-{check.operation}-{check.since}")
def test_each_entry_names_a_test(check: Check) -> None:
    file, _, name = check.test.partition("::")
    assert f"def {name}(" in (TOP / file).read_text(encoding="utf-8")
    assert check.source


@pytest.mark.parametrize(
    ("count", "name", "placement", "effects"),
    [
        ("marker", "2025.2", "off", ["enforced", "enforced", "enforced"]),
        ("marker", "2026.2", "schedule", ["enforced", "enforced", "enforced"]),
        ("marker", "yoga", "off", ["enforced", "enforced", "none"]),
        ("marker", "zed", "off", ["enforced", "enforced", "none"]),
        ("marker", "2023.1", "off", ["enforced", "enforced", "enforced"]),
        ("marker", "xena", "off", ["none", "none", "none"]),
        ("device", "2026.1", "schedule", ["none", "none", "none"]),
        ("device", "2026.2", "schedule", ["enforced", "none", "enforced"]),
        ("device", "2026.2", "report", ["none", "none", "none"]),
        ("device", "2025.2", "schedule", ["none", "none", "none"]),
    ],
)
def test_releases_and_stages(count: CountedBy, name: str, placement: Placement, effects: list[str]) -> None:
    found = enforced(count, release(name), placement)
    assert [check.effect for check in found] == effects
    assert ["no unified limits" in check.text for check in found] == [name == "xena"] * 3
    codes = [finding.code for finding in gaps(count, release(name), placement)]
    assert codes == ["GPU747"] * effects[:2].count("none")
