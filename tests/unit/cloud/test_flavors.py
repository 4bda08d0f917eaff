"""Requests that never leave, because their path would be that of another resource."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud import flavors
from gpustack.cloud.flavors import Flavor, FlavorCloud
from gpustack.cloud.microversions import Microversion
from support.fleet_cloud import StandIn


@pytest.mark.parametrize(
    ("flavor_id", "key"),
    [("1", ".."), ("1", "."), ("..", "a"), ("1", "%2E%2e"), ("1", "a%2f..%2fb"), ("1#", "a"), ("1?", "a")],
)
def test_no_id_reaches_another_resource(flavor_id: str, key: str) -> None:
    """Without this, the removal of the extra spec ``..`` would be a request to delete the flavor."""
    cloud = StandIn()
    with pytest.raises(CloudError, match="no part of an address"):
        FlavorCloud(cloud.connection, Flavor).unset_extra_spec(flavor_id, key)
    assert not cloud.requests


@pytest.mark.parametrize("answer", [{}, [], {"flavors": [5]}, {"flavors": [{"extra_specs": {}}]}, {"flavors": 5}])
def test_an_answer_that_is_not_from_nova(answer: Any) -> None:
    cloud = StandIn({"compute /flavors/detail": (200, answer)})
    with pytest.raises(CloudError, match="not as the API documents it"):
        FlavorCloud(cloud.connection, Flavor).flavors()


def test_hidden_extra_specs_are_an_error() -> None:
    cloud = StandIn({"compute /flavors/detail": (200, {"flavors": [{"id": "1"}]})})
    with pytest.raises(CloudError, match="does not show the extra specs"):
        FlavorCloud(cloud.connection, Flavor).flavors()


@pytest.mark.parametrize(
    ("specs", "sent"),
    [
        ({"hw:maxphysaddr_mode": "passthrough"}, [("2.61", {"hw:maxphysaddr_mode": "passthrough"})]),
        (
            {"hw:maxphysaddr_mode": "passthrough", "hw:maxphysaddr_bits": "0", "os:secure_boot": "required"},
            [
                ("2.86", {"hw:maxphysaddr_bits": "0", "os:secure_boot": "required"}),
                ("2.61", {"hw:maxphysaddr_mode": "passthrough"}),
            ],
        ),
        ({"pci_passthrough:alias": "a:1", "os:secure_boot": "required"}, [("2.86", None)]),
    ],
)
def test_extra_specs_without_a_validator_are_not_validated(
    monkeypatch: pytest.MonkeyPatch, specs: dict[str, str], sent: list[Any]
) -> None:
    requests = []

    def request(*_target: object, version: Microversion, body: dict[str, Any]) -> None:
        requests.append((version.number, body["extra_specs"]))

    monkeypatch.setattr(flavors, "request", request)
    FlavorCloud(StandIn().connection, Flavor).set_extra_specs("1", specs)
    assert requests == [(version, part or specs) for version, part in sent]
