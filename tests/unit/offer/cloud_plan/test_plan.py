"""One plan over all groups: what it reads, what it touches, and in which order an empty cloud is set up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.base.errors import SpecError
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, Present
from gpustack.nova_options import releases
from gpustack.offer.cloud_plan.plan import CloudChoices, CloudPlan, groups_of, plan
from gpustack.offer.flavor.compare import FlavorChoices
from gpustack.offer.flavor.flavors import ACCESS, ORIGIN, access_mark
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec
from support.fleet_answers import facts
from support.fleet_cloud import StandIn
from support.limits import StandInLimits

PROJECT = "a" * 32
CHOICES = CloudChoices(release=releases.releases()[-1])
SECTIONS: dict[str, Any] = {
    "flavors": {
        "g1": {"model": "k4200", "vcpus": 1, "ram": 64, "disk": 1, "access": ["research"], "images": ["win"]},
        "g2": {"model": "k4200", "vcpus": 1, "ram": 64, "disk": 1, "images": ["win"]},
    },
    "quotas": {"default": {"k4200": 0}, "projects": {"research": {"k4200": 4}}},
    "tenancy": {"aggregates": {"gpu": {"projects": ["research"]}}},
}
ANSWERS: dict[str, Any] = {
    "compute /flavors/detail": (200, {"flavors": []}),
    "compute /os-aggregates": (200, {"aggregates": []}),
    "compute /os-hypervisors": (
        200,
        {
            "hypervisors": [
                {
                    "id": "u1",
                    "hypervisor_hostname": "gpu1",
                    "service": {"host": "gpu1"},
                    "status": "enabled",
                    "state": "up",
                }
            ]
        },
    ),
    "compute /servers/detail": (200, {"servers": []}),
    "placement /resource_providers": (200, {"resource_providers": []}),
    "identity /projects": (200, {"projects": [{"id": PROJECT, "name": "research"}]}),
    "image /images": (200, {"images": [{"id": "i1", "name": "win", "status": "active", "visibility": "public"}]}),
}


def private(number: int) -> dict[str, Any]:
    """A private flavor, as Nova lists it."""
    flavor = {"id": f"f{number}", "name": f"private{number}", "vcpus": 1, "ram": 64, "disk": 1, "extra_specs": {}}
    return {**flavor, "os-flavor-access:is_public": False, "description": None, "swap": 0, "rxtx_factor": 1.0}


class _Limits(StandInLimits):
    def projects(self, name: str) -> tuple[Project, ...]:
        return (Project(id=PROJECT, name=name),)


def spec(tmp_path: Path, *sections: str) -> Spec:
    content = {
        "version": 1,
        "models": {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}},
        "hosts": {"gpu1": ["k4200"]},
        "nova": {"release": "2025.2"},
        **{name: SECTIONS[name] for name in sections},
    }
    path = tmp_path / "gpustack.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_spec(path)


def planned(
    monkeypatch: pytest.MonkeyPatch, wanted: Spec, present: Present | None = None
) -> tuple[CloudPlan, list[str]]:
    """The plan, and all requests for it."""
    cloud, limits = StandIn(dict(ANSWERS)), _Limits(present or Present())
    monkeypatch.setattr("gpustack.offer.cloud_plan.plan.LimitsCloud", lambda connection: limits)
    made = plan(cloud.connection, wanted, groups_of(wanted, CHOICES, "spec"), CHOICES)
    return made, [*cloud.requests, *(f"limits {method}" for method in limits.asked)]


def test_each_listing_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, requests = planned(monkeypatch, spec(tmp_path, *SECTIONS))
    listings = [line for line in requests if "/projects" not in line]
    assert sorted(listings) == sorted(set(listings))
    assert len(listings) == 8


def test_the_projects_of_a_flavor_with_a_current_mark_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry: dict[str, Any] = {"vcpus": 1, "ram": 64, "disk": 1, "swap": 0, "os-flavor-access:is_public": False}
    entry |= {"OS-FLV-EXT-DATA:ephemeral": 0, "description": "[gpustack]"}
    marks = {"g1": access_mark([PROJECT]), "g2": access_mark(["others"])}
    flavors = [
        {**entry, "id": name, "name": name, "extra_specs": {ACCESS: mark, ORIGIN: "spec"}}
        for name, mark in marks.items()
    ]
    lists = {f"compute /flavors/{name}/os-flavor-access": (200, {"flavor_access": []}) for name in marks}
    answers = {**ANSWERS, **lists, "compute /flavors/detail": (200, {"flavors": flavors})}
    cloud = StandIn(answers)
    monkeypatch.setattr("gpustack.offer.cloud_plan.plan.LimitsCloud", lambda connection: _Limits(Present()))
    plan(cloud.connection, spec(tmp_path, "flavors", "tenancy"), frozenset({"tenancy"}), CHOICES)
    assert [line for line in cloud.requests if "access" in line] == ["compute /flavors/g2/os-flavor-access"]


def test_an_empty_cloud_needs_one_run_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = planned(monkeypatch, spec(tmp_path, *SECTIONS))
    assert [change.describe().partition(":")[0] for change in made.operations] == [
        "create the default limit for k4200",
        "create the limit of research for k4200",
        "add the trait CUSTOM_GPU_HOST to gpu1",
        "create the aggregate gpu",
        "change the metadata of the aggregate gpu",
        "add gpu1 to the aggregate gpu",
        "change win (i1, public)",
        "create g1",
        "change the metadata of the aggregate gpu",
        "change the projects of g1",
        "create g2",
    ]
    assert not [finding.code for finding in made.findings if finding.severity == "error"]


def test_sections_that_the_spec_lacks_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    present = Present(
        limits=(Limit(id="l", resource_class="CUSTOM_OLD", limit=1, project="p", description="[gpustack]"),)
    )
    made, requests = planned(monkeypatch, spec(tmp_path, "tenancy"), present)
    assert {change.object_kind for change in made.operations} == {
        "trait",
        "aggregate",
        "aggregate_host",
        "aggregate_metadata",
    }
    assert not [line for line in requests if line.startswith("limits")]


def test_a_default_that_changes_with_limits_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = "CUSTOM_GPU_QUOTA_K4200"
    default = Limit(id="d", resource_class=counted, limit=1, description="[gpustack]")
    own = Limit(id="l", resource_class=counted, limit=4, project=PROJECT, description="[gpustack]")
    made, _ = planned(monkeypatch, spec(tmp_path, "quotas"), Present(defaults=(default,), limits=(own,)))
    assert "GPU437" in [finding.code for finding in made.findings]
    assert [change.needs for change in made.operations] == [(), ("limit:0",), ("limit:1",)]


def test_a_spec_needs_the_section_of_a_chosen_group(tmp_path: Path) -> None:
    wanted = spec(tmp_path, "flavors")
    chosen = CloudChoices(groups=frozenset({"quotas"}), release=CHOICES.release)
    with pytest.raises(SpecError, match="no section `quotas`"):
        groups_of(wanted, chosen, "spec")
    assert groups_of(wanted, CHOICES, "spec") == {"flavors", "images"}
    with pytest.raises(SpecError, match="no section to sync"):
        groups_of(spec(tmp_path), CHOICES, "spec")


def test_tenancy_asks_once_for_each_private_flavor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted, counts = spec(tmp_path, "tenancy"), []
    for number in (0, 1, 3):
        flavors = [private(of) for of in range(number)]
        monkeypatch.setitem(ANSWERS, "compute /flavors/detail", (200, {"flavors": flavors}))
        for flavor in flavors:
            path = f"compute /flavors/{flavor['id']}/os-flavor-access"
            monkeypatch.setitem(ANSWERS, path, (200, {"flavor_access": []}))
        requests = planned(monkeypatch, wanted)[1]
        assert sum("os-flavor-access" in line for line in requests) == number
        counts.append(len(requests))
    assert [count - counts[0] for count in counts] == [0, 1, 3]


@pytest.mark.parametrize(
    ("sections", "chosen", "prune", "expected"),
    [
        (("flavors",), {"quotas"}, True, {"quotas"}),  # limits of an earlier spec
        ((), {"flavors"}, False, {"flavors"}),
        ((), {"images"}, False, {"images"}),
        (("quotas", "tenancy"), {"quotas"}, False, {"quotas"}),
        (("quotas", "tenancy"), None, False, {"quotas", "tenancy"}),
    ],
)
def test_groups_are_chosen_or_those_of_the_spec(
    tmp_path: Path, sections: tuple[str, ...], chosen: set[str] | None, prune: bool, expected: set[str]
) -> None:
    groups = None if chosen is None else frozenset(chosen)
    choices = CloudChoices(groups=groups, prune=prune, release=CHOICES.release)
    assert groups_of(spec(tmp_path, *sections), choices, "spec") == expected


def test_flavors_without_images_have_no_group_of_images(tmp_path: Path) -> None:
    wanted = spec(tmp_path, "flavors")
    plain = wanted.model_copy(
        update={"flavors": {name: f.model_copy(update={"images": ()}) for name, f in wanted.flavors.items()}}
    )
    assert groups_of(plain, CHOICES, "spec") == {"flavors"}


@pytest.mark.parametrize(
    ("sections", "parts", "unchanged"),
    [
        (("flavors",), {"flavors"}, {"flavors": 0}),
        (("quotas",), {"quotas"}, {"quotas": 0}),
        (("tenancy",), {"tenancy"}, {}),
        (tuple(SECTIONS), {"flavors", "quotas", "tenancy"}, {"flavors": 0, "quotas": 0}),
    ],
)
def test_a_plan_has_the_parts_of_its_groups(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sections: tuple[str, ...],
    parts: set[str],
    unchanged: dict[str, int],
) -> None:
    made, _ = planned(monkeypatch, spec(tmp_path, *sections))
    assert {name for name in ("flavors", "quotas", "tenancy") if getattr(made, name) is not None} == parts
    assert made.unchanged == unchanged
    assert bool(made.checks) is ("quotas" in sections)
    assert (bool(made.admissions), bool(made.access)) == (False, "tenancy" in sections and "flavors" in sections)
    assert made.release == CHOICES.release


def test_access_is_shown_with_the_names_of_flavors_and_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = planned(monkeypatch, spec(tmp_path, *SECTIONS))
    assert made.access == ("gpu1: g1, g2: nobody → research",)


COUNTED = "CUSTOM_GPU_QUOTA_K4200"


@pytest.mark.parametrize(
    ("flavor_specs", "hosts", "codes"),
    [
        ({"pci_passthrough:alias": "k4200:1"}, None, ["GPU744"]),
        ({"pci_passthrough:alias": "k4200:1", f"resources:{COUNTED}": "1"}, None, []),
        ({}, 3, ["GPU743", "GPU746"]),  # fewer GPUs than the limit, and than Placement's markers
        ({}, 4, ["GPU746"]),
    ],
)
def test_limits_are_compared_with_flavors_and_hosts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flavor_specs: dict[str, str],
    hosts: int | None,
    codes: list[str],
) -> None:
    monkeypatch.setattr(_Limits, "inventories", lambda self, hosts: {}, raising=False)
    listed = [{**private(1), "os-flavor-access:is_public": True, "extra_specs": flavor_specs}]
    monkeypatch.setitem(ANSWERS, "compute /flavors/detail", (200, {"flavors": listed}))
    known = None if hosts is None else [facts("gpu1", *range(0x81, 0x81 + hosts))]
    choices = CloudChoices(release=CHOICES.release, hosts=known)
    cloud, limits = StandIn(dict(ANSWERS)), _Limits(Present())
    monkeypatch.setattr("gpustack.offer.cloud_plan.plan.LimitsCloud", lambda connection: limits)
    found = plan(cloud.connection, spec(tmp_path, "quotas"), frozenset({"quotas"}), choices).findings
    assert sorted({entry.code.value for entry in found} & {"GPU743", "GPU744", "GPU746"}) == codes


def test_a_flavor_that_the_same_plan_corrects_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {"pci_passthrough:alias": "k4200:1"}
    listed = [
        {**private(1), "name": name, "id": name, "os-flavor-access:is_public": True, "extra_specs": counted}
        for name in ("g2", "of others")
    ]
    monkeypatch.setitem(ANSWERS, "compute /flavors/detail", (200, {"flavors": listed}))
    cloud, limits = StandIn(dict(ANSWERS)), _Limits(Present())
    monkeypatch.setattr("gpustack.offer.cloud_plan.plan.LimitsCloud", lambda connection: limits)
    adopting = CloudChoices(release=CHOICES.release, flavors=FlavorChoices(adopt=True))
    made = plan(cloud.connection, spec(tmp_path, "quotas", "flavors"), frozenset({"quotas", "flavors"}), adopting)
    assert [entry.place for entry in made.findings if entry.code == "GPU744"] == ["of others"]


def test_the_trait_of_the_spec_is_read_or_the_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sections, trait in (((), "CUSTOM_GPU_HOST"), (("tenancy",), "CUSTOM_OWN")):
        monkeypatch.setitem(SECTIONS, "tenancy", {"trait": trait, "aggregates": {"gpu": {}}})
        cloud = StandIn(dict(ANSWERS))
        plan(cloud.connection, spec(tmp_path, *sections), frozenset({"tenancy"}), CHOICES)
        assert [line for line in cloud.requests if "required=" in line] == [
            f"placement /resource_providers?required={trait}"
        ]


@pytest.mark.parametrize("public", [True, False])
def test_the_projects_of_a_private_flavor_that_changes_its_gpus_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, public: bool
) -> None:
    wanted = spec(tmp_path, "flavors")
    flavors = {} if public else {"g1": wanted.flavors["g1"]}
    wanted = wanted.model_copy(update={"flavors": flavors or {"g2": wanted.flavors["g2"]}})
    marks = {"gpustack:sets": "pci_passthrough:alias", ORIGIN: "spec", ACCESS: access_mark([PROJECT])}
    present = {**private(1), "name": "g2" if public else "g1", "os-flavor-access:is_public": public}
    present |= {"extra_specs": {"pci_passthrough:alias": "old:1", **marks}, "description": "1 x k4200 [gpustack]"}
    path = "compute /flavors/f1/os-flavor-access"
    entry = {"flavor_id": "f1", "tenant_id": PROJECT}
    cloud = StandIn(
        {
            **ANSWERS,
            "compute /flavors/detail": (200, {"flavors": [present]}),
            path: (200, {"flavor_access": [entry]}),
        }
    )
    made = plan(cloud.connection, wanted, frozenset({"flavors"}), CHOICES)
    assert [change.object_kind for change in made.operations] == ["flavor"]
    assert (path in cloud.requests) is not public


@pytest.mark.parametrize("groups", [("quotas",), ("flavors",), ("flavors", "quotas")])
def test_a_gpu_that_the_host_holds_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: tuple[str, ...]
) -> None:
    monkeypatch.setattr(_Limits, "inventories", lambda self, hosts: {})
    limits = _Limits(Present())
    monkeypatch.setattr("gpustack.offer.cloud_plan.plan.LimitsCloud", lambda connection: limits)
    choices = CloudChoices(release=CHOICES.release, hosts=[facts("gpu1", 0x81, driver="nouveau")])
    cloud = StandIn(dict(ANSWERS))
    found = plan(cloud.connection, spec(tmp_path, *groups), frozenset(groups), choices).findings
    assert len([entry for entry in found if entry.place.startswith("gpu1") and "nouveau" in entry.message]) == 1


def test_the_limit_of_one_project_is_not_that_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It rises for one, so it comes after the images; another project has more already."""
    default = Limit(id="d", resource_class=COUNTED, limit=0, description="[gpustack]")
    own = Limit(id="l", resource_class=COUNTED, limit=1, project=PROJECT, description="[gpustack]")
    other = Limit(id="o", resource_class=COUNTED, limit=9, project="b" * 32)
    present = Present(defaults=(default,), limits=(own, other))
    made, _ = planned(monkeypatch, spec(tmp_path, "quotas", "flavors"), present)
    kinds = [change.object_kind for change in made.operations if change.object_kind in ("image", "limit")]
    assert kinds == ["image", "limit"]


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["large"], ["flavor", "limit"]),
        # A flavor shows only the common class of two models, and a limit counts each of them.
        (["large", "small"], ["limit", "limit", "flavor"]),
    ],
)
def test_a_limit_of_vgpus_rises_after_their_superfluous_flavor_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], kinds: list[str]
) -> None:
    cards = [f'vendor: "10de", product: "25b6", addresses: ["0000:4{place}:00.0"]' for place in range(len(names))]
    models = [f"{name}: {{match: {{{card}}}, vgpu: {{type: A16-8Q}}}}" for name, card in zip(names, cards, strict=True)]
    (tmp_path / "gpustack.yaml").write_text(
        f"version: 1\nmodels: {{{', '.join(models)}}}\n"
        f"hosts: {{gpu1: [{', '.join(names)}]}}\nnova: {{release: '2026.2'}}\n"
        f"quotas: {{default: {{{', '.join(f'{name}: 4' for name in names)}}}}}\n"
    )
    specs = {"resources:VGPU": "1", "gpustack:sets": "resources:VGPU", ORIGIN: "spec"}
    old = {**private(1), "os-flavor-access:is_public": True, "description": "[gpustack]", "extra_specs": specs}
    cloud = StandIn({**ANSWERS, "compute /flavors/detail": (200, {"flavors": [old]})})
    cloud.answers["compute /servers?all_tenants=1&flavor=f1&limit=1000"] = (200, {"servers": []})
    present = tuple(
        Limit(id=name, resource_class=f"CUSTOM_GPU_QUOTA_{name.upper()}", limit=0, description="[gpustack]")
        for name in names
    )
    monkeypatch.setattr(
        "gpustack.offer.cloud_plan.plan.LimitsCloud", lambda connection: _Limits(Present(defaults=present))
    )
    choices = CloudChoices(release=CHOICES.release, flavors=FlavorChoices(prune=True))
    wanted = load_spec(tmp_path / "gpustack.yaml")
    made = plan(cloud.connection, wanted, frozenset({"flavors", "quotas"}), choices)
    assert [change.object_kind for change in made.operations] == kinds
