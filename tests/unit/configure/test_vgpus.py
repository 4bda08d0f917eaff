"""Mediated devices in the configuration of nova-compute: what is rendered for each release, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.base.findings import Code, Finding, Severity
from gpustack.configure.desired import DesiredConfig, wanted
from gpustack.configure.inspection import existing_for
from gpustack.configure.lint import judged, lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.render import TOOLS, render
from gpustack.configure.sources import Source
from gpustack.configure.vgpus import of_providers, required_traits
from gpustack.nova_options import releases
from gpustack.nova_options.config import parse_files
from gpustack.offer.flavor.desired import wanted as flavors_of
from support.mediated_hosts import CASES, card, host_of, mediated_host, parted, spec_of
from support.nova_rendered import written
from support.vgpu_hosts import VgpuHost

QUIET = ("GPU307", "GPU308", "GPU310", "GPU311")


def desired(case: dict[str, Any], *names: str) -> DesiredConfig:
    hosts = [host_of(case, name) for name in names or ("gpu01",)]
    return wanted(spec_of(case), hosts, release=releases.release(case["release"]))


def settings(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for setting in parse_files({"nova.conf": text}).settings:
        if setting.group == "devices" or setting.group.startswith(("mdev_", "vgpu_")):
            found.setdefault(setting.group, {})[setting.name] = setting.value
    return found


def found(needs: DesiredConfig) -> list[Finding]:
    return [f for f in (*needs.findings, *(f for fs in needs.unknown.values() for f in fs)) if f.code not in QUIET]


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case = CASES[name]
    needs = desired(case)
    files = {f.target: f.text for f in render(needs).files}
    assert settings(files.get("gpu01", "")) == case.get("settings", {})
    assert [f"{f.code} {f.place}" for f in found(needs)] == case.get("codes", [])
    assert [str(entry) for entry in needs.computes.get("gpu01", ())] == case.get("device_spec", [])
    messages = " ".join(f.message for f in found(needs))
    assert [text for text in case.get("messages", []) if text not in messages] == []
    errors = [f for f in found(needs) if f.severity is Severity.ERROR]
    assert ("gpu01" in needs.unknown) == bool(errors) == ("gpu01" not in files), "a host with an error keeps its file"


@pytest.mark.parametrize(
    ("limit", "used", "offered"),
    [(1, 0, "0"), (2, 0, ""), (3, 0, "2"), (3, 1, "2"), (4, 0, ""), (9, 0, "")],
)
def test_nova_leaves_out_cards_that_exceed_a_limit(limit: int, used: int, offered: str) -> None:
    """Two cards with two devices of the type each."""
    devices = {"nvidia-711": None} if used else {}
    free = [{"number": "nvidia-711", "name": "NVIDIA A16-8Q", "available": 2 - used}]
    facts = mediated_host(card("0000:84:00.0"), card("0000:85:00.0", used=devices, vgpu_types=free))
    text = f"[devices]\nenabled_mdev_types = nvidia-711\n[mdev_nvidia-711]\nmax_instances = {limit}\n"
    source = Source(label="compute", services=("compute",), configuration=parse_files({"a.conf": text}), named=True)
    results = judged(LintSubject(sources=[source], release=releases.release("2025.2"), hosts=[facts]))
    messages = [entry.message for result in results for entry in result.findings if entry.code == "GPU538"]
    expected = f"max_instances = {limit}; of 4 on the cards of gpu01, Nova offers {offered}" if offered else ""
    assert [expected in message for message in messages] == [True] * bool(offered)


def test_equal_hosts_are_decided_once_and_named_each() -> None:
    case = CASES["a device of an instance with another type"]
    needs = desired(case, "gpu01", "gpu02", "gpu03")
    assert {name: [f.place for f in fs] for name, fs in needs.unknown.items()} == {
        name: [f"{name} 0000:41:00.0"] for name in ("gpu01", "gpu02", "gpu03")
    }


def of_tool(deployment: str, needs: DesiredConfig) -> dict[str, dict[str, str]]:
    """The settings of the host in the files of a deployment tool."""
    files = [f for f in render(needs, deployment=deployment).files if "compute" in f.services]
    if deployment in ("drop-in", "kolla", "kayobe"):
        (text,) = [f.text for f in files if "gpu01" in f.name]
        return settings(text)
    documents = [
        d for f in files if "host_vars/gpu01" in f.path or "host_vars" not in f.path for d in yaml.safe_load_all(f.text)
    ]
    if deployment == "rhoso":
        (text,) = [t for d in documents for k, t in d.get("data", {}).items() if t.startswith("# gpu01")]
        return settings(text)
    if deployment == "openstack-ansible":
        (sections,) = [
            d["nova_nova_conf_overrides"] for d in documents if "devices" in d.get("nova_nova_conf_overrides", {})
        ]
        assert sections["pci"] == {"report_in_placement": True}, "a host's variable replaces that of the group"
    else:
        (sections,) = [h["conf"]["nova"] for d in documents for h in d["conf"]["overrides"]["nova_compute"]["hosts"]]
    return {group: {k: str(v) for k, v in values.items()} for group, values in sections.items() if group != "pci"}


@pytest.mark.parametrize("deployment", TOOLS)
def test_each_deployment_tool_gets_the_sections(deployment: str) -> None:
    case = CASES["two types on two cards, and a class of its own"]
    spec, host = spec_of(case, placement="report"), host_of(case)
    needs = wanted(spec, [host], release=releases.release(case["release"]))
    assert of_tool(deployment, needs) == case["settings"]
    of_others = render(needs, deployment=deployment, services=["api", "scheduler"]).files
    assert any("mdev_" in file.text for file in of_others) == ("compute" in TOOLS[deployment].together)


def test_a_device_spec_of_the_operator_that_matches_a_shared_card_is_refused(tmp_path: Path) -> None:
    case = CASES["one type on two cards"]
    path = tmp_path / "nova-compute.conf"
    path.write_text('[pci]\ndevice_spec = {"address": "0000:41:00.0"}\n', encoding="utf-8")
    host = host_of(case)
    existing = existing_for("drop-in", arguments=[str(path)], root=tmp_path)
    rendering = render(desired(case), existing=existing, hosts=[host])
    (twice,) = [f for f in rendering.findings if f.code == "GPU548"]
    assert (twice.severity, twice.place) == (Severity.ERROR, f"{path}:2")
    assert "0000:41:00.0" in twice.message


@pytest.mark.parametrize(("types", "reported"), [("nvidia-711", False), ("nvidia-711,nvidia-710", True)])
def test_types_in_a_file_that_nova_reads_later_are_reported(tmp_path: Path, types: str, reported: bool) -> None:
    directory = tmp_path / "nova.conf.d"
    directory.mkdir()
    later = directory / "900-own.conf"
    later.write_text(f"[devices]\nenabled_mdev_types = {types}\n", encoding="utf-8")
    existing = existing_for("drop-in", arguments=[f"compute={directory}"], root=tmp_path)
    rendering = render(desired(CASES["one type on two cards"]), existing=existing)
    assert [f.place for f in rendering.findings if f.code == "GPU314"] == [f"{later}:2"] * reported


UBUNTU, OLDER = {"ID": "ubuntu", "VERSION_ID": "24.04"}, {"ID": "ubuntu", "VERSION_ID": "22.04"}


@pytest.mark.parametrize(
    ("release", "driver", "system", "tags"),
    [
        ("2025.1", "580.65.06", UBUNTU, {"managed": "no", "live_migratable": "yes"}),
        ("2025.1", "580.65.06", {"ID": "rhel", "VERSION_ID": "10.0"}, {"managed": "no", "live_migratable": "yes"}),
        ("2025.1", "580.65.06", OLDER, {"managed": "no"}),  # libvirt 8.0: nova-compute would not start
        ("2025.1", "550.90.05", UBUNTU, {"managed": "no"}),
        ("2025.1", None, {}, {"managed": "no"}),
        ("2024.2", "580.65.06", UBUNTU, {}),
    ],
)
def test_virtual_functions_with_a_type_are_pci_devices(
    release: str, driver: str | None, system: dict[str, str], tags: dict[str, str]
) -> None:
    model = {"match": {"vendor": "10de", "product": "25b6"}, "vgpu": {"type": "A16-8Q", "count": 2}}
    spec = spec_of({"models": {"a": model}, "release": release})
    made = mediated_host(*parted("0000:41:00.0", 3, current="711"), driver=driver)
    needs = wanted(spec, [made.model_copy(update={"os_release": system})], release=releases.release(release))
    assert [entry.to_dict() for entry in needs.computes["gpu01"]] == [
        {"vendor_id": "10de", "product_id": "25b6", "address": f"0000:41:00.{number}", **tags} for number in (1, 2)
    ]
    assert needs.mediated["gpu01"] == ()
    movable = {key: value for key, value in tags.items() if key == "live_migratable"}
    (alias,) = needs.aliases
    assert alias.to_dict() == {
        "name": "a",
        "vendor_id": "10de",
        "product_id": "25b6",
        "device_type": "type-VF",
        **movable,
    }


def test_one_host_without_live_migration_leaves_it_out_of_the_alias() -> None:
    model = {"match": {"vendor": "10de", "product": "25b6"}, "vgpu": {"type": "A16-8Q"}}
    hosts = [
        mediated_host(*parted("0000:41:00.0", 1, current="711"), driver="580.65.06", name=name).model_copy(
            update={"os_release": system}
        )
        for name, system in (("gpu01", UBUNTU), ("gpu02", OLDER))
    ]
    needs = wanted(spec_of({"models": {"a": model}, "release": "2025.2"}), hosts, release=releases.release("2025.2"))
    assert [entry.live_migratable for name in ("gpu01", "gpu02") for entry in needs.computes[name]] == [True, None]
    assert [alias.live_migratable for alias in needs.aliases] == [None]


@pytest.mark.parametrize(
    ("name", "change", "codes"),
    [
        ("two types on two cards, and a class of its own", ("", ""), []),
        ("two types on two cards, and a class of its own", ("CUSTOM_A16_4Q", "CUSTOM_OTHER"), ["GPU970"]),
        ("two types on two cards, and a class of its own", ("[devices]", "[nothing]"), ["GPU971", "GPU971"]),
        ("one type of the standard class, before 2024.1", ("", ""), []),
        ("a device of an instance, with the type of the spec", ("nvidia-711", "nvidia-712"), ["GPU971", "GPU974"]),
    ],
)
def test_lint_knows_the_rules_of_rendering(
    tmp_path: Path, name: str, change: tuple[str, str], codes: list[str]
) -> None:
    case = CASES[name]
    (text,) = [f.text for f in render(desired(case)).files if f.target == "gpu01"]
    path = tmp_path / "gpu01" / "nova-compute.conf"
    path.parent.mkdir()
    path.write_text(text.replace(*change), encoding="utf-8")
    subject = LintSubject.of_spec(spec_of(case), releases.release(case["release"]), [host_of(case)])
    of_vgpus = [f.code.value for f in lint([str(path)], subject).findings if f.code.value.startswith("GPU97")]
    assert of_vgpus == codes


@pytest.mark.parametrize(
    ("text", "parts", "places"),
    [
        ("enabled_mdev_types = nvidia-711\n", None, []),
        ("enabled_mdev_types = A16-8Q\n", None, [2]),
        ("enabled_mdev_types = nvidia-711\n[mdev_nvidia-711]\ndevice_addresses = 0000:41:00.0\n", None, []),
        ("enabled_mdev_types = nvidia-711\n[mdev_nvidia-711]\ndevice_addresses = 0000:41:00.0\n", 2, [4]),
        ("enabled_mdev_types = nvidia-711\n[mdev_nvidia-711]\ndevice_addresses = 0000:43:00.0\n", None, [4]),
    ],
)
def test_lint_names_types_that_no_card_supports(
    tmp_path: Path, text: str, parts: int | None, places: list[int]
) -> None:
    """Types by their names instead of their directories, other cards, and cards instead of their virtual functions."""
    case = {**CASES["one type on two cards"], "cards": [{"address": "0000:41:00.0", "parts": parts}]}
    path = tmp_path / "nova-compute.conf"
    path.write_text(f"[devices]\n{text}", encoding="utf-8")
    subject = LintSubject.of_spec(spec_of(case), releases.release("2025.2"), [host_of(case)])
    found = [f.place for f in lint([str(path)], subject).findings if f.code == "GPU538"]
    assert found == [f"{path}:{line}" for line in places]


@pytest.mark.parametrize(("current", "reported"), [("711", False), (None, True)])
def test_lint_names_offered_functions_without_a_type(tmp_path: Path, current: str | None, reported: bool) -> None:
    path = tmp_path / "nova-compute.conf"
    path.write_text('[pci]\ndevice_spec = {"address": "0000:41:00.1"}\n', encoding="utf-8")
    host = mediated_host(*parted("0000:41:00.0", 2, current=current))
    subject = LintSubject.of_spec(spec_of(CASES["one type on two cards"]), releases.release("2025.2"), [host])
    found = [f for f in lint([str(path)], subject).findings if f.code == "GPU882"]
    assert [(f.place, "0000:41:00.1" in f.message) for f in found] == [(f"{path}:2", True)] * reported


def test_models_of_one_class_have_traits_of_their_own() -> None:
    case = CASES["a custom class of one of two types, before 2024.1"]
    models = json.loads(json.dumps(case["models"]))
    models["b"]["traits"] = ["mig", "HW_GPU_API_VULKAN"]
    own = spec_of({**case, "models": models})
    assert (required_traits(own, "a"), required_traits(own, "b")) == ((), ("CUSTOM_MIG",)), "no standard trait"
    models["a"]["vgpu"]["resource_class"] = "VGPU"
    alike, host = spec_of({**case, "models": models}), host_of(case)
    expected = {"a": ("CUSTOM_GPU_MODEL_A",), "b": ("CUSTOM_MIG", "CUSTOM_GPU_MODEL_B")}
    assert {name: required_traits(alike, name) for name in models} == expected
    assert wanted(alike, [host], release=releases.release("2025.2")).traits["gpu01"] == {
        "gpu01_pci_0000_41_00_0": expected["a"],
        "gpu01_pci_0000_42_00_0": expected["b"],
    }


def test_providers_are_named_by_both_names_of_the_host() -> None:
    names = of_providers("gpu01.example.org", {"0000:41:00.0": ("CUSTOM_A",)})
    assert [*names] == ["gpu01.example.org_pci_0000_41_00_0", "gpu01_pci_0000_41_00_0"]


def test_providers_have_traits_for_flavors_by_memory() -> None:
    case = CASES["one type on two cards"]
    flavors = {"f": {"gpu": {"min_memory": "4GiB"}, "vcpus": 1, "ram": 512, "disk": 1}}
    by_memory = spec_of({**case, "flavors": flavors})
    assert required_traits(by_memory, "any-4gb") == ("CUSTOM_GPU_MEM_GE_4GB",)
    found = wanted(by_memory, [host_of(case)], release=releases.release("2025.2")).traits["gpu01"]
    assert {"CUSTOM_GPU_MODEL_A", "CUSTOM_GPU_MEM_GE_8GB"} <= set(found["gpu01_pci_0000_41_00_0"])


def test_flavors_by_memory_need_no_alias_for_mediated_devices() -> None:
    case = CASES["one type on two cards"]
    flavors = {"f": {"gpu": {"min_memory": "4GiB"}, "vcpus": 1, "ram": 512, "disk": 1}}
    needs = wanted(spec_of({**case, "flavors": flavors}), [host_of(case)], release=releases.release("2025.2"))
    assert (needs.aliases, [entry.code for entry in needs.findings]) == ((), [])


def test_model_without_typed_functions_is_not_called_a_missing_card() -> None:
    case = CASES["mediated devices on virtual functions"]
    host = mediated_host(*parted("0000:41:00.0", 2))
    (missing,) = wanted(spec_of(case), [host], release=releases.release("2025.2")).findings
    assert (missing.code, "working virtual function or vGPU of the model a" in missing.message) == ("GPU300", True)


@pytest.mark.parametrize(("count", "codes"), [(None, []), (2, []), (1, ["GPU972"])])
def test_functions_of_a_full_card_are_no_other_cards(tmp_path: Path, count: int | None, codes: list[str]) -> None:
    """Up to 2023.2, Nova creates devices on any function, but the driver creates two on a card."""
    model = {
        "match": {"vendor": "10de", "product": "25b6"},
        "vgpu": {"type": "A16-8Q"} | ({"count": count} if count else {}),
    }
    host = VgpuHost(framework="sriov-mdev", texts={"/available_instances": "1\n"}).read(tmp_path)
    release = releases.release("2023.1")
    needs = wanted(spec_of({"release": "2023.1", "models": {"a": model}}), [host], release=release)
    assert [f.code for f in needs.unknown.get("gpu01", ())] == codes
    assert (len(needs.mediated.get("gpu01", ())), needs.has_devices("gpu01")) == (
        (1, True) if not codes else (0, False)
    )


def test_markers_of_quotas_count_mediated_devices() -> None:
    case = CASES["one type on two cards"]
    flavors = {"f": {"model": "a", "vcpus": 1, "ram": 512, "disk": 1}}
    spec = spec_of({**case, "flavors": flavors, "quotas": {"default": {"a": 1}}})
    host, release = host_of(case), releases.release(case["release"])
    assert wanted(spec, [host], release=release).markers == {"gpu01": {"CUSTOM_GPU_QUOTA_A": 4}}
    (flavor,) = flavors_of(spec, release=release, hosts=[host]).flavors
    assert flavor.extra_specs == {"resources:CUSTOM_A": "1", "resources:CUSTOM_GPU_QUOTA_A": "1"}


@pytest.mark.parametrize("deployment", TOOLS)
@pytest.mark.parametrize("names", [("gpu01",), ("gpu01", "gpu02")])
def test_lint_accepts_what_is_rendered(tmp_path: Path, deployment: str, names: tuple[str, ...]) -> None:
    """Also the files for hosts without GPUs, which a single host with facts may have."""
    case = CASES["two types on two cards, and a class of its own"]
    spec, hosts = spec_of(case), [host_of(case, name) for name in names]
    needs = wanted(spec, hosts, release=releases.release(case["release"]))
    written(tmp_path, render(needs, deployment=deployment))
    paths = {"drop-in": "", "kolla": "etc/kolla/config/nova", "kayobe": "etc/kayobe/kolla/config/nova"}
    files = [path for path in tmp_path.rglob("*.y*ml") if "provider_config" not in path.parts]
    arguments = [tmp_path / paths[deployment]] if deployment in paths else files
    subject = LintSubject.of_spec(spec, releases.release(case["release"]), hosts)
    found = lint([*map(str, arguments)], subject).findings
    assert [str(f) for f in found if f.code.value.startswith(("GPU97", "GPU53", "GPU33"))] == []


@pytest.mark.parametrize(
    ("mdev", "placement", "classes", "alias", "codes"),
    [
        (False, "off", False, None, ["GPU302"]),
        (False, "off", False, "a16", []),
        (False, "schedule", True, None, []),
        (False, "schedule", True, "a16", ["GPU303", "GPU787"]),
        (False, "schedule", False, "a16", []),
        (True, "off", False, None, []),
        (True, "schedule", True, None, []),
    ],
)
def test_types_of_one_card_are_offered_only_if_nova_can_tell_them_apart(
    mdev: bool, placement: str, classes: bool, alias: str | None, codes: list[str]
) -> None:
    models: dict[str, Any] = {}
    for name, type_, count in (("big", "A16-8Q", 1), ("small", "A16-4Q", 2)):
        own = {"resource_class": f"CUSTOM_{name.upper()}"} if classes else {}
        vgpu = {"type": type_, "count": count, **(own if mdev else {})}
        match = {"vendor": "10de", "product": "25b6"}
        models[name] = {"match": match, "alias": alias or name, "vgpu": vgpu, **({} if mdev else own)}
    card, *parts = parted("0000:84:00.0", 3, mdev=mdev)
    if not mdev:
        parts = [{**part, "vgpu_type": kind} for part, kind in zip(parts, ("711", "710", "710"), strict=True)]
    host = mediated_host(*({**function, "iommu_group": n} for n, function in enumerate((card, *parts))))
    case = {"models": models, "release": "2025.2"}
    needs = wanted(spec_of(case, placement), [host], release=releases.release("2025.2"))
    assert [f.code for f in found(needs) if f.severity is Severity.ERROR] == codes
    is_apart = mdev or alias is not None
    assert (Code.VGPUS_OF_SEVERAL_ALIASES in {f.code for f in found(needs)}) == (not is_apart)
    assert bool(needs.computes.get("gpu01")) == (not mdev and is_apart and not codes)
    addresses = {section.type: section.addresses for section in needs.mediated.get("gpu01", ())}
    both = {"nvidia-711": ("0000:84:00.1",), "nvidia-710": ("0000:84:00.2", "0000:84:00.3")}
    assert addresses == (both if mdev else {})


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("enabled_mdev_types = nvidia-474\n[mdev_nvidia-474]\ndevice_addresses = 0000:43:00.0\n", "0000:43:00.0"),
        ("enabled_mdev_types = nvidia-474\n", "0000:43:00.0"),  # Nova offers the type on each card that supports it
        ("enabled_mdev_types = nvidia-710\n[mdev_nvidia-710]\ndevice_addresses = 0000:41:00.0\n", ""),
        ("enabled_mdev_types = nvidia-711,nvidia-999\n", ""),
    ],
)
def test_types_of_the_operator_that_the_rendered_list_replaces_are_reported(
    tmp_path: Path, text: str, lost: str
) -> None:
    """The vGPUs of a card that is not in the spec vanished with the restart of nova-compute."""
    case = CASES["one type on two cards"]
    case = {**case, "cards": [*case["cards"], {"address": "0000:43:00.0", "kind": "A100"}]}
    (tmp_path / "nova.conf").write_text(f"[devices]\n{text}", encoding="utf-8")
    existing = existing_for("drop-in", arguments=[f"compute={tmp_path}/nova.conf"], root=tmp_path)
    found = [f for f in render(desired(case), existing=existing, hosts=[host_of(case)]).findings if f.code == "GPU980"]
    assert [(f.place, lost in f.message) for f in found] == [(f"{tmp_path}/nova.conf:2", True)] * bool(lost)


def test_each_host_has_its_list_of_types(tmp_path: Path) -> None:
    """The lists of all hosts joined were named as the value to set, with which Nova offers a type on other cards."""
    case = CASES["two types on two cards, and a class of its own"]
    needs = desired(case)
    one, other = needs.mediated["gpu01"]
    needs = replace(needs, mediated={"gpu01": (one,), "gpu02": (other,)})
    for types, codes in (("nvidia-711", []), ("nvidia-711,nvidia-710", ["GPU323"])):
        (tmp_path / "nova.conf").write_text(f"[devices]\nenabled_mdev_types = {types}\n", encoding="utf-8")
        existing = existing_for("drop-in", arguments=[f"compute={tmp_path}/nova.conf"], root=tmp_path)
        found = [f for f in render(needs, existing=existing).findings if f.code == "GPU323"]
        assert [f.code for f in found] == codes
        assert [f.remedy for f in found] == ["set the line there to nvidia-711 or nvidia-710"] * len(codes)
