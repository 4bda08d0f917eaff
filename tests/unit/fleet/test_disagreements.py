"""Cards with vGPUs in the fleet: names of types, numbers, and where Placement, spec and facts disagree."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpustack.base.findings import Severity
from gpustack.fleet.cards import models_of
from gpustack.fleet.index import Answers
from gpustack.fleet.join import join
from gpustack.fleet.metrics import families
from gpustack.fleet.model import Fleet, Source
from gpustack.fleet.placement import Consumer, Device
from gpustack.fleet.read import with_vgpus
from gpustack.spec.load import parse_spec
from support.fleet_answers import device, server
from support.mediated_hosts import TYPES, card, mediated_host, parted
from support.metric_samples import exposition, labels, samples

ADDRESS, PLACE = "0000:84:00.0", "gpu1 0000:84:00.0"
SPEC = parse_spec(
    """
version: 1
models: {large: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}}}
hosts: {gpu1: [large]}
nova: {release: "2025.2"}
""",
    "gpustack.yaml",
)
INSTANCE = "instance 5ae5d3a1-4c61-4f0e-9c4b-6a2f3b1d7c90"


def of_placement(**more: Any) -> Device:
    """The card at 84:00.0 with two vGPUs in Placement."""
    known = {"resource_class": "VGPU", "capacity": 2, "mediated": True, **more}
    return replace(device("gpu1", 0x84, **known), name="gpu1_pci_0000_84_00_0")


def fleet(*devices: Device, held: dict[str, int] | None = None, **more: Any) -> Fleet:
    """The fleet with these devices of Placement; ``held`` has the vGPUs of each instance."""
    servers = with_vgpus([server(uuid, "gpu1", count=0, classes={"VGPU": 1}) for uuid in held or {}], devices)
    consumers = {
        uuid: Consumer(uuid=uuid, project="p1", user="u1", devices={"gpu1-84": amount} if amount else {})
        for uuid, amount in (held or {}).items()
    }
    answers = Answers(devices=devices, servers=servers, consumers=consumers)
    return join(replace(answers, **more))


def codes(found: Fleet) -> list[tuple[str, str]]:
    return sorted((finding.code.value, finding.place) for finding in found.findings)


def with_facts(*, spec: bool = True, domains: tuple[()] | None = (), **more: Any) -> dict[str, Any]:
    """The facts of the host, and the spec."""
    own = {"domains": domains, "privileged": True}
    facts = mediated_host(card(ADDRESS, **more), name="gpu1").model_copy(update=own)
    known: dict[str, Any] = {"hosts": (facts,)}
    return {**known, "spec": SPEC, "models": models_of(SPEC)} if spec else known


@pytest.mark.parametrize(
    ("more", "model"),
    [
        ({}, "VGPU"),
        ({"spec": SPEC, "models": models_of(SPEC)}, "A16-8Q"),
        (with_facts(), "A16-8Q"),
        (with_facts(spec=False), "VGPU"),
        (with_facts(spec=False, used={"nvidia-710": INSTANCE}), "A16-4Q"),
    ],
)
def test_the_type_has_its_name_from_facts_or_spec(more: dict[str, Any], model: str) -> None:
    found = fleet(of_placement(used=1), held={"vm1": 1}, **more)
    (gpu,) = found.gpus
    assert (gpu.model, gpu.state.value, gpu.used, gpu.units, gpu.free) == (model, "allocated", 1, 2, 1)
    assert gpu.server is not None
    assert gpu.server.id == "vm1"
    assert not [code for code, _ in codes(found) if code not in ("GPU714",)]


def test_metrics_count_vgpus() -> None:
    found = fleet(of_placement(used=1), held={"vm1": 1}, spec=SPEC)
    text = exposition(families(found, (Source.NOVA, Source.PLACEMENT), 1.0, 1.0))
    assert {line: value for line, value in samples(text, "gpustack_gpus").items() if value} == {
        labels(hostname="gpu1", model="A16-8Q", state="allocated"): 1,
        labels(hostname="gpu1", model="A16-8Q", state="free"): 1,
    }
    assert samples(text, "gpustack_tenant_gpus") == {labels(tenant_id="p1", model="A16-8Q"): 1}


@pytest.mark.parametrize(
    ("devices", "held", "more", "expected", "state"),
    [
        # the instances have devices
        ([of_placement(used=1)], {"vm1": 1}, with_facts(used={"nvidia-711": INSTANCE}), [], "allocated"),
        # another type, another class
        ([of_placement()], {}, with_facts(used={"nvidia-710": None}), ["GPU712", "GPU715"], "free"),
        ([of_placement(resource_class="CUSTOM_A")], {}, with_facts(), ["GPU712"], "free"),
        # the card is gone, has no vGPU driver, or is not in the spec
        ([replace(of_placement(), address="0000:99:00.0")], {}, with_facts(), ["GPU713"], "inconsistent"),
        ([of_placement()], {}, with_facts(vgpu_framework=None, vgpu_types=[]), ["GPU713"], "inconsistent"),
        ([of_placement()], {}, with_facts(kind="A100"), ["GPU713"], "inconsistent"),
        ([of_placement(capacity=0)], {}, with_facts(kind="A100"), [], "reserved"),
        # devices without an instance, instances without a device
        ([of_placement()], {}, with_facts(used={"nvidia-711": None}), ["GPU715"], "free"),
        ([of_placement()], {}, with_facts(used={"nvidia-711": None}, domains=None), [], "free"),
        ([of_placement(used=1)], {"vm1": 1}, with_facts(), ["GPU714"], "allocated"),
        # allocations
        ([of_placement(used=2)], {"vm1": 2}, {}, ["GPU717"], "allocated"),
        ([of_placement()], {"vm1": 0}, {}, ["GPU717"], "free"),
        ([of_placement(used=1)], {}, {"strangers": {"gpu1-84": frozenset({"x"})}}, ["GPU717"], "allocated"),
    ],
)
def test_disagreements_are_findings(
    devices: list[Device], held: dict[str, int], more: dict[str, Any], expected: list[str], state: str
) -> None:
    found = fleet(*devices, held=held, **more)
    assert [code for code, _ in codes(found)] == expected
    assert [gpu.state.value for gpu in found.gpus] == [state]


def test_a_card_as_device_and_with_vgpus_is_refused() -> None:
    pci = replace(device("gpu1", 0x84, resource_class="CUSTOM_PCI_10DE_25B6"), uuid="pci")
    found = fleet(pci, of_placement())
    assert codes(found) == [("GPU716", PLACE)]
    assert {gpu.state.value for gpu in found.gpus} == {"inconsistent"}


@pytest.mark.parametrize(
    ("release", "second", "severity"),
    [
        ("2023.2", "", Severity.INFO),  # Nova ignores the addresses of a single type
        ("2023.2", "small", Severity.WARNING),
        ("2024.1", "", Severity.WARNING),
    ],
)
def test_older_releases_offer_virtual_functions_beyond_the_room_of_a_card(
    release: str, second: str, severity: Severity
) -> None:
    parts = parted("0000:41:00.0", 4, mdev=True)
    kinds = [{"number": n, "name": TYPES[n]["name"], "available": 1, "of_card": 2} for n in ("nvidia-711",)]
    functions = [{**part, "vgpu_types": kinds} if part.get("physical_function") else part for part in parts]
    others = [card(ADDRESS)] if second else []
    facts = mediated_host(*functions, *others, name="gpu1")
    types = {"large": ("0000:41:00.0", "A16-8Q"), **({second: (ADDRESS, "A16-4Q")} if second else {})}
    models = {
        name: {"match": {"vendor": "10de", "product": "25b6", "addresses": [address]}, "vgpu": {"type": type_}}
        for name, (address, type_) in types.items()
    }
    text = json.dumps({"version": 1, "models": models, "hosts": {"gpu1": [*models]}, "nova": {"release": release}})
    spec = parse_spec(text, "gpustack.yaml")
    offered = [
        replace(of_placement(capacity=1), uuid=f"p{n}", address=f"0000:41:00.{n}", name=f"gpu1_pci_0000_41_00_{n}")
        for n in range(1, 5)
    ]
    found = fleet(*offered, hosts=(facts,), spec=spec, models=models_of(spec))
    assert [gpu.state.value for gpu in found.gpus] == ["free", "free", "inconsistent", "inconsistent"]
    left = [entry for entry in found.findings if entry.code == "GPU713"]
    assert [entry.severity for entry in left] == [severity] * 2
    assert [("room" in entry.message) for entry in left] == [severity is Severity.INFO] * 2
