"""The device_spec of virtual functions for ports: it matches them, and never their card."""

from __future__ import annotations

import pytest

from gpustack.base.findings import errors
from gpustack.configure.desired import DesiredConfig, wanted
from gpustack.configure.render import TOOLS, render
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.device_spec import DeviceSpec, offered
from gpustack.nova_options.releases import release
from gpustack.spec.load import parse_spec
from support.host_samples import function, host
from support.network_cards import CARD, network_card

GPU = function("0000:88:00.0")
IDS = {"vendor_id": "8086", "product_id": "10ca", "physical_network": "fabric"}


def facts(*, part: str = "8086:10ca") -> Host:
    return host(GPU, *network_card(0x1A, 2, "ens1", part=part), *network_card(0x1B, 2, "ens2", part=part))


def desired(networks: str, hosts: list[Host], placement: str = "off") -> DesiredConfig:
    text = (
        'version: 1\nmodels: {p100: {match: {vendor: "10de", product: "15f8"}}}\nhosts: {gpu01: [p100]}\n'
        f'nova: {{release: "2025.2", placement: {placement}}}\nnetworks: {networks}\n'
    )
    return wanted(parse_spec(text, "spec"), hosts, release=release("2025.2"))


@pytest.mark.parametrize(
    ("match", "part", "entries"),
    [
        ('vendor: "8086", product: "10ca"', "8086:10ca", [IDS]),
        ("interfaces: [ens2]", "8086:10ca", [{**IDS, "address": "0000:1b:00.0"}]),
        (
            "interfaces: [ens2, ens1]",
            "8086:10ca",
            [{**IDS, "address": "0000:1a:00.0"}, {**IDS, "address": "0000:1b:00.0"}],
        ),
        # With the ids of the card, only the addresses of virtual functions leave the card out.
        (
            "interfaces: [ens1]",
            CARD,
            [{**IDS, "product_id": "10c9", "address": f"0000:1a:10.{n}"} for n in (0, 2)],
        ),
    ],
)
@pytest.mark.parametrize("placement", ["off", "schedule"])
def test_entries_match_virtual_functions_only(match: str, part: str, entries: list[dict[str, str]], placement: str):
    known = facts(part=part)
    config = desired(f"{{rdma: {{match: {{{match}}}, physical_network: fabric}}}}", [known], placement)
    _, *ports = [entry.to_dict() for entry in config.computes["gpu01"]]
    assert ports == entries
    matched = offered([DeviceSpec.parse(entry) for entry in ports], known)
    assert matched
    assert {known.functions[address].dev_type for address in matched} == {"type-VF"}
    assert errors(config.findings) == []


@pytest.mark.parametrize("deployment", TOOLS)
def test_every_deployment_tool_gets_the_ports_after_the_gpus(deployment):
    config = desired("{rdma: {match: {interfaces: [ens1]}, physical_network: fabric}}", [facts()])
    rendering = render(config, deployment=deployment, hosts=[facts()])
    text = "\n".join(file.text for file in rendering.files).replace('\\"', '"')
    assert text.index('"product_id": "15f8"') < text.index('"physical_network": "fabric"')


def test_doubtful_networks_are_reported():
    networks = """{a: {match: {interfaces: [ens9]}, physical_network: a},
                   b: {match: {interfaces: [ens1]}, physical_network: b},
                   c: {match: {addresses: ["0000:1a:00.0"]}, physical_network: c}}"""
    config = desired(networks, [facts()])
    reports = [f for f in config.findings if f.code in ("GPU885", "GPU886")]
    assert [(f.code, f.place) for f in reports] == [("GPU885", "gpu01"), ("GPU886", "gpu01")]
    assert "networks b and c match the same virtual functions: 0000:1a:10.0, 0000:1a:10.2;" in reports[1].message
    assert len(config.computes["gpu01"]) == 1


def test_a_virtual_function_that_the_host_uses_is_not_offered():
    """The others of the card have entries of their own: the address of the card would match it too."""
    card, first, second = network_card(0x1A, 2, "ens1")
    known = host(GPU, card, {**first, "uses": {"net": [{"name": "ens1v0", "state": "up"}]}}, second)
    config = desired("{rdma: {match: {interfaces: [ens1]}, physical_network: fabric}}", [known])
    assert [entry.to_dict() for entry in config.computes["gpu01"][1:]] == [{**IDS, "address": "0000:1a:10.2"}]
    (report,) = [f for f in config.findings if f.code in ("GPU885", "GPU889")]
    assert "0000:1a:10.0 (ens1v0)" in report.message
    assert errors(config.findings) == []
