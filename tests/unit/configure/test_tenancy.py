"""The options that reserve GPU hosts are rendered for nova-scheduler."""

from __future__ import annotations

import pytest

from gpustack.configure.desired import wanted
from gpustack.configure.render import Deployment, render
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
OPTION, FILTER = "enable_isolated_aggregate_filtering", "AggregateMultiTenancyIsolation"


def rendered(aggregate: str, service: str = "scheduler", deployment: Deployment = "drop-in") -> str:
    spec = parse_spec(f"{SPEC}tenancy: {{aggregates: {{gpu: {aggregate}}}}}", "spec")
    files = render(wanted(spec, [facts("gpu1", 0x81)], release=R2025), deployment=deployment, services=(service,)).files
    return "".join(file.text for file in files)


@pytest.mark.parametrize("deployment", ["drop-in", "kolla", "kayobe", "openstack-ansible", "rhoso", "openstack-helm"])
def test_each_tool_gets_the_options(deployment: Deployment) -> None:
    text = rendered("{projects: [a]}", deployment=deployment)
    assert OPTION in text
    assert FILTER in text


def test_options_are_those_that_the_spec_needs() -> None:
    assert [name in rendered("{}") for name in (OPTION, FILTER)] == [True, False]
    assert [name in rendered("{projects: [a], isolated: false}") for name in (OPTION, FILTER)] == [False, True]
    assert not any(name in rendered("{projects: [a]}", "api") for name in (OPTION, FILTER))
