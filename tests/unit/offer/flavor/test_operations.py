"""Operations on flavors: what a plan shows of them, in text and as JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import ACCESS, SETS, PresentFlavor
from gpustack.offer.flavor.operations import CreateFlavor, DeleteFlavor
from gpustack.spec.extra_specs import ALIAS
from support.flavor_operations import changed

SIZES = Sizes(vcpus=2, ram=2048, disk=3)
SPECS = {ALIAS: "a:1", SETS: ALIAS}
DATA = {"vcpus": 2, "ram": 2048, "disk": 3, "ephemeral": 0, "swap": 0}
FLAVOR = PresentFlavor(id="1", name="g", sizes=SIZES, description="d", extra_specs=SPECS)
TEXT = "create g (2 vCPUs, 2 GiB RAM, 3 GiB disk; {})"


@pytest.mark.parametrize(
    ("access", "mark", "who"),
    [
        (None, None, "public"),
        ((), "m", "for administrators"),
        (("p",), "m", "for 1 project"),
        (("q", "p"), "m", "for 2 projects"),
    ],
)
def test_a_creation_shows_who_may_use_the_flavor(access: tuple[str, ...] | None, mark: str | None, who: str) -> None:
    projects, specs = access and frozenset(access), SPECS if mark is None else {**SPECS, ACCESS: mark}
    flavor = replace(FLAVOR, id="7", public=access is None, access=projects, extra_specs=specs)
    operation = CreateFlavor(why="w", flavor=flavor)
    assert [operation.describe(), *operation.details()] == [TEXT.format(who), "+ pci_passthrough:alias = a:1"]
    assert operation.to_dict() == {
        "kind": "create_flavor",
        "why": "w",
        "name": "g",
        "id": "7",
        **DATA,
        "description": "d",
        "extra_specs": specs,
        "access": None if access is None else sorted(access),
    }


def test_a_change_shows_each_value_before_and_after() -> None:
    specs = {"b": "1", f"{SETS}.2": "d", "c": "3", SETS: "c"}
    operation = changed(
        replace(FLAVOR, description="old", extra_specs=specs),
        {"a": "1", "b": "2", SETS: "a,b"},
        ("c", f"{SETS}.2"),
        description="new",
        grant=("q", "p"),
        revoke=("s", "r"),
    )
    assert [operation.describe(), *operation.details()] == [
        "change g: w",
        "+ a = 1",
        "~ b = 2 (was 1)",
        "- c (was 3)",
        "~ description = new (was old)",
        "+ project p",
        "+ project q",
        "- project r",
        "- project s",
    ]
    assert operation.to_dict() == {
        "kind": "change_flavor",
        "why": "w",
        "name": "g",
        "id": "1",
        "set": {"a": "1", "b": "2", SETS: "a,b"},
        "unset": ["c", f"{SETS}.2"],
        "before": {"a": None, **specs},
        "description": "new",
        "grant": ["p", "q"],
        "revoke": ["r", "s"],
    }


def test_a_change_of_the_mark_alone_has_a_line() -> None:
    operation = changed(FLAVOR, {SETS: "a"})
    assert operation.details() == ["~ gpustack's mark"]
    assert operation.to_dict()["description"] is None


def test_a_deletion_shows_all_that_is_lost() -> None:
    operation = DeleteFlavor(why="w", flavor=FLAVOR)
    assert [operation.name, operation.describe(), *operation.details()] == [
        "g",
        "delete g (2 vCPUs, 2 GiB RAM, 3 GiB disk)",
        "- pci_passthrough:alias = a:1",
    ]
    data = {"id": "1", "name": "g", **DATA, "public": True, "description": "d", "extra_specs": SPECS, "access": None}
    assert operation.to_dict() == {"kind": "delete_flavor", "why": "w", **data}
