"""Plans as data: the words of operations and findings, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.base.findings import definitions
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.compare import Answers, FlavorChoices, FlavorPlan, Questions, compare, questions
from gpustack.offer.flavor.flavors import ACCESS, ORIGIN, SETS, PresentFlavor, WantedFlavor, access_mark, sets_mark
from gpustack.offer.flavor.operations import ChangeFlavor, CreateFlavor
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
    flavor = WantedFlavor(name="g1", sizes=SIZES, gpus={"K4200": 1}, extra_specs={ALIAS: "K4200:1"}, access=("r", "t"))
    mark = {ACCESS: access_mark(["admin"])}
    present = [there(public=False, extra_specs={ALIAS: "K4200:1", **MARKS, **mark})]
    answers = Answers(access={"1": frozenset({"r", "a"})})
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


def test_flavors_with_neither_change_nor_finding_are_unchanged() -> None:
    wanted = [replace(FLAVOR, name=name) for name in ("same", "new", "half", "theirs", "other")]
    present = [
        there(id="1", name="same"),
        there(id="2", name="half", extra_specs={}),
        there(id="3", name="theirs", description="", extra_specs={}),
        there(id="4", name="other", extra_specs={**MARKS, ALIAS: "K4200:3"}),
    ]
    assert compare(wanted, present).unchanged == ("same",)


@pytest.mark.parametrize(
    ("wanted_id", "differs"), [(None, []), ("1", []), ("7", [f"GPU400 g1: {OTHER}: its id is 1, wanted is 7"])]
)
def test_an_id_is_compared_if_the_spec_has_one(wanted_id: str | None, differs: list[str]) -> None:
    assert lines(compare([replace(FLAVOR, id=wanted_id)], [there()])) == differs


LISTED = replace(FLAVOR, access=("r", "t"))
CURRENT = access_mark(LISTED.access or ())


@pytest.mark.parametrize(
    ("mark", "have", "check", "expected", "written"),
    [
        (CURRENT, None, False, [], None),
        (CURRENT, "rt", True, [], None),
        (CURRENT, "r", True, ["+ project t"], CURRENT),
        (CURRENT, "rta", True, ["- project a"], CURRENT),
        (CURRENT, "ra", True, ["+ project t", "- project a"], CURRENT),
        ("old", "rt", False, ["~ gpustack's mark"], CURRENT),
        (None, "rt", True, ["~ gpustack's mark"], CURRENT),
    ],
)
def test_projects_are_read_and_changed_where_the_mark_is_not_current(
    mark: str | None, have: str | None, check: bool, expected: list[str], written: str | None
) -> None:
    marked = {} if mark is None else {ACCESS: mark}
    present = [there(public=False, extra_specs={ALIAS: "K4200:1", **MARKS, **marked})]
    choices = FlavorChoices(check_access=check)
    asked = questions([LISTED], present, choices)
    assert asked == (Questions() if have is None else Questions(access=frozenset("1")))
    answers = Answers() if have is None else Answers(access={"1": frozenset(have)})
    operations = compare([LISTED], present, choices, answers).operations
    assert [line for operation in operations for line in operation.details()] == expected
    for operation in operations:
        assert isinstance(operation, ChangeFlavor)
        assert [state.extra_specs.get(ACCESS) for state in (operation.flavor, operation.before)] == [written, mark]


def test_the_mark_of_projects_belongs_to_a_change_of_projects_alone() -> None:
    """Another extra spec changes while the projects are right: their mark stays as it is."""
    present = [there(public=False, extra_specs={ALIAS: "K4200:2", **MARKS, ACCESS: CURRENT})]
    answers = Answers(access={"1": frozenset("rt")})
    for check in (False, True):
        (operation,) = compare([LISTED], present, FlavorChoices(check_access=check), answers).operations
        assert isinstance(operation, ChangeFlavor)
        assert (operation.set_specs, operation.unset_specs) == ({ALIAS: "K4200:1"}, ())
        assert operation.before.extra_specs[ACCESS] == operation.flavor.extra_specs[ACCESS] == CURRENT


OLD_SIZES = {"sizes": Sizes(vcpus=4, ram=32768, disk=40)}
FOREIGN = {"description": "", "extra_specs": {}}
READ = Questions(access=frozenset("1"))


@pytest.mark.parametrize(
    ("present", "choices", "expected"),
    [
        ([], {}, Questions()),
        ([{}], {}, READ),
        ([FOREIGN], {}, Questions()),
        ([FOREIGN], {"adopt": True}, READ),
        ([{**FOREIGN, "extra_specs": {ACCESS: CURRENT}}], {"adopt": True}, READ),
        ([OLD_SIZES], {}, Questions()),
        ([OLD_SIZES], {"replace": frozenset({"g1"})}, Questions(users=frozenset("1"))),
        ([{**OLD_SIZES, **FOREIGN}], {"replace": frozenset({"g1"})}, Questions()),
        ([{}], {"replace": frozenset({"g1"})}, READ),
        (
            [{}, {"id": "2", "name": "old"}, {"id": "3", "name": "hand", "extra_specs": BY_HAND}],
            {"prune": True},
            replace(READ, users=frozenset("2")),
        ),
    ],
)
def test_only_data_that_matter_are_asked_for(
    present: list[dict[str, Any]], choices: dict[str, Any], expected: Questions
) -> None:
    flavors = [there(**{"public": False, **fields}) for fields in present]
    assert questions([LISTED], flavors, FlavorChoices(**choices)) == expected


def test_a_public_flavor_asks_for_no_projects() -> None:
    assert questions([FLAVOR], [there()], FlavorChoices(check_access=True)) == Questions()
    assert questions([FLAVOR], [], FlavorChoices()) == Questions()


@pytest.mark.parametrize(("access", "mark"), [(None, None), ((), access_mark(())), (LISTED.access, CURRENT)])
def test_a_new_flavor_has_its_projects_and_their_mark(access: tuple[str, ...] | None, mark: str | None) -> None:
    plan = compare([replace(LISTED, access=access)], [])
    (operation,) = plan.operations
    assert isinstance(operation, CreateFlavor)
    assert operation.flavor.access == (None if access is None else frozenset(access))
    assert operation.flavor.extra_specs == {ALIAS: "K4200:1", **MARKS, **({} if mark is None else {ACCESS: mark})}
