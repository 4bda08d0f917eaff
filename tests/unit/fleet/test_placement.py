"""The devices of Placement with few requests, also where it answers less than asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpustack.base.errors import CloudError
from gpustack.fleet import placement
from support.fleet_answers import device
from support.fleet_cloud import Answer, StandIn, with_devices

TRAIT = "COMPUTE_MANAGED_PCI_DEVICE"
TWO = [device("gpu1", 0x81, used=1), device("gpu2", 0x81)]


def of_one_host(cloud: StandIn, host: str, by: str = "") -> Callable[[str], Answer]:
    """Candidates of one host only, for requests with ``by`` in the path."""
    complete = cloud.answers["placement /allocation_candidates"]
    assert isinstance(complete, tuple)
    summaries = complete[1]["provider_summaries"]

    def answer(path: str) -> Answer:
        names = [host] if by in path else []
        names += [path.partition("in_tree=")[2]] if "in_tree=" in path else []
        return 200, {"provider_summaries": {uuid: s for uuid, s in summaries.items() if uuid[:4] in names}}

    return answer


def test_two_requests_have_all_devices() -> None:
    cloud = with_devices(TWO)
    assert placement.devices(cloud.connection) == tuple(TWO)
    assert len(cloud.requests) == 2


def with_free(cloud: StandIn, **free: list[str]) -> None:
    """Let Placement list these providers as those with a free unit of a class, and no others."""
    cloud.answers["placement /resource_providers?resources="] = (200, {"resource_providers": []})
    for name, roots in free.items():
        listed = [{"uuid": root, "name": root, "root_provider_uuid": root} for root in roots]
        cloud.answers[f"placement /resource_providers?resources={name}:1"] = (200, {"resource_providers": listed})


def test_a_host_without_free_memory_has_free_processors() -> None:
    cloud = with_devices(TWO)
    whole = cloud.answers["placement /allocation_candidates"]
    with_free(cloud, MEMORY_MB=["gpu1"])
    cloud.answers["placement /allocation_candidates"] = of_one_host(cloud, "gpu1", "MEMORY_MB")
    cloud.answers["placement /allocation_candidates?resources=VCPU"] = whole
    assert placement.devices(cloud.connection) == tuple(TWO)
    assert len(cloud.requests) == 4


def test_a_host_with_nothing_but_a_free_gpu() -> None:
    cloud = with_devices(TWO)
    whole = cloud.answers["placement /allocation_candidates"]
    with_free(cloud, MEMORY_MB=["gpu1"])
    cloud.answers["placement /allocation_candidates"] = of_one_host(cloud, "gpu1", "MEMORY_MB")
    cloud.answers[f"placement /allocation_candidates?resources={TWO[0].resource_class}:1"] = whole
    assert placement.devices(cloud.connection) == tuple(TWO)
    assert len(cloud.requests) == 1 + 2 * 4 + 2


@pytest.mark.parametrize("count", [8, 32])
def test_limited_candidates_are_read_tree_by_tree(count: int) -> None:
    devices = [device(f"gpu{number}", 0x81, capacity=number % 2) for number in range(1, count)]
    cloud = with_devices(devices)
    with_free(cloud, MEMORY_MB=[entry.node for entry in devices])
    cloud.answers["placement /allocation_candidates"] = (200, {"provider_summaries": {}})
    for entry in devices:
        resources = {entry.resource_class: {"capacity": entry.capacity, "used": 0}}
        tree = {entry.uuid: {"resources": resources, "traits": [TRAIT]}, entry.root: {"resources": {}, "traits": []}}
        path = f"placement /allocation_candidates?resources=MEMORY_MB:1&in_tree={entry.root}"
        cloud.answers[path] = (200, {"provider_summaries": tree})
    found = placement.devices(cloud.connection)
    assert found is not None
    assert {(d.node, d.capacity) for d in found} == {(d.node, d.capacity) for d in devices}
    assert len(cloud.requests) == 3 + len(devices)


def test_a_completely_full_host_is_read_device_by_device() -> None:
    cloud = with_devices(TWO)
    with_free(cloud)
    cloud.answers["placement /allocation_candidates"] = (200, {"provider_summaries": {}})
    name = TWO[0].resource_class
    for entry in TWO:
        path = f"placement /resource_providers/{entry.uuid}"
        cloud.answers[f"{path}/inventories"] = (
            200,
            {"resource_provider_generation": 1, "inventories": {name: {"total": 1, "reserved": 0}}},
        )
        cloud.answers[f"{path}/usages"] = (200, {"usages": {name: entry.used}})
        cloud.answers[f"{path}/traits"] = (200, {"traits": ["COMPUTE_MANAGED_PCI_DEVICE"]})
    assert placement.devices(cloud.connection) == tuple(TWO)
    # It was removed since it was listed.
    cloud.answers[f"placement /resource_providers/{TWO[1].uuid}/usages"] = (404, {})
    assert placement.devices(cloud.connection) == (TWO[0],)


@pytest.mark.parametrize("status", [404, 406])
def test_a_placement_without_devices_of_nova(status: int) -> None:
    cloud = StandIn({"placement /resource_providers": (status, {"errors": []})})
    assert placement.devices(cloud.connection) is None
    cloud = StandIn({"placement /resource_providers": (200, {"resource_providers": []})})
    assert placement.devices(cloud.connection) is None


@pytest.mark.parametrize(
    "answer", [(403, {}), (500, {}), (200, {}), (200, {"resource_providers": [{}]}), (200, []), (200, "<html>")]
)
def test_answers_that_are_none_are_errors(answer: Answer) -> None:
    cloud = with_devices(TWO)
    cloud.answers["placement /resource_providers"] = answer
    with pytest.raises(CloudError):
        placement.devices(cloud.connection)
    cloud = with_devices(TWO)
    cloud.answers["placement /allocation_candidates"] = answer
    with pytest.raises(CloudError):
        placement.devices(cloud.connection)
