"""The file with the markers of a host: where it is written, and where it is reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import yaml

from gpustack.nova_conf.desired import wanted
from gpustack.nova_conf.providers import PATH
from gpustack.nova_conf.render import Deployment, render
from gpustack.nova_conf.rendered import Rendering
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


def rendered(text: str, deployment: Deployment = "drop-in", services: Sequence[str] = ("api", "compute")) -> Rendering:
    hosts = [facts("gpu1", 0x81, 0x82), facts("gpu2")]
    return render(wanted(parse_spec(text, "spec"), hosts, release=R2025), deployment=deployment, services=services)


def test_each_host_has_as_many_markers_as_gpus() -> None:
    (file,) = (file for file in rendered(SPEC + QUOTAS).files if file.path == PATH)
    assert (file.target, file.services) == ("gpu1", ("compute",))
    (provider,) = yaml.safe_load(file.text)["providers"]
    assert provider == {
        "identification": {"uuid": "$COMPUTE_NODE"},
        "inventories": {"additional": [{"CUSTOM_GPU_QUOTA_K4200": {"total": 2, "max_unit": 2}}]},
    }


@pytest.mark.parametrize(
    ("text", "services"), [(SPEC, ("api", "compute")), (SPEC + QUOTAS, ("api",)), (SPEC + QUOTAS, ("scheduler",))]
)
def test_nobody_else_gets_markers(text: str, services: Sequence[str]) -> None:
    assert [file for file in rendered(text, services=services).files if file.path == PATH] == []


@pytest.mark.parametrize("deployment", ["kolla", "kayobe", "openstack-ansible", "rhoso", "openstack-helm"])
def test_other_tools_get_a_finding(deployment: Deployment) -> None:
    findings = [found for found in rendered(SPEC + QUOTAS, deployment).findings if found.code == "GPU752"]
    assert len(findings) == 1
    assert ("nova_cell_compute_provider_config" in findings[0].message) == (deployment in ("kolla", "kayobe"))
    assert "GPU752" not in [found.code for found in rendered(SPEC, deployment).findings]
