"""Which GPUs a host passes through, and that everything that needs to know gets the same answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import SpecError
from gpustack.configure.desired import wanted
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.facts.vgpu_model import MediatedDevice
from gpustack.nova_options import releases
from gpustack.nova_options.device_spec import DeviceSpec, offered
from gpustack.offer.flavor.shares import host_shares
from gpustack.prepare.host.decide.targets import choose
from gpustack.spec.assignment import assigned_gpus, assigned_switches, kept_cards, mediated_cards, shared_functions
from gpustack.spec.model import Spec
from gpustack.spec.verdict import verdicts
from support.vgpu_hosts import CARDS, MIG_TYPES, UUIDS, VgpuHost

SNAPSHOTS = Path(__file__).parents[1] / "data" / "snapshots"
IDS = {"vendor": "10de", "product": "11b4"}


def snapshot(name: str) -> Host:
    (raw,) = json.loads((SNAPSHOTS / f"{name}.json").read_text(encoding="utf-8"))["hosts"]
    return parse_host(raw, name)


def spec(hosts: dict[str, Any], models: dict[str, Any], **options: str) -> Spec:
    return Spec.model_validate({"version": 1, "models": models, "hosts": hosts, "options": options})


def host(name: str, subsystem_product: str = "1096") -> Host:
    card = {"address": "0000:88:00.0", **IDS, "class": "030000", "subsystem_product": subsystem_product}
    return parse_host({"version": 1, "hostname": name, "pci": [card]}, name)


@pytest.mark.parametrize(
    ("facts", "models"),
    [
        (host("gpu01"), []),
        (host("gpu01", "1234"), ["general"]),
        (host("gpu02"), ["board"]),
        (host("gpu03"), []),
    ],
)
def test_a_host_keeps_cards_of_models_that_it_does_not_give(facts: Host, models: list[str]) -> None:
    general, board = {"match": IDS}, {"match": IDS | {"subsystem_product": "1096"}}
    wished = spec({"gpu01": ["general"], "gpu02": ["general", "board"]}, {"general": general, "board": board})
    assert [assigned.model for assigned in assigned_gpus(wished, facts)] == models


@pytest.mark.parametrize(
    ("name", "product", "options"),
    [
        ("k4200", "11b4", {}),
        ("k4200-prepared", "11b4", {}),
        ("shared-nic", "15f8", {}),
        ("nvswitch", "20b2", {"nvswitch": "full"}),
    ],
)
def test_host_nova_and_flavors_name_the_same_gpus(name: str, product: str, options: dict[str, str]) -> None:
    facts = snapshot(name)
    wished = spec({"*": ["m"]}, {"m": {"match": {"vendor": "10de", "product": product}}}, **options)
    expected = [assigned.address for assigned in assigned_gpus(wished, facts)]
    assert expected
    assert [target.address for target in choose(wished, facts).gpus] == expected
    expected = [target.address for target in verdicts(wished, facts).offered]
    (share,) = host_shares(wished, [facts])
    assert [gpu.main.address for gpu in share.gpus["m"]] == expected
    (entries,) = wanted(wished, [facts], release=releases.releases()[-1]).computes.values()
    assert sorted(offered([DeviceSpec.parse(entry.to_dict()) for entry in entries], facts)) == expected


@pytest.mark.parametrize(("mode", "count"), [("full", 6), ("shared", 6), ("isolated", 0)])
def test_switches_are_passed_through_unless_they_are_isolated(mode: str, count: int) -> None:
    facts = snapshot("nvswitch")
    wished = spec({"*": ["m"]}, {"m": {"match": {"vendor": "10de", "product": "20b2"}}}, nvswitch=mode)
    switches = assigned_switches(wished, facts)
    assert len(switches) == count
    assert all(switch.is_switch and switch.driver == "vfio-pci" for switch in switches)


MIXED = {"whole": {"match": IDS}, "quarter": {"match": IDS, "vfs": 4}, "half": {"match": IDS, "vfs": 2}}


@pytest.mark.parametrize(("models", "counts"), [(["whole"], []), (["quarter"], [4]), (["half"], [2])])
def test_hosts_pass_the_same_cards_through_or_share_them(models: list[str], counts: list[int]) -> None:
    wished = spec({"gpu01": models, "gpu02": [*MIXED.keys() - models]}, MIXED)
    facts = host("gpu01")
    assert [(entry.model, entry.count) for entry in shared_functions(wished, facts)] == [
        (m, c) for m in models for c in counts
    ]
    assert [target.model for target in assigned_gpus(wished, facts)] == [model for model in models if not counts]


def test_patterns_that_pass_through_and_share_the_same_cards_are_refused() -> None:
    wished = spec({"gpu*": ["whole"], "gpu01": ["quarter"]}, MIXED)
    assert [target.model for target in assigned_gpus(wished, host("gpu02"))] == ["whole"]
    with pytest.raises(SpecError, match="quarter and whole match the same cards of one host"):
        assigned_gpus(wished, host("gpu01"))


def test_a_board_that_other_hosts_share_is_not_of_the_general_model() -> None:
    board = {"match": IDS | {"subsystem_product": "1096"}}
    models = {"general": {"match": IDS}, "board": board, "quarter": board | {"vfs": 4}}
    wished = spec({"gpu01": ["general"], "gpu02": ["board"], "gpu03": ["quarter"]}, models)
    assert assigned_gpus(wished, host("gpu01")) == ()
    assert [target.model for target in assigned_gpus(wished, host("gpu02"))] == ["board"]
    assert [entry.model for entry in shared_functions(wished, host("gpu03"))] == ["quarter"]


def vgpu_spec(**vgpus: dict[str, Any]) -> Spec:
    """Models by name; ``first`` and ``second`` match one card each."""
    addresses = dict(zip(("first", "second"), CARDS, strict=True))
    models = {
        name: {"match": {"vendor": "10de", "product": "25b6", "addresses": [addresses[name]]}, "vgpu": vgpu}
        for name, vgpu in vgpus.items()
    }
    return spec({"gpu01": list(models)}, models)


def test_vgpu_types_of_two_cards_have_numbers(tmp_path: Path) -> None:
    wished = vgpu_spec(first={"type": "A16-8Q", "count": 2}, second={"type": "A16-4Q"})
    facts = VgpuHost(current=(711, 710)).read(tmp_path)
    shared = [(entry.model, entry.vgpu_type, entry.count, entry.fault) for entry in shared_functions(wished, facts)]
    assert shared == [("first", 711, 2, None), ("second", 710, 16, None)]
    assigned = [(target.address, target.model) for target in assigned_gpus(wished, facts)]
    assert assigned == [("0000:41:00.4", "first"), ("0000:81:00.5", "second")], "functions of another type are left out"
    assert mediated_cards(wished, facts) == ()


@pytest.mark.parametrize(
    ("model", "framework", "expected"),
    [
        ({"vfs": {"count": 4, "vgpu_type": 711}}, "vfio", ["0000:41:00.4"]),
        ({"match": {"function": "virtual"}}, "vfio", ["0000:41:00.4", "0000:41:00.5"]),
        ({"match": {"function": "virtual"}}, "sriov-mdev", []),
    ],
)
def test_nvidia_functions_without_their_type_are_left_out(
    tmp_path: Path, model: dict[str, Any], framework: str, expected: list[str]
) -> None:
    match = {"vendor": "10de", "product": "25b6", "addresses": [CARDS[0]], **model.get("match", {})}
    wished = spec({"gpu01": ["a"]}, {"a": {**model, "match": match}})
    facts = VgpuHost(framework=framework, current=(711, 710)).read(tmp_path)
    assert [target.address for target in assigned_gpus(wished, facts)] == expected


def test_vgpu_type_without_number_offers_nothing(tmp_path: Path) -> None:
    facts = VgpuHost(current=(711, 711)).read(tmp_path)
    (entry,) = shared_functions(wished := vgpu_spec(first={"type": "A16-1Q"}), facts)
    assert (entry.vgpu_type, entry.fault) == (
        None,
        "the driver does not support the type A16-1Q, or has no room for it",
    )
    assert assigned_gpus(wished, facts) == ()


@pytest.mark.parametrize(
    ("framework", "count", "expected"),
    [
        ("mdev", 2, [("0000:41:00.0", 2)]),
        ("mdev", None, [("0000:41:00.0", None)]),
        ("sriov-mdev", 2, [("0000:41:00.4", 1), ("0000:41:00.5", 1)]),
        ("sriov-mdev", None, [("0000:41:00.4", 1), ("0000:41:00.5", 1)]),
    ],
)
def test_mediated_devices_are_of_cards_or_their_functions(
    tmp_path: Path, framework: str, count: int | None, expected: list[tuple[str, int | None]]
) -> None:
    wished = vgpu_spec(first={"type": "A16-8Q", "count": count, "resource_class": "CUSTOM_A"}, second={"type": "x"})
    facts = VgpuHost(framework=framework).read(tmp_path)
    cards = mediated_cards(wished, facts)
    assert [(card.function.address, card.count) for card in cards] == expected
    assert {(card.model, card.type.number, card.resource_class) for card in cards} == {
        ("first", "nvidia-711", "CUSTOM_A")
    }
    assert assigned_gpus(wished, facts) == ()


@pytest.mark.parametrize(("used", "addresses"), [({}, ["4", "5"]), ({UUIDS[0]: 711}, ["4", "7"])])
def test_card_has_no_more_mediated_devices_than_its_driver_creates(
    tmp_path: Path, used: dict[str, int], addresses: list[str]
) -> None:
    """Each of its virtual functions offers one, and Nova may have created them on any."""
    facts = VgpuHost(framework="sriov-mdev").read(tmp_path)
    devices = [MediatedDevice(uuid=uuid, type=f"nvidia-{number}") for uuid, number in used.items()]
    given = [f.model_copy(update={"mediated_devices": devices}) if f.address[-1] == "7" else f for f in facts.pci]
    cards = mediated_cards(vgpu_spec(first={"type": "A16-8Q"}), facts.model_copy(update={"pci": tuple(given)}))
    assert [card.function.address for card in cards] == [f"0000:41:00.{number}" for number in addresses]


@pytest.mark.parametrize(
    ("framework", "addresses"), [("mdev", {"first": ["0000:41:00.0"]}), ("sriov-mdev", {"first": ["0000:41:00.4"]})]
)
def test_card_has_several_types_if_it_has_virtual_functions(
    tmp_path: Path, framework: str, addresses: dict[str, list[str]]
) -> None:
    match = {"match": {"vendor": "10de", "product": "25b6", "addresses": [CARDS[0]]}}
    models = {
        "first": match | {"vgpu": {"type": "A16-8Q", "count": 1}},
        "second": match | {"vgpu": {"type": "A16-4Q", "count": 2}},
    }
    wished, facts = spec({"gpu01": [*models]}, models), VgpuHost(framework=framework).read(tmp_path)
    found: dict[str, list[str]] = {}
    for card in mediated_cards(wished, facts):
        found.setdefault(card.model, []).append(card.function.address)
    parts = {"second": ["0000:41:00.5", "0000:41:00.6"]} if framework == "sriov-mdev" else {}
    assert found == addresses | parts
    faults = {entry.model: entry.fault for entry in kept_cards(wished, facts)}
    reason = "Nova gives a card without virtual functions one type, and first precedes it"
    assert faults == {"first": None, "second": None if parts else reason}


def test_types_of_one_card_need_their_numbers() -> None:
    models = {name: {"match": IDS, "vgpu": {"type": "A16-8Q"}} for name in ("first", "second")}
    with pytest.raises(SpecError, match="first and second match the same cards of one host"):
        assigned_gpus(spec({"gpu*": ["first"], "gpu01": ["second"]}, models), host("gpu01"))


def test_card_without_its_mig_mode_is_left_out(tmp_path: Path) -> None:
    wished = vgpu_spec(first={"type": "A100-1-5C", "mig": "1g.5gb"})
    given = VgpuHost(framework="sriov-mdev", types=MIG_TYPES, instances=())
    record = f"{CARDS[0]} MIG mode {{}}, pending Enabled\n"
    for mode, number in (("Disabled", 0), ("Enabled", 2)):
        facts = given.read(tmp_path / mode, {RECORD: record.format(mode)})
        assert len(mediated_cards(wished, facts)) == number
