"""Flavors named on a command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.base.errors import FlavorError, UsageError
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import ACCESS, ORIGIN, SETS, PresentFlavor, WantedFlavor, access_mark
from gpustack.offer.flavor.manual import Changes, change, creation, find_flavor, gpu_option, requested
from gpustack.spec.extra_specs import ALIAS

SIZES = Sizes(vcpus=8, ram=32768, disk=40)
FLAVORS = [PresentFlavor(id="gpu", name="small", sizes=SIZES), PresentFlavor(id="2", name="gpu", sizes=SIZES)]


@pytest.mark.parametrize(("name", "flavor_id"), [("small", "gpu"), ("2", "2")])
def test_flavors_are_found_by_name_or_id(name: str, flavor_id: str) -> None:
    assert find_flavor(FLAVORS, name).id == flavor_id


def test_a_name_that_is_the_id_of_another_flavor_is_refused() -> None:
    with pytest.raises(UsageError, match=r"small \(id gpu\) and gpu \(id 2\)"):
        find_flavor(FLAVORS, "gpu")


def test_a_flavor_whose_name_is_its_id_is_found() -> None:
    assert find_flavor([PresentFlavor(id="g1", name="g1", sizes=SIZES)], "g1").id == "g1"


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [("K4200", "K4200", None), (" K4200:1 ", "K4200", 1), ("K4200:9999", "K4200", 9999), ("a b:10", "a b", 10)],
)
def test_a_gpu_option_has_a_name_and_perhaps_a_number(text: str, name: str, count: int | None) -> None:
    option = gpu_option(text, model=False)
    assert (option.name, option.count, option.model) == (name, count, False)
    assert str(option) == text.strip()


@pytest.mark.parametrize("text", ["", ":1", " :1", "a,b", "a,b:1", "a:", "a:0", "a:01", "a:10000", "a:1:1", "a:-1"])
def test_an_option_that_no_flavor_can_request_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not NAME or NAME:N"):
        gpu_option(text, model=True)


@pytest.mark.parametrize(
    ("texts", "count", "expected"),
    [
        (["a"], None, {"a": 1}),
        (["a"], 3, {"a": 3}),
        (["a:2"], None, {"a": 2}),
        (["a", "b:2"], None, {"a": 1, "b": 2}),
        (["a:2", "a:3"], None, {"a": 5}),
        (["a", "a"], None, {"a": 2}),
    ],
)
def test_the_gpus_of_options_are_added(texts: list[str], count: int | None, expected: dict[str, int]) -> None:
    assert requested([gpu_option(text, model=False) for text in texts], count) == expected


@pytest.mark.parametrize("texts", [[], ["a:2"], ["a", "b"]])
def test_a_count_belongs_to_one_option_without_number(texts: list[str]) -> None:
    with pytest.raises(UsageError, match=f"the GPUs are {', '.join(texts)}"):
        requested([gpu_option(text, model=False) for text in texts], 2)


def test_a_flavor_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no flavor 'large'"):
        find_flavor(FLAVORS, "large")


MARKS = {SETS: ALIAS, ORIGIN: "hand"}
NEW = WantedFlavor(
    name="new", id="9", sizes=SIZES, gpus={"a": 1}, extra_specs={ALIAS: "a:1"}, access=("research",), origin="hand"
)


def test_a_flavor_by_hand_is_created_as_that_of_a_spec() -> None:
    operation = creation(NEW.with_ids({"research": "p1"}), FLAVORS)
    flavor, specs = operation.flavor, {ALIAS: "a:1", **MARKS, ACCESS: access_mark(["p1"])}
    assert (flavor.id, flavor.access, flavor.extra_specs) == ("9", {"p1"}, specs)


@pytest.mark.parametrize(
    ("name", "flavor_id", "message"),
    [
        ("small", None, "there is a flavor small already\n"),
        ("half", None, "there is a flavor half already, and only half made"),
        ("new", "gpu", "small has the id gpu already"),
    ],
)
def test_a_name_or_id_that_is_taken_is_refused(name: str, flavor_id: str | None, message: str) -> None:
    half = PresentFlavor(id="3", name="half", sizes=SIZES, description="[gpustack]")
    with pytest.raises(FlavorError, match=message):
        creation(replace(NEW, name=name, id=flavor_id), [*FLAVORS, half])


OURS = PresentFlavor(
    id="1",
    name="g",
    sizes=SIZES,
    description="1 x a [gpustack]",
    extra_specs={ALIAS: "a:1", "hw:x": "1", "theirs": "2", **MARKS, SETS: f"hw:x,{ALIAS}"},
)
PRIVATE = replace(OURS, public=False, extra_specs={**OURS.extra_specs, ACCESS: "old"})
FOREIGN = PresentFlavor(id="2", name="theirs", sizes=SIZES, description="old", extra_specs={"hw:x": "1"})


@pytest.mark.parametrize(
    ("flavor", "changes", "expected"),
    [
        (OURS, Changes(), []),
        (OURS, Changes(set_specs={ALIAS: "a:1"}, description="1 x a", unset_specs=frozenset({"missing"})), []),
        (
            OURS,
            Changes(set_specs={ALIAS: "a:2"}),
            [
                "~ pci_passthrough:alias = a:2 (was a:1)",
                "~ description = 2 x a [gpustack] (was 1 x a [gpustack])",
            ],
        ),
        (OURS, Changes(description="lab"), ["~ description = lab [gpustack] (was 1 x a [gpustack])"]),
        (
            OURS,
            Changes(set_specs={"hw:y": "1"}, unset_specs=frozenset({"hw:x", "theirs"})),
            ["+ hw:y = 1", "- theirs (was 2)", "- hw:x (was 1)"],
        ),
        (replace(OURS, description="lab [gpustack]"), Changes(set_specs={"hw:x": "2"}), ["~ hw:x = 2 (was 1)"]),
        (
            FOREIGN,
            Changes(set_specs={ALIAS: "a:1"}),
            ["+ pci_passthrough:alias = a:1", "~ description = old [gpustack] (was old)"],
        ),
        (
            replace(FOREIGN, extra_specs={ALIAS: "b:1"}),
            Changes(set_specs={"hw:x": "2"}, unset_specs=frozenset({ALIAS})),
            ["+ hw:x = 2", "- pci_passthrough:alias (was b:1)", "~ description = old [gpustack] (was old)"],
        ),
    ],
)
def test_changes_by_hand(flavor: PresentFlavor, changes: Changes, expected: list[str]) -> None:
    operation = change(flavor, changes, None)
    assert ([] if operation is None else operation.details()) == expected
    assert operation is None or (operation.why, operation.flavor.id) == ("as asked", flavor.id)


def test_the_origin_of_a_flavor_stays() -> None:
    """``flavor apply --prune`` deletes flavors of a spec, not those by hand."""
    changes = Changes(set_specs={"hw:x": "2"})
    for flavor, origin in ((OURS, None), (replace(OURS, extra_specs={**OURS.extra_specs, ORIGIN: "spec"}), None)):
        operation = change(flavor, changes, None)
        assert operation is not None
        assert operation.set_specs.get(ORIGIN) == origin
    adopted = change(FOREIGN, changes, None)
    assert adopted is not None
    assert adopted.set_specs[ORIGIN] == "hand"


@pytest.mark.parametrize(
    ("grant", "revoke", "have", "expected", "mark"),
    [
        ({"p2"}, set(), {"p1"}, ["+ project p2"], ["p1", "p2"]),
        ({"p2"}, {"p1"}, {"p1"}, ["+ project p2", "- project p1"], ["p2"]),
        (set(), {"p1"}, {"p1", "p2"}, ["- project p1"], ["p2"]),
        ({"p1"}, {"p2"}, {"p1"}, None, None),
        ({"p1"}, set(), None, ["+ project p1"], ["p1"]),
    ],
)
def test_projects_by_hand_have_a_current_mark(
    grant: set[str], revoke: set[str], have: set[str] | None, expected: list[str] | None, mark: list[str] | None
) -> None:
    changes = Changes(grant=frozenset(grant), revoke=frozenset(revoke))
    operation = change(PRIVATE, changes, None if have is None else frozenset(have))
    if expected is None or mark is None:
        assert operation is None
    else:
        assert operation is not None
        assert operation.details() == expected
        marks = (operation.flavor.extra_specs[ACCESS], operation.before.extra_specs[ACCESS])
        assert marks == (access_mark(mark), "old")


@pytest.mark.parametrize(
    ("flavor", "changes", "message"),
    [
        (OURS, Changes(grant=frozenset({"p"})), "g is public"),
        (OURS, Changes(revoke=frozenset({"p"})), "g is public"),
        (OURS, Changes(unset_specs=frozenset({ALIAS})), "without pci_passthrough:alias, g is no GPU flavor"),
        (OURS, Changes(unset_specs=frozenset({SETS})), "gpustack:sets is gpustack's own"),
        (PRIVATE, Changes(unset_specs=frozenset({"a", ACCESS})), "gpustack:access is gpustack's own"),
        (PRIVATE, Changes(grant=frozenset({"p", "q"}), revoke=frozenset({"p"})), "to be added and to be removed: p\n"),
        (OURS, Changes(set_specs={"a": "1"}, unset_specs=frozenset({"a"})), "to be added and to be removed: a\n"),
    ],
)
def test_impossible_changes_are_refused(flavor: PresentFlavor, changes: Changes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        change(flavor, changes, None)
