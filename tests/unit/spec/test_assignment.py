"""Which GPUs a host passes through, and that everything that needs to know gets the same answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import SpecError
from gpustack.configure.desired import wanted
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.nova_options import releases
from gpustack.nova_options.device_spec import DeviceSpec, offered
from gpustack.offer.flavor.shares import host_shares
from gpustack.prepare.host.decide.targets import choose
from gpustack.spec.assignment import assigned_gpus, assigned_switches, shared_functions
from gpustack.spec.model import Spec
from gpustack.spec.verdict import verdicts

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
