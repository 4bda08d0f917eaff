"""The device_spec of existing configuration is compared with the networks of the spec."""

from __future__ import annotations

import pytest

from gpustack.configure.desired import ports
from gpustack.configure.lint import judged
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.releases import release
from gpustack.spec.load import parse_spec
from support.host_samples import function, host
from support.network_cards import network_card

SPEC = parse_spec(
    """
version: 1
models: {p100: {match: {vendor: "10de", product: "15f8"}}}
hosts: {gpu01: [p100]}
networks:
  a: {match: {interfaces: [ens1]}, physical_network: fabric-a}
  b: {match: {interfaces: [ens2]}, physical_network: fabric-b}
""",
    "spec",
)
HOST = host(function("0000:88:00.0"), *network_card(0x1A, 2, "ens1"), *network_card(0x1B, 2, "ens2"))
A = '{"vendor_id": "8086", "product_id": "10ca", "address": "0000:1a:00.0", "physical_network": "fabric-a"}'
B = A.replace("1a:00", "1b:00").replace("fabric-a", "fabric-b")
NO_KEY = '{"vendor_id": "8086", "product_id": "10ca", "address": "0000:1a:00.0"}'
TUNNELLED = A.replace('"fabric-a"', "null")


def lines_found(text: str, version: str = "2025.2") -> list[tuple[str, str, str]]:
    configuration = parse_files({"gpu01/nova.conf": text})
    source = Source(label="compute", services=("compute",), configuration=configuration, named=True)
    of_host = {"gpu01": ports(SPEC, HOST)}
    results = judged(LintSubject(sources=[source], release=release(version), hosts=[HOST], ports=of_host))
    findings = [f for result in results for f in result.findings if f.code in ("GPU893", "GPU894")]
    return [(f.code, f.place, f.message) for f in findings]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((A, B), []),
        ((B, A), []),
        ((A,), [("GPU893", "compute", "network b on gpu01: 0000:1b:10.0, 0000:1b:10.2")]),
        ((NO_KEY, B), [("GPU894", "gpu01/nova.conf:2", "network a no physical network, and not fabric-a")]),
        ((TUNNELLED, B), [("GPU894", "gpu01/nova.conf:2", "network a no physical network, and not fabric-a")]),
        (
            (A, B.replace("fabric-b", "fabric-a")),
            [("GPU894", "gpu01/nova.conf:3", "network b the physical network fabric-a, and not fabric-b")],
        ),
        # Nova uses the first entry that matches.
        ((NO_KEY, A, B), [("GPU894", "gpu01/nova.conf:2", "0000:1a:10.0, 0000:1a:10.2")]),
    ],
)
def test_entries_are_compared_with_the_networks(entries: tuple[str, ...], expected: list[tuple[str, str, str]]) -> None:
    text = "[pci]\n" + "".join(f"device_spec = {entry}\n" for entry in entries)
    found = lines_found(text)
    assert [(code, place) for code, place, _ in found] == [(code, place) for code, place, _ in expected]
    assert all(part in message for (*_, message), (*_, part) in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("interface", "reported"),
    [
        ({"state": "down", "uppers": ["bond0"], "routes": "none"}, True),
        ({"state": "up", "uppers": [], "routes": "networks"}, True),
        ({"state": "up", "uppers": ["macvtap3"], "routes": "none"}, False),  # a port of an instance
        ({"state": "up", "uppers": [], "routes": "none"}, False),
    ],
)
@pytest.mark.parametrize("entry", [A, TUNNELLED, NO_KEY])
def test_virtual_functions_that_carry_the_network_of_the_host(
    interface: dict[str, object], reported: bool, entry: str
) -> None:
    card, first, second = network_card(0x1A, 2, "ens1")
    known = host(function("0000:88:00.0"), card, {**first, "uses": {"net": [{"name": "ens1v0", **interface}]}}, second)
    configuration = parse_files({"gpu01/nova.conf": f"[pci]\ndevice_spec = {entry}\n"})
    source = Source(label="compute", services=("compute",), configuration=configuration, named=True)
    results = judged(LintSubject(sources=[source], release=release("2025.2"), hosts=[known]))
    found = [f.message for result in results for f in result.findings if f.code == "GPU901"]
    assert bool(found) is (reported and entry != NO_KEY)
    assert all("0000:1a:10.0, although the host uses it (ens1v0)" in message for message in found)


def test_whitelists_of_old_releases_are_compared() -> None:
    text = f"[pci]\npassthrough_whitelist = {A}\n"
    assert [code for code, *_ in lines_found(text, version="yoga")] == ["GPU893"]


def test_other_hosts_are_not_compared() -> None:
    configuration = parse_files({"gpu02/nova.conf": "[pci]\n"})
    source = Source(
        label="compute", services=("compute",), configuration=configuration, named=True, hosts=frozenset({"gpu02"})
    )
    results = judged(
        LintSubject(sources=[source], release=release("2025.2"), hosts=[HOST], ports={"gpu01": ports(SPEC, HOST)})
    )
    assert "GPU893" not in {f.code for result in results for f in result.findings}
