"""Flavors do not get or lose a required trait in the wrong order."""

from __future__ import annotations

import pytest

from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.operations import ChangeFlavor, CreateFlavor, FlavorOperation
from gpustack.offer.tenancy.flavors import guarded
from gpustack.offer.tenancy.model import MARK
from gpustack.spec.tenancy import GpuAggregate, Tenancy
from support.fleet_cloud import StandIn

TRAIT = "CUSTOM_GPU_HOST"
KEY = f"trait:{TRAIT}"
TENANCY = Tenancy(aggregates={"gpu": GpuAggregate()})
SIZES = Sizes(vcpus=1, ram=1, disk=1)
CREATED = CreateFlavor(why="", name="g", sizes=SIZES, description="", extra_specs={KEY: "required"})
GIVEN = ChangeFlavor(why="", id="g", name="g", set_specs={KEY: "required"}, before={KEY: None})
LOST = ChangeFlavor(why="", id="g", name="g", unset_specs=(KEY,), before={KEY: "required"})
REPLACED = ChangeFlavor(why="", id="g", name="g", set_specs={KEY: "forbidden"}, before={KEY: "required"})
OTHER = ChangeFlavor(why="", id="g", name="g", set_specs={"a": "b"}, unset_specs=("c",), before={"c": "d"})


def cloud(*, providers: int = 0, metadata: dict[str, str] | None = None) -> StandIn:
    aggregates = [{"name": "gpu", "hosts": [], "metadata": metadata or {}}]
    return StandIn(
        {
            f"placement /resource_providers?required={TRAIT}": (
                (200, {"resource_providers": [{"uuid": "p", "name": "gpu1", "root_provider_uuid": "p"}] * providers})
                if providers
                else (400, {})
            ),
            "compute /os-aggregates": (200, {"aggregates": aggregates}),
        }
    )


@pytest.mark.parametrize("operation", [CREATED, GIVEN])
def test_flavors_need_a_host_with_the_trait(operation: FlavorOperation) -> None:
    def codes(providers: int) -> list[str]:
        found = guarded(lambda: cloud(providers=providers).connection, TENANCY, [operation])
        return [entry.code.value for entry in found]

    assert (codes(0), codes(1)) == (["GPU843"], [])


@pytest.mark.parametrize("operation", [LOST, REPLACED])
@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({MARK: TRAIT, KEY: "required"}, ["GPU844"]),
        ({KEY: "required"}, []),
        ({MARK: TRAIT}, []),
    ],
)
def test_flavors_keep_a_trait_that_aggregates_require(
    operation: FlavorOperation, metadata: dict[str, str], expected: list[str]
) -> None:
    found = guarded(lambda: cloud(metadata=metadata).connection, None, [operation])
    assert [entry.code.value for entry in found] == expected


def test_other_changes_send_no_request() -> None:
    stand_in = cloud()
    assert guarded(lambda: stand_in.connection, TENANCY, [OTHER]) == []
    assert stand_in.requests == []
