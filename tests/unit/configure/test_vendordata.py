"""The option of the vendor data, if the spec names a path."""

from __future__ import annotations

import pytest

from gpustack.configure.desired import wanted
from gpustack.configure.render import Deployment, render
from gpustack.nova_options.releases import release
from gpustack.spec.load import parse_spec
from support.fleet_answers import facts

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2", vendordata: /etc/nova/vendordata.json}
"""
OPTION = "vendordata_jsonfile_path = /etc/nova/vendordata.json"


def rendered(spec: str, service: str, deployment: Deployment = "drop-in") -> str:
    desired = wanted(parse_spec(spec, "spec"), [facts("gpu01", 0x81)], release=release("2025.2"))
    return "".join(file.text for file in render(desired, deployment=deployment, services=(service,)).files)


@pytest.mark.parametrize(("service", "expected"), [("api", True), ("compute", True), ("scheduler", False)])
def test_the_services_that_read_vendor_data_get_its_path(service: str, expected: bool) -> None:
    text = rendered(SPEC, service)
    assert ("[api]" in text and OPTION in text) is expected


@pytest.mark.parametrize("deployment", ["drop-in", "kolla", "kayobe", "openstack-ansible", "rhoso", "openstack-helm"])
def test_each_tool_gets_the_option(deployment: Deployment) -> None:
    assert "/etc/nova/vendordata.json" in rendered(SPEC, "compute", deployment)


def test_without_a_path_nothing_is_set() -> None:
    assert "vendordata" not in rendered(SPEC.replace(", vendordata: /etc/nova/vendordata.json", ""), "compute")
