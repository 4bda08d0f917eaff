"""Plans as data: the words of operations and findings, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.findings import definitions
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.compare import Answers, FlavorChoices, FlavorPlan, compare
from gpustack.offer.flavor.flavors import ACCESS, ORIGIN, SETS, PresentFlavor, WantedFlavor, access_mark, sets_mark
from gpustack.spec.extra_specs import ALIAS, parse_alias

SIZES = Sizes(vcpus=8, ram=32768, disk=40)
FLAVOR = WantedFlavor(name="g1", sizes=SIZES, gpus={"K4200": 1}, extra_specs={ALIAS: "K4200:1"})
MARKS = {SETS: ALIAS, ORIGIN: "spec"}
BY_HAND = {**MARKS, ALIAS: "K4200:1", ORIGIN: "hand"}
HALF_MADE = definitions()["GPU402"].message
OTHER = "exists with properties that Nova can't change"


def there(**changes: Any) -> PresentFlavor:
    fields: dict[str, Any] = {
        "id": "1",
        "name": "g1",
        "sizes": SIZES,
        "description": "1 x K4200 [gpustack]",
        "extra_specs": {ALIAS: "K4200:1", **MARKS},
    }
    return PresentFlavor(**{**fields, **changes})


def lines(plan: FlavorPlan) -> list[str]:
    output = []
    for operation in plan.operations:
        output += [operation.describe(), *(f"  {line}" for line in operation.details())]
    return [*output, *(f"{f.code} {f.place}: {f.message}" for f in plan.findings)]


@pytest.mark.parametrize(
    ("present", "choices", "expected"),
    [
        ([there()], {}, []),
        (
            [],
            {},
            ["create g1 (8 vCPUs, 32 GiB RAM, 40 GiB disk; public)", "  + pci_passthrough:alias = K4200:1"],
        ),
        (
            [there(extra_specs={ALIAS: "K4200:2", **MARKS, "foreign": "x"})],
            {},
            ["change g1: it is not as the spec has it", "  ~ pci_passthrough:alias = K4200:1 (was K4200:2)"],
        ),
        (
            [there(extra_specs={ALIAS: "K4200:1", "a": "1", "b": "2", **MARKS, SETS: f"a,{ALIAS}"})],
            {},
            ["change g1: it is not as the spec has it", "  - a (was 1)"],
        ),
        (
            [there(extra_specs={ALIAS: "K4200:1", "a": "1"}, description="")],
            {},
            ["GPU401 g1: exists already, and gpustack does not manage it"],
        ),
        (
            [there(extra_specs={"a": "1"}, description="theirs")],
            {"adopt": True},
            [
                "change g1: adopted",
                "  + pci_passthrough:alias = K4200:1",
                "  ~ description = 1 x K4200 [gpustack] (was theirs)",
            ],
        ),
        (
            [there(extra_specs={})],
            {},
            [
                "change g1: it is only half made",
                "  + pci_passthrough:alias = K4200:1",
                f"GPU402 g1: {HALF_MADE}",
            ],
        ),
        (
            [there(sizes=Sizes(vcpus=4, ram=32768, disk=40), public=False)],
            {},
            [
                f"GPU400 g1: {OTHER}: vcpus is 4, wanted is 8; it is private",
            ],
        ),
        (
            [there(sizes=Sizes(vcpus=4, ram=32768, disk=40))],
            {"replace": frozenset({"g1"})},
            [
                "delete g1 (4 vCPUs, 32 GiB RAM, 40 GiB disk)",
                "  - pci_passthrough:alias = K4200:1",
                "create g1 (8 vCPUs, 32 GiB RAM, 40 GiB disk; public)",
                "  + pci_passthrough:alias = K4200:1",
            ],
        ),
        ([there()], {"replace": frozenset({"g1"})}, ["GPU407 g1: is named by --replace, but needs no replacement"]),
        (
            [there(), there(id="2", name="old")],
            {},
            ["GPU404 old: has gpustack's mark and is not in the spec"],
        ),
        (
            [there(), there(id="2", name="old")],
            {"prune": True},
            ["delete old (8 vCPUs, 32 GiB RAM, 40 GiB disk)", "  - pci_passthrough:alias = K4200:1"],
        ),
        (
            [there(), there(id="used", name="old")],
            {"prune": True},
            ["GPU405 old: is not in the spec, but instances use it: 3 instances"],
        ),
        (
            [there(), there(id="2", name="hand", extra_specs={**MARKS, ALIAS: "x:1", ORIGIN: "hand"})],
            {"prune": True},
            [],
        ),
        ([there(), there(id="2", name="theirs", extra_specs={}, description="")], {"prune": True}, []),
    ],
)
def test_what_is_planned(present: list[PresentFlavor], choices: dict[str, Any], expected: list[str]) -> None:
    answers = Answers(users={"1": 0, "2": 0, "used": 3})
    assert lines(compare([FLAVOR], present, FlavorChoices(**choices), answers)) == expected


def test_a_flavor_in_use_is_not_replaced() -> None:
    present = [there(sizes=Sizes(vcpus=4, ram=32768, disk=40))]
    plan = compare([FLAVOR], present, FlavorChoices(replace=frozenset({"g1"})), Answers(users={"1": 1}))
    assert lines(plan) == ["GPU406 g1: can't be replaced: instances use it: 1 instance"]


def test_an_id_that_another_flavor_has() -> None:
    flavor = WantedFlavor(name="g1", id="7", sizes=SIZES, gpus={"K4200": 1}, extra_specs={ALIAS: "K4200:1"})
    plan = compare([flavor], [there(id="7", name="other", description="", extra_specs={})])
    assert lines(plan) == ["GPU403 g1: requests the id 7, which the flavor other has"]


def test_access_is_changed_by_projects() -> None:
    flavor = WantedFlavor(
        name="g1", sizes=SIZES, gpus={"K4200": 1}, extra_specs={ALIAS: "K4200:1"}, access=("research", "teaching")
    )
    mark = {ACCESS: access_mark(["admin"])}
    present = [there(public=False, extra_specs={ALIAS: "K4200:1", **MARKS, **mark})]
    answers = Answers(access={"1": frozenset({"r", "a"})}, projects={"research": "r", "teaching": "t"})
    assert lines(compare([flavor], present, FlavorChoices(), answers)) == [
        "change g1: it is not as the spec has it",
        "  + project t",
        "  - project a",
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("K4200:2", {"K4200": 2}),
        ("a:1, b:2", {"a": 1, "b": 2}),
        ("a:1,a:2", {"a": 3}),
        ("", {}),
        ("a", {}),
        ("a:x", {}),
    ],
)
def test_reading_an_alias(value: str, expected: dict[str, int]) -> None:
    assert parse_alias(value) == expected


def test_the_mark_of_many_long_names_is_read_back() -> None:
    keys = {"k" * length for length in (255, 254, 100, 99, 1)}
    marks = sets_mark(keys)
    assert len(marks) > 1
    assert all(len(value) <= 255 for value in marks.values())
    assert there(extra_specs=marks).owned == keys


def test_one_vcpu_is_singular() -> None:
    assert str(Sizes(vcpus=1, ram=256, disk=0)) == "1 vCPU, 256 MiB RAM, 0 GiB disk"
