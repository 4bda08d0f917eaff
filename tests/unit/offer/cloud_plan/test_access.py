"""Who can use which GPUs: the parts that decide, one by one. ``test_order.py`` compares with a cloud in memory."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpustack.cloud.flavors import Sizes
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.cloud_plan.access import AccessState, FlavorRight, breach, flavor_rights
from gpustack.offer.flavor.changes import FlavorChange
from gpustack.offer.flavor.flavors import PresentFlavor

P = frozenset({"p", "q"})
PUBLIC = FlavorRight(gpus=frozenset({"x"}))
HOSTS = {"h1": "u1", "h2": "u2"}
RESERVED = Aggregate(name="a", hosts=frozenset({"h1"}), metadata={"filter_tenant_id": "p"})
ISOLATED = Aggregate(name="a", hosts=frozenset({"h1"}), metadata={"trait:T": "required"})


def rights(right: FlavorRight = PUBLIC, **parts: Any) -> dict[tuple[str, str], tuple[int, float]]:
    return AccessState(flavors={"f": right}, hosts=HOSTS, **parts).rights(P)


@pytest.mark.parametrize(
    ("right", "parts", "expected"),
    [
        pytest.param(PUBLIC, {}, {("p", "x"): (3, math.inf), ("q", "x"): (3, math.inf)}, id="public"),
        pytest.param(
            FlavorRight(gpus=frozenset("x"), projects=frozenset("p")), {}, {("p", "x"): (3, math.inf)}, id="private"
        ),
        pytest.param(
            FlavorRight(gpus=frozenset("x"), projects=frozenset(), others=frozenset("q")),
            {},
            {("p", "x of f"): (3, math.inf)},
            id="an unknown list",
        ),
        pytest.param(
            PUBLIC,
            {"aggregates": {"a": RESERVED}},
            {("p", "x"): (3, math.inf), ("q", "x"): (2, math.inf)},
            id="reserved",
        ),
        pytest.param(
            PUBLIC,
            {"aggregates": {"a": ISOLATED}},
            {("p", "x"): (2, math.inf), ("q", "x"): (2, math.inf)},
            id="isolated",
        ),
        pytest.param(
            FlavorRight(gpus=frozenset("x"), traits=frozenset("T")),
            {"known": frozenset("T"), "bearers": frozenset({("T", "u2")})},
            {("p", "x"): (2, math.inf), ("q", "x"): (2, math.inf)},
            id="traits",
        ),
        pytest.param(
            PUBLIC,
            {"classes": {"x": "C"}, "limits": {("C", ""): 0, ("C", "p"): -1}},
            {("p", "x"): (3, math.inf)},
            id="limits",
        ),
    ],
)
def test_rights(right: FlavorRight, parts: dict[str, Any], expected: dict[tuple[str, str], tuple[int, float]]) -> None:
    assert rights(right, **parts) == expected


@pytest.mark.parametrize(
    ("specs", "gpus"),
    [
        ({"resources:VGPU": "1"}, {"VGPU"}),
        ({"resources:CUSTOM_A16_8Q": "1"}, set()),  # perhaps no vGPU: a flavor of others
        ({"resources:CUSTOM_A16_8Q": "1", "gpustack:sets": "resources:CUSTOM_A16_8Q"}, {"CUSTOM_A16_8Q"}),
        ({"resources:CUSTOM_GPU_QUOTA_A": "1", "gpustack:sets": "resources:CUSTOM_GPU_QUOTA_A"}, set()),
        ({"pci_passthrough:alias": "a:1", "resources:CUSTOM_B": "1", "gpustack:sets": "resources:CUSTOM_B"}, {"a"}),
    ],
)
def test_flavors_of_vgpus_have_rights(specs: dict[str, str], gpus: set[str]) -> None:
    flavor = PresentFlavor(id="f", name="f", sizes=Sizes(vcpus=1, ram=1, disk=1), extra_specs=specs)
    assert flavor_rights([flavor], [], {})["f"].gpus == gpus
    change = FlavorChange(why="", id="f", name="f", seen=None, wanted={"public": True, "extra_specs": specs})
    assert AccessState().after([change]).flavors["f"].gpus == gpus
    changed = FlavorChange(why="", id="f", name="f", seen={}, wanted={"extra_specs": {"hw:numa_nodes": "1"}})
    assert AccessState(flavors=flavor_rights([flavor], [], {})).after([changed]).flavors["f"].gpus == gpus


@pytest.mark.parametrize(
    ("old", "new", "now", "breached"),
    [
        ((1, 1), (2, 1), (3, 1), False),
        ((1, 1), (2, 1), (4, 1), True),
        ((3, 1), (1, 2), (1, 1), False),
        ((3, 1), (1, 2), (2, 1), True),
        ((1, 1), (1, 3), (1, 4), True),
        ((1, 1), (3, 3), (2, 3), True),
        ((1, 1), (2, 3), (1, 3), True),
        ((1, 2), (1, 3), (1, 1), True),
    ],
)
def test_breaches(old: tuple[int, int], new: tuple[int, int], now: tuple[int, int], breached: bool) -> None:
    key = ("p", "x")
    assert bool(breach({key: old}, {key: new}, {key: now})) is breached
