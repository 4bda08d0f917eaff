"""Inventories and traits of Placement: what changes meanwhile is never overwritten. A stand-in answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from openstack.connection import Connection

from gpustack.base.errors import ApplyError, CloudError
from gpustack.cloud.placement import bearers, listed, providers, set_trait
from gpustack.cloud.placement import inventory as read
from gpustack.cloud.placement import write_inventory as write
from gpustack.cloud.session import Refused
from support.fleet_cloud import Response, StandIn

PATH = "placement /resource_providers/p1/inventories"
PUT = "placement PUT /resource_providers/p1/inventories"


def content(generation: int = 7, **fields: int) -> tuple[int, dict[str, Any]]:
    inventory = {"total": 1, "reserved": 0, "step_size": 1, **fields}
    return 200, {"resource_provider_generation": generation, "inventories": {"CUSTOM_GPU": inventory}}


def test_a_reservation_keeps_all_other_fields_and_carries_the_generation() -> None:
    cloud = StandIn({PATH: content(), PUT: (200, {})})
    inventory = read(cloud.connection, "p1")
    assert inventory is not None
    write(cloud.connection, inventory, inventory.with_reserved(inventory.totals))
    assert cloud.written == [content(reserved=1)[1]]


def test_a_provider_that_is_gone_has_no_inventory() -> None:
    assert read(StandIn().connection, "p1") is None


@pytest.mark.parametrize("answer", [{}, {"resource_provider_generation": 1, "inventories": {"A": {"total": 1}}}])
def test_an_answer_of_another_service_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(CloudError):
        read(StandIn({PATH: (200, answer)}).connection, "p1")


def test_a_newer_generation_of_the_same_inventory_is_tried_again() -> None:
    cloud = StandIn({PATH: content(), PUT: (409, {})})
    inventory = read(cloud.connection, "p1")
    assert inventory is not None
    cloud.answers[PATH] = content(9)
    cloud.answers[PUT] = lambda _path: (
        (200, {}) if cloud.written[-1]["resource_provider_generation"] == 9 else (409, {})
    )
    write(cloud.connection, inventory, inventory.with_reserved(inventory.totals))
    assert [body["resource_provider_generation"] for body in cloud.written] == [7, 9]


@pytest.mark.parametrize("changed", [content(8, reserved=1), content(8, total=2), (404, {})])
def test_a_changed_inventory_is_not_overwritten(changed: tuple[int, Any]) -> None:
    cloud = StandIn({PATH: content(), PUT: (409, {})})
    inventory = read(cloud.connection, "p1")
    assert inventory is not None
    cloud.answers[PATH] = changed
    with pytest.raises(ApplyError, match="changed meanwhile"):
        write(cloud.connection, inventory, inventory.with_reserved(inventory.totals))
    assert len(cloud.written) == 1


@dataclass
class _Placement:
    """A stand-in for Placement: a provider whose generation others increase."""

    conflicts: int
    traits: list[str] = field(default_factory=lambda: ["HW_CPU_X86_AVX"])
    generation: int = 1
    known: set[str] = field(default_factory=set)

    def request(self, path: str, method: str, json: Any = None, **_more: Any) -> Response:
        if method == "GET":
            return Response(200, {"traits": list(self.traits), "resource_provider_generation": self.generation})
        if path.startswith("/traits/"):
            self.known.add(path.removeprefix("/traits/"))
            return Response(201, {})
        if self.conflicts:
            self.conflicts -= 1
            self.generation += 1
            self.traits.append(f"CUSTOM_{self.generation}")
            return Response(409, {})
        assert json["resource_provider_generation"] == self.generation
        if set(json["traits"]) - {*self.traits, *self.known}:
            return Response(400, {"errors": [{"detail": "No such trait"}]})
        self.traits = json["traits"]
        return Response(200, {})


@dataclass
class _Cloud:
    placement: _Placement


def test_traits_of_others_survive_a_conflict() -> None:
    placement = _Placement(conflicts=2)
    set_trait(cast("Connection", _Cloud(placement)), "p", "CUSTOM_GPU_HOST", wanted=True)
    assert placement.traits == ["CUSTOM_2", "CUSTOM_3", "CUSTOM_GPU_HOST", "HW_CPU_X86_AVX"]
    set_trait(cast("Connection", _Cloud(placement)), "p", "CUSTOM_GPU_HOST", wanted=False)
    assert placement.traits == ["CUSTOM_2", "CUSTOM_3", "HW_CPU_X86_AVX"]


def test_endless_conflicts_are_an_error() -> None:
    with pytest.raises(Refused, match="HTTP 409"):
        set_trait(cast("Connection", _Cloud(_Placement(conflicts=9))), "p", "CUSTOM_GPU_HOST", wanted=True)


def test_a_refusal_is_not_an_unknown_trait() -> None:
    path = "placement /resource_providers?required=CUSTOM_X"
    assert bearers(StandIn({path: (400, {})}).connection, "CUSTOM_X") == frozenset()
    with pytest.raises(Refused):
        bearers(StandIn({path: (403, {})}).connection, "CUSTOM_X")


@pytest.mark.parametrize(
    ("name", "node", "address", "mediated"),
    [
        ("gpu1_0000:81:00.0", "gpu1", "0000:81:00.0", False),
        ("gpu1_pci_0000_84_00_0", "gpu1", "0000:84:00.0", True),
        ("a_pci_b.example_pci_0000_84_1f_7", "a_pci_b.example", "0000:84:1f.7", True),
        ("gpu1_pci_0000_84_00_8", "gpu1_pci_0000_84_00_8", "", False),
        ("gpu1_mtty_mtty", "gpu1_mtty_mtty", "", False),
    ],
)
def test_names_of_devices_and_of_cards_with_vgpus(name: str, node: str, address: str, mediated: bool) -> None:
    entry = {"uuid": "u", "name": name, "root_provider_uuid": "r"}
    cloud = StandIn({"placement /resource_providers": (200, {"resource_providers": [entry]})})
    (provider,) = listed(cloud.connection)
    assert (provider.address, provider.mediated) == (address, mediated)
    if address:
        assert provider.node == node


def test_clean_up_gets_no_cards_with_vgpus() -> None:
    names = {"pci": "gpu1_0000:81:00.0", "card": "gpu1_pci_0000_84_00_0"}
    entries = [{"uuid": uuid, "name": name, "root_provider_uuid": "r"} for uuid, name in names.items()]
    cloud = StandIn({"placement /resource_providers": (200, {"resource_providers": entries})})
    for uuid in names:
        cloud.answers[f"placement /resource_providers/{uuid}/allocations"] = (200, {"allocations": {}})
    assert [provider.uuid for provider in providers(cloud.connection)] == ["pci"]
