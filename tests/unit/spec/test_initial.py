"""The first spec lists the GPUs of the scanned hosts, and is always valid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.base.errors import GpustackError
from gpustack.hosts.facts.gpus import gpus, is_integrated
from gpustack.hosts.facts.model import Host
from gpustack.spec.assignment import assigned_gpus
from gpustack.spec.initial import initial_spec
from gpustack.spec.load import parse_spec
from gpustack.spec.model import models_for
from gpustack.spec.schema import SCHEMA_FILE

GOLDEN = Path(__file__).parent / "cases" / "initial.golden"


def function(address: str, ids: str, pci_class: str = "030000", **more: Any) -> dict[str, Any]:
    vendor, product = ids.split(":")
    return {"address": address, "vendor": vendor, "product": product, "class": pci_class, **more}


def host(name: str, *functions: dict[str, Any]) -> Host:
    return Host.model_validate({"version": 1, "hostname": name, "pci": functions})


def k4200(bus: int, subsystem: str = "10de:1096") -> list[dict[str, Any]]:
    vendor, product = subsystem.split(":")
    board = {"subsystem_vendor": vendor, "subsystem_product": product}
    return [
        function(f"0000:{bus:02x}:00.0", "10de:11b4", **board),
        function(f"0000:{bus:02x}:00.1", "10de:0e0a", "040300", **board),
    ]


NVSWITCH = function("0000:c0:00.0", "10de:1af1", "068000")
A100 = function("0000:41:00.0", "10de:20b2", "030200")
BMC = function("0000:03:00.0", "1a03:2000")
IGPU = function("0000:00:02.0", "8086:3e9b")


def test_the_first_spec_of_a_small_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    hosts = [
        *(host(f"gpu-{n:02d}.example.org", BMC, *k4200(0x88), *k4200(0x89)) for n in (1, 2, 3, 5)),
        host("gpu-04.example.org", *k4200(0x88, "103c:1096"), function("0000:05:00.0", "10de:13f2")),
        *(host(f"hgx{n}", A100, NVSWITCH) for n in (1, 2)),
        host("mixed", function("0000:05:00.0", "1234:5678", "120000"), IGPU),
        host("storage1", BMC),
        host("storage2", IGPU),
    ]
    text = initial_spec(hosts, schema="schema.json")
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_host_of_the_spec_gives_what_was_found_on_it() -> None:
    hosts = [
        host("a", *k4200(0x88), BMC, IGPU),
        host("b", A100, NVSWITCH, function("0000:05:00.0", "1002:74a1", "120000")),
    ]
    spec = parse_spec(initial_spec(hosts), "x")
    assert list(models_for(spec, "a")) == ["k4200"]
    assert list(models_for(spec, "b")) == ["a100-sxm4-80gb", "mi300x"]
    assert spec.models["k4200"].match.model_dump(exclude_defaults=True) == {"vendor": "10de", "product": "11b4"}


def test_cards_of_one_name_and_two_ids_are_two_models() -> None:
    first = function("0000:05:00.0", "8086:0bd9", "030000")
    second = function("0000:06:00.0", "8086:0bda", "030000")
    spec = parse_spec(initial_spec([host("a", first, second)]), "x")
    assert {name: model.match.product for name, model in spec.models.items()} == {
        "max-1100-0bd9": "0bd9",
        "max-1100-0bda": "0bda",
    }


def test_the_subsystem_tells_boards_apart_where_the_catalogue_does() -> None:
    """RTX 6000 and RTX 8000 share their ids; each alone needs no more than those."""
    rtx6000 = function("0000:05:00.0", "10de:1e30", subsystem_vendor="10de", subsystem_product="12ba")
    rtx8000 = function("0000:06:00.0", "10de:1e30", subsystem_vendor="10de", subsystem_product="129e")
    dell = function("0000:07:00.0", "10de:1e30", subsystem_vendor="1028", subsystem_product="129e")
    facts = host("a", rtx6000, rtx8000, dell)
    spec = parse_spec(initial_spec([facts]), "x")
    assert {assigned.address: assigned.model for assigned in assigned_gpus(spec, facts)} == {
        "0000:05:00.0": "rtx-6000",
        "0000:06:00.0": "rtx-8000-10de-129e",
        "0000:07:00.0": "rtx-8000-1028-129e",
    }
    alone = parse_spec(initial_spec([host("a", rtx8000)]), "x")
    assert {n: m.match.model_dump(exclude_defaults=True) for n, m in alone.models.items()} == {
        "rtx-8000": {"vendor": "10de", "product": "1e30"}
    }


CEZANNE = [function("0000:05:00.0", "1002:1638", boot_vga=True), function("0000:05:00.2", "1022:15df", "108000")]
NEWER_APU = [function("0000:c4:00.0", "1002:ffff", boot_vga=True), function("0000:c4:00.3", "1022:1640", "0c0330")]
NPU = function("0000:00:0b.0", "8086:7d1d", "120000")
ONLY_DISPLAY = [{**k4200(0x01)[0], "boot_vga": True}, k4200(0x01)[1]]


@pytest.mark.parametrize("functions", [[IGPU], [IGPU, NPU], CEZANNE, NEWER_APU, ONLY_DISPLAY])
def test_only_displays_and_integrated_graphics_are_omitted(functions: list[dict[str, Any]]) -> None:
    with pytest.raises(GpustackError, match=r"no GPU found on a .*omitted"):
        initial_spec([host("a", *functions)])
    text = initial_spec([host("a", *functions), host("b", *k4200(0x88))])
    assert list(parse_spec(text, "x").hosts) == ["b"]
    assert re.search(r"^# Omitted \(.*\): a\.$", text, re.MULTILINE)


def test_an_accelerator_is_no_display_beside_the_only_one() -> None:
    mi210 = function("0000:41:00.0", "1002:740f", "038000")
    text = initial_spec([host("a", *ONLY_DISPLAY, mi210)])
    assert parse_spec(text, "x").hosts["a"].models == ("mi210",)


def test_hosts_without_any_display_left_are_named() -> None:
    """No VGA controller is the one that the kernel booted on: the console may be a serial one."""
    text = initial_spec([host("a", *k4200(0x87), *k4200(0x88)), host("b", BMC, *k4200(0x88))])
    assert "# Note: this spec passes through all displays of these hosts, so their consoles lose the screen: a." in text


RX6800 = [function("0000:05:00.0", "1002:73bf"), function("0000:05:00.1", "1002:ab28", "040300")]
M60 = [function("0000:05:00.0", "10de:13f2"), function("0000:06:00.0", "10de:13f2")]
"""VGA controllers without a connector."""


@pytest.mark.parametrize(
    ("displays", "models"),
    [
        ([], []),
        (k4200(0x88), []),
        (RX6800, ["rx-6800-6800-xt-6900-xt"]),
        (M60, ["m60"]),
        ([*RX6800, *k4200(0x88)], ["rx-6800-6800-xt-6900-xt"]),
    ],
)
def test_a_boot_gpu_stays_when_no_other_display_would(displays: list[dict[str, Any]], models: list[str]) -> None:
    text = initial_spec([host("a", *ONLY_DISPLAY, *displays), host("b", BMC, A100)])
    spec = parse_spec(text, "x")
    assert list(models_for(spec, "a")) == models
    assert re.search(r"^# Omitted \(the boot GPUs of hosts .*\): a\.$", text, re.MULTILINE)


STANDARD_VGA = function("0000:00:01.0", "1234:1111", boot_vga=True)
BOCHS_DISPLAY = function("0000:00:01.0", "1234:1111", "038000")


@pytest.mark.parametrize("console", [STANDARD_VGA, {**STANDARD_VGA, "boot_vga": False}, BOCHS_DISPLAY])
def test_the_display_of_a_virtual_machine_is_left_out(console: dict[str, Any]) -> None:
    spec = parse_spec(initial_spec([host("a", console, *k4200(0x88))]), "x")
    assert list(spec.models) == ["k4200"]


def test_a_card_with_virtual_functions_is_no_model() -> None:
    """A model of the card would be refused: its virtual functions share the hardware. They can be a model."""
    parts = [function(f"0000:41:00.{n}", "10de:25b7", "030200", physical_function="0000:41:00.0") for n in (4, 5)]
    shared = [function("0000:41:00.0", "10de:25b6", "030200", sriov_totalvfs=16, sriov_numvfs=2), *parts]
    text = initial_spec([host("a", *k4200(0x88)), host("b", *shared)])
    assert list(parse_spec(text, "x").models) == ["k4200"]
    match = '{vendor: "10de", product: "25b7", function: virtual}'
    advice = "# To offer them, add a model; if nothing creates them at boot, use `vfs` or `vgpu` of the card's model:"
    assert f"# Omitted (cards with virtual functions): b.\n{advice}\n#   match: {match}" in text
    with pytest.raises(GpustackError, match="omitted: cards with virtual functions") as refused:
        initial_spec([host("b", *shared)])
    assert "function: virtual" in str(refused.value.remedy)


@pytest.mark.parametrize("display", [BMC, IGPU, STANDARD_VGA])
def test_a_boot_display_beside_another_display_is_taken(display: dict[str, Any]) -> None:
    text = initial_spec([host("a", *ONLY_DISPLAY, display)])
    assert "k4200" in parse_spec(text, "x").hosts["a"].models


def test_a_host_scanned_twice_is_one_host() -> None:
    text = initial_spec([host("a", *k4200(0x88)), host("a", *k4200(0x88), *k4200(0x89))])
    assert "2 on 1 host" in text


@pytest.mark.parametrize(
    "hosts", [[], [host("a")], [host("a", BMC), host("b", function("0000:00:1f.0", "8086:1234", "060100"))]]
)
def test_no_spec_without_a_gpu(hosts: list[Host]) -> None:
    with pytest.raises(GpustackError, match="no GPU found") as caught:
        initial_spec(hosts)
    assert "gpustack scan" in str(caught.value)


@pytest.mark.parametrize("name", ["null", "true", "no", "1e3", "0x1F", "1_000", "12", "08", "2026-11-21", "_", "9.5.1"])
def test_names_that_yaml_misreads_are_quoted(name: str) -> None:
    text = initial_spec([host(name, *k4200(0x88))])
    assert f'  "{name}": [k4200]' in text or name == "_"
    assert models_for(parse_spec(text, "x"), name)


def test_a_hostile_schema_path_stays_in_its_comment() -> None:
    text = initial_spec([host("a", *k4200(0x88))], schema="x\nversion: 2\n")
    assert text.startswith("# yaml-language-server: $schema=x\\nversion: 2\\n\n")


def test_hosts_that_could_not_be_read_are_named_in_a_comment() -> None:
    text = initial_spec([host("a", *k4200(0x88))], unread=["gpu01", "gpu02", "root@x\nversion: 2"])
    assert "# Not in this spec, because the scan failed: gpu[01:02], root@x\\nversion: 2.\n" in text
    assert list(parse_spec(text, "x").hosts) == ["a"]


def test_the_first_line_names_the_schema_for_editors() -> None:
    first = initial_spec([host("a", *k4200(0x88))]).splitlines()[0]
    path = Path(first.removeprefix("# yaml-language-server: $schema="))
    assert path == SCHEMA_FILE
    assert json.loads(path.read_text(encoding="utf-8"))["title"]


HEX = "0123456789abcdef"
IDS = st.one_of(
    st.sampled_from(
        ["10de:11b4", "10de:1e30", "10de:25b6", "8086:0bd9", "8086:0bda", "1002:74a1", "10de:1af1", "1a03:2000"]
    ),
    st.builds(lambda v, p: f"{v}:{p}", st.sampled_from(["10de", "1002", "abcd"]), st.text(HEX, min_size=4, max_size=4)),
)
SUBSYSTEMS = st.sampled_from([None, "129e", "157e", "14a9", "12ba"])
FUNCTIONS = st.builds(
    lambda bus, slot, number, ids, pci_class, vendor, product: function(
        f"0000:{bus:02x}:{slot:02x}.{number}",
        ids,
        pci_class,
        subsystem_vendor=vendor,
        subsystem_product=product,
    ),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 1),
    IDS,
    st.sampled_from(["030000", "030200", "120000", "040300", "068000", "060400"]),
    st.sampled_from([None, "10de", "1028"]),
    SUBSYSTEMS,
)
HOST_NAMES = st.one_of(
    st.integers(0, 30).map(lambda n: f"gpu{n:02d}"),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,8}", fullmatch=True),
    st.sampled_from(["null", "yes", "1e3", "0x10", "12", "-", "~"]).filter(lambda name: name[0].isalnum()),
)
HOSTS = st.builds(
    lambda name, functions: host(name, *{f["address"]: f for f in functions}.values()),
    HOST_NAMES,
    st.lists(FUNCTIONS, max_size=5),
)


@given(st.lists(HOSTS, max_size=8, unique_by=lambda facts: facts.hostname))
@settings(max_examples=200)
def test_random_scans_give_valid_and_complete_specs(hosts: list[Host]) -> None:
    if all(is_integrated(facts, gpu.main) for facts in hosts for gpu in gpus(facts)):
        with pytest.raises(GpustackError, match="no GPU"):
            initial_spec(hosts)
        return
    text = initial_spec(hosts)
    spec = parse_spec(text, "x")
    assert text.isascii()
    given_models = set()
    for facts in hosts:
        by_address = {assigned.address: assigned.model for assigned in assigned_gpus(spec, facts)}
        models = {by_address.get(gpu.main.address) for gpu in gpus(facts)}
        given_models |= models
        # Whatever a host gives was found on it, and it gives all that was found: but for integrated graphics.
        assert models - {None} == set(models_for(spec, facts.hostname))
        assert None not in models or "Omitted" in text
    assert given_models - {None} == set(spec.models)
