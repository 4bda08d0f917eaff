"""Requests whose answers the embedded cloud does not give: conflicts, unknown traits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from openstack.connection import Connection

from gpustack.cloud.placement import bearers
from gpustack.cloud.session import Refused
from gpustack.offer.tenancy.cloud import TenancyCloud
from support.fleet_cloud import Response, StandIn


@dataclass
class _Placement:
    """A stand-in for Placement: a provider whose generation others increase."""

    conflicts: int
    traits: list[str] = field(default_factory=lambda: ["HW_CPU_X86_AVX"])
    generation: int = 1

    def request(self, path: str, method: str, json: Any = None, **_more: Any) -> Response:
        if method == "GET":
            return Response(200, {"traits": list(self.traits), "resource_provider_generation": self.generation})
        if path.startswith("/traits/"):
            return Response(201, {})
        if self.conflicts:
            self.conflicts -= 1
            self.generation += 1
            self.traits.append(f"CUSTOM_{self.generation}")
            return Response(409, {})
        assert json["resource_provider_generation"] == self.generation
        self.traits = json["traits"]
        return Response(200, {})


@dataclass
class _Cloud:
    placement: _Placement


def test_traits_of_others_survive_a_conflict() -> None:
    placement = _Placement(conflicts=2)
    TenancyCloud(cast("Connection", _Cloud(placement))).add_trait("p", "CUSTOM_GPU_HOST")
    assert placement.traits == ["CUSTOM_2", "CUSTOM_3", "CUSTOM_GPU_HOST", "HW_CPU_X86_AVX"]
    TenancyCloud(cast("Connection", _Cloud(placement))).remove_trait("p", "CUSTOM_GPU_HOST")
    assert placement.traits == ["CUSTOM_2", "CUSTOM_3", "HW_CPU_X86_AVX"]


def test_endless_conflicts_are_an_error() -> None:
    with pytest.raises(Refused, match="HTTP 409"):
        TenancyCloud(cast("Connection", _Cloud(_Placement(conflicts=9)))).add_trait("p", "CUSTOM_GPU_HOST")


def test_a_refusal_is_not_an_unknown_trait() -> None:
    path = "placement /resource_providers?required=CUSTOM_X"
    assert bearers(StandIn({path: (400, {})}).connection, "CUSTOM_X") == frozenset()
    with pytest.raises(Refused):
        bearers(StandIn({path: (403, {})}).connection, "CUSTOM_X")
