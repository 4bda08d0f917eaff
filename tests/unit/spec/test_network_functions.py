"""The virtual functions of network cards that ports get: never a card, and none of two networks."""

from __future__ import annotations

import pytest

from gpustack.hosts.facts.model import Host
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from gpustack.spec.network_functions import network_cards, network_functions
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


@pytest.mark.parametrize(
    ("interface", "offered"),
    [
        ({"state": "down", "uppers": [], "routes": "none"}, True),
        ({"state": "down", "uppers": ["bond0"], "routes": "none"}, False),  # without a link
        ({"state": "down", "uppers": [], "routes": "networks"}, False),
        ({"state": "unknown", "uppers": [], "routes": "none"}, False),  # up, but its driver does not report a link
    ],
)
def test_use_without_a_link_is_use(interface: dict[str, object], offered: bool) -> None:
    card, part = network_card(0x1A, 1, "ens1")
    known = host(GPU, card, {**part, "uses": {"net": [{"name": "ens1v0", **interface}]}})
    found = network_functions(spec("{a: {match: {interfaces: [ens1]}, physical_network: a}}"), known)
    assert bool(found.by_network["a"]) is offered


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


@pytest.mark.parametrize(
    ("match", "cards"),
    [
        ("interfaces: [ens1, ens2]", ["0000:1a:00.0", "0000:1b:00.0"]),
        ('addresses: ["0000:1a:00.0"]', ["0000:1a:00.0"]),
        ('addresses: ["0000:1a:00.0"], interfaces: [ens2]', []),
        ('vendor: "8086", product: "10ca", interfaces: [ens1]', ["0000:1a:00.0"]),  # the ids of the functions
        ('addresses: ["0000:88:00.0", "0000:1a:10.0"]', []),  # a GPU, and a virtual function
    ],
)
def test_virtual_functions_are_created_of_named_network_cards(match: str, cards: list[str]) -> None:
    found = network_cards(spec(f"{{a: {{match: {{{match}}}, physical_network: a, vfs: 4}}}}"), facts())
    assert [(entry.address, entry.model, entry.count) for entry in found.shared] == [(card, "a", 4) for card in cards]


def test_network_without_the_key_creates_nothing() -> None:
    assert network_cards(spec("{a: {match: {interfaces: [ens1]}, physical_network: a}}"), facts()).shared == ()


def test_card_of_two_networks_gets_no_virtual_functions() -> None:
    networks = """{a: {match: {interfaces: [ens1]}, physical_network: a, vfs: 4},
                   b: {match: {addresses: ["0000:1a:00.0"]}, physical_network: b, vfs: 4}}"""
    found = network_cards(spec(networks), facts())
    assert (found.shared, found.disputed) == ((), {"0000:1a:00.0": ("a", "b")})
