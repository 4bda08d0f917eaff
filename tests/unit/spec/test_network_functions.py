"""The virtual functions of network cards that ports get: never a card, and none of two networks."""

from __future__ import annotations

import pytest

from gpustack.facts.model import Host
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from gpustack.spec.network_functions import network_functions
from support.host_samples import function, host
from support.network_cards import network_card

GPU = function("0000:88:00.0")
PARTS = {bus: [f"0000:{bus}:10.0", f"0000:{bus}:10.2"] for bus in ("1a", "1b")}


def spec(networks: str) -> Spec:
    text = 'version: 1\nmodels: {p100: {match: {vendor: "10de", product: "15f8"}}}\nhosts: {"gpu[01:02]": [p100]}\n'
    return parse_spec(f"{text}networks: {networks}\n", "spec")


def facts(name: str = "gpu01") -> Host:
    return host(GPU, *network_card(0x1A, 2, "ens1"), *network_card(0x1B, 2, "ens2"), hostname=name)


@pytest.mark.parametrize(
    ("match", "buses"),
    [
        ('vendor: "8086", product: "10ca"', ["1a", "1b"]),
        ('vendor: "8086", product: "10c9"', []),  # the card itself
        ('vendor: "10de", product: "15f8"', []),  # a GPU
        ("interfaces: [ens2]", ["1b"]),
        ("interfaces: [ens2, ens1]", ["1a", "1b"]),
        ('addresses: ["0000:1a:00.0"]', ["1a"]),
        ('addresses: ["0000:1a:00.0"], interfaces: [ens2]', []),
    ],
)
def test_a_network_has_virtual_functions_only(match: str, buses: list[str]) -> None:
    found = network_functions(spec(f"{{a: {{match: {{{match}}}, physical_network: a}}}}"), facts())
    assert [f.address for f in found.by_network["a"]] == [address for bus in buses for address in PARTS[bus]]


def test_virtual_functions_of_two_networks_belong_to_none() -> None:
    networks = """{a: {match: {interfaces: [ens1]}, physical_network: a},
                   b: {match: {vendor: "8086", product: "10ca"}, physical_network: b}}"""
    found = network_functions(spec(networks), facts())
    assert found.disputed == dict.fromkeys(PARTS["1a"], ("a", "b"))
    assert found.addresses == {*PARTS["1b"]}


def test_virtual_functions_that_the_host_uses_are_left_to_it() -> None:
    card, first, second = network_card(0x1A, 2, "ens1")
    used = {**first, "uses": {"net": [{"name": "ens1v0", "state": "up"}]}}
    down = {**second, "uses": {"net": [{"name": "ens1v1", "state": "down"}]}}
    networks = spec("{a: {match: {interfaces: [ens1]}, physical_network: a}}")
    found = network_functions(networks, host(GPU, card, used, down))
    assert [f.address for f in found.by_network["a"]] == ["0000:1a:10.2"]
    assert [f.address for f in found.used["a"]] == ["0000:1a:10.0"]


def test_functions_in_domains_that_nova_does_not_support_are_left_out() -> None:
    wide = [
        {**each, "address": f"1{each['address']}", "physical_function": "10000:1a:00.0"}
        for each in network_card(0x1A, 2, "ens1")[1:]
    ]
    networks = spec('{a: {match: {vendor: "8086", product: "10ca"}, physical_network: a}}')
    assert network_functions(networks, host(GPU, *wide)).by_network == {"a": ()}


def test_networks_are_of_hosts_of_the_spec_only() -> None:
    networks = spec("{a: {match: {interfaces: [ens1]}, physical_network: a, hosts: [gpu02, storage1]}}")
    named = {name: network_functions(networks, facts(name)).by_network for name in ("gpu01", "gpu02", "storage1")}
    assert {name: list(found) for name, found in named.items()} == {"gpu01": [], "gpu02": ["a"], "storage1": []}
