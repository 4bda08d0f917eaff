"""What is read of a cloud for tenancy: gpustack's traits and aggregates, and instances only where they matter."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.tenancy.cloud import present
from gpustack.offer.tenancy.model import MARK
from support.fleet_cloud import StandIn

NODE = {
    "id": "n1",
    "hypervisor_hostname": "gpu1",
    "service": {"host": "gpu1"},
    "status": "enabled",
    "state": "up",
}
FLAVOR = PresentFlavor(id="1", name="g", sizes=Sizes(vcpus=1, ram=1, disk=1))


def aggregate(number: int, metadata: dict[str, str]) -> dict[str, Any]:
    return {"id": number, "uuid": f"u{number}", "name": f"a{number}", "hosts": ["gpu1"], "metadata": metadata}


def providers(*names: str) -> tuple[int, dict[str, Any]]:
    return 200, {"resource_providers": [{"uuid": n, "name": n, "root_provider_uuid": n} for n in names]}


def cloud() -> StandIn:
    flavor = {"original_name": "g", "vcpus": 1, "ram": 1, "disk": 1, "ephemeral": 0, "swap": 0, "extra_specs": {}}
    server = {"id": "s", "name": "web", "tenant_id": "p", "flavor": flavor, "status": "ACTIVE"}
    listed = [aggregate(1, {MARK: "CUSTOM_OLD"}), aggregate(2, {"ssd": "true"})]
    return StandIn(
        {
            "compute /os-aggregates": (200, {"aggregates": listed}),
            "compute /os-hypervisors": (200, {"hypervisors": [NODE]}),
            "compute /servers/detail": (200, {"servers": [server]}),
            "placement /resource_providers?member_of=u1": providers("n1", "n2"),
            "placement /resource_providers?required=CUSTOM_NEW": providers("n1"),
            "placement /resource_providers?required=CUSTOM_OLD": providers("n2"),
        }
    )


@pytest.mark.parametrize("flavors", [None, (), (FLAVOR,)])
def test_the_traits_of_this_and_earlier_specs_are_read(flavors: tuple[PresentFlavor, ...] | None) -> None:
    stand_in = cloud()
    found = present(stand_in.connection, "CUSTOM_NEW", flavors=flavors)
    assert [known.name for known in found.aggregates] == ["a1", "a2"]
    assert [node.uuid for node in found.nodes] == ["n1"]
    assert found.bearers == {"CUSTOM_NEW": {"n1"}, "CUSTOM_OLD": {"n2"}}
    assert found.members == {"a1": {"n1", "n2"}}
    assert found.flavors == (flavors or ())
    assert [server.name for server in found.servers] == ([] if flavors is None else ["web"])
    assert any("/servers" in line for line in stand_in.requests) is (flavors is not None)
