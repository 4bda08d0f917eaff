"""The file with the markers of a host: where it is written, and where it is reported."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import pytest
import yaml

from gpustack.configure.desired import wanted
from gpustack.configure.providers import PATH
from gpustack.configure.render import Deployment, render
from gpustack.configure.rendered import Rendering
from gpustack.nova_options.releases import release
from gpustack.spec.load import parse_spec
from support.fleet_answers import facts

R2025 = release("2025.2")
SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}, alias: K4200}}
hosts: {"gpu*": [k4200]}
nova: {release: "2025.2"}
"""
QUOTAS = "quotas: {default: {k4200: 1}}\n"
PROVIDER = {
    "identification": {"uuid": "$COMPUTE_NODE"},
    "inventories": {"additional": [{"CUSTOM_GPU_QUOTA_K4200": {"total": 2, "max_unit": 2}}]},
}


def rendered(
    text: str,
    deployment: Deployment = "drop-in",
    services: Sequence[str] = ("api", "compute"),
    name: str = "2025.2",
) -> Rendering:
    hosts = [facts("gpu1", 0x81, 0x82), facts("gpu2")]
    config = wanted(parse_spec(text, "spec"), hosts, release=release(name))
    return render(config, deployment=deployment, services=services)


def test_each_host_has_as_many_markers_as_gpus() -> None:
    (file,) = (file for file in rendered(SPEC + QUOTAS).files if file.path == PATH)
    assert (file.target, file.services) == ("gpu1", ("compute",))
    (provider,) = yaml.safe_load(file.text)["providers"]
    assert provider == PROVIDER


@pytest.mark.parametrize(
    ("text", "services"), [(SPEC, ("api", "compute")), (SPEC + QUOTAS, ("api",)), (SPEC + QUOTAS, ("scheduler",))]
)
def test_nobody_else_gets_markers(text: str, services: Sequence[str]) -> None:
    assert [file for file in rendered(text, services=services).files if file.path == PATH] == []


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        ("kolla", "set nova_cell_compute_provider_config"),
        ("kayobe", "etc/kayobe/kolla/inventory/host_vars"),
        ("openstack-helm", "hostPath volume"),
    ],
)
def test_other_tools_get_a_finding(deployment: Deployment, words: str) -> None:
    findings = [found for found in rendered(SPEC + QUOTAS, deployment).findings if found.code == "GPU752"]
    assert len(findings) == 1
    assert words in findings[0].message
    assert "GPU752" not in [found.code for found in rendered(SPEC, deployment).findings]


@pytest.mark.parametrize(("name", "written"), [("yoga", False), ("2023.1", True), ("2025.2", True)])
def test_openstack_ansible_writes_the_markers_of_each_host(name: str, written: bool) -> None:
    rendering = rendered(SPEC + QUOTAS, "openstack-ansible", name=name)
    variables = {file.path.split("/")[-2]: yaml.safe_load(file.text) for file in rendering.files}
    assert ("nova_provider_overrides" in variables["gpu1"]) is written
    assert ("GPU752" in [found.code for found in rendering.findings]) is not written
    assert "gpu2" not in variables
    if written:
        (entry,) = variables["gpu1"]["nova_provider_overrides"]
        assert (entry["name"], entry["content"]["providers"]) == ("gpustack", [PROVIDER])


def test_rhoso_has_the_markers_in_the_config_map_of_the_hosts() -> None:
    rendering = rendered(SPEC + QUOTAS, "rhoso")
    assert "GPU752" not in [found.code for found in rendering.findings]
    (file,) = (file for file in rendering.files if file.path.endswith("dataplane.yaml"))
    maps = {d["metadata"]["name"]: d["data"] for d in yaml.safe_load_all(file.text) if d["kind"] == "ConfigMap"}
    with_markers = {name: data for name, data in maps.items() if "provider-gpustack.yaml" in data}
    assert set(maps) - set(with_markers) == {"nova-gpu-none"}
    ((_, data),) = with_markers.items()
    assert yaml.safe_load(data["provider-gpustack.yaml"])["providers"] == [PROVIDER]
    assert fnmatch.fnmatch("provider-gpustack.yaml", "provider*.yaml")


def test_rhoso_hosts_with_different_numbers_of_gpus_have_config_maps_of_their_own() -> None:
    hosts = [facts("gpu1", 0x81, 0x82), facts("gpu3", 0x81)]
    config = wanted(parse_spec(SPEC + QUOTAS, "spec"), hosts, release=R2025)
    (file,) = (f for f in render(config, deployment="rhoso").files if f.path.endswith("dataplane.yaml"))
    documents = list(yaml.safe_load_all(file.text))
    totals = [d["data"]["provider-gpustack.yaml"].count("total: ") for d in documents if len(d.get("data", ())) > 1]
    assert totals == [1, 1]
