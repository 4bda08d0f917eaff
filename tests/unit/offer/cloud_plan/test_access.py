"""Who can use which GPUs: the parts that decide, one by one. ``test_order.py`` compares with a cloud in memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gpustack.changes.change import CloudChange
from gpustack.cloud.compute import Hypervisor
from gpustack.cloud.flavors import Sizes
from gpustack.cloud.identity import Project
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.cloud_plan.access import AccessState, FlavorRight, breach, decisive, flavor_rights
from gpustack.offer.flavor.changes import AccessChange, FlavorChange
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.spec.extra_specs import ALIAS

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


def private(number: int, **fields: Any) -> PresentFlavor:
    known = {"id": f"f{number}", "name": f"f{number}", "sizes": SIZES, "public": False, "extra_specs": {ALIAS: "x:1"}}
    return PresentFlavor(**{**known, **fields})


SIZES = Sizes(vcpus=1, ram=1, disk=1)
MOVED = AccessChange(why="", id="f1", name="f1", seen={"p": True, "q": False}, wanted={"p": False, "q": True})


@pytest.mark.parametrize(
    ("flavor", "lists", "projects", "others"),
    [
        (private(1, public=True), {}, None, None),
        (private(1), {"f1": ["r"]}, {"r"}, None),
        (private(1), {}, {"p"}, {"p", "q"}),  # as far as the changes tell
        (private(2), {}, set(), set()),
    ],
)
def test_the_projects_of_flavors_are_known_from_lists_or_changes(
    flavor: PresentFlavor, lists: dict[str, list[str]], projects: set[str] | None, others: set[str] | None
) -> None:
    (right,) = flavor_rights([flavor], [MOVED], lists).values()
    assert (right.projects, right.others) == (projects, others)


def test_the_traits_of_flavors_are_rights_too() -> None:
    specs = {"trait:A": "required", "trait:B": "forbidden"}
    (right,) = flavor_rights([private(1, extra_specs=specs)], [], {}).values()
    assert (right.gpus, right.traits, right.forbidden) == (set(), {"A"}, {"B"})


def flavor_change(seen: Any, wanted: Any) -> FlavorChange:
    return FlavorChange(why="", id="f1", name="f1", seen=seen, wanted=wanted)


CREATED = flavor_change(None, {"public": True, "extra_specs": {ALIAS: "x:1"}})
DELETED = flavor_change({"public": False, "extra_specs": {}}, None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([CREATED], []),
        ([flavor_change({"extra_specs": {ALIAS: "x:1"}}, {"extra_specs": {ALIAS: "x:2"}})], ["f1"]),
        ([flavor_change({"extra_specs": {}}, {"extra_specs": {"resources:VGPU": "1"}})], ["f1"]),
        ([flavor_change({"extra_specs": {"a": "1"}}, {"extra_specs": {"a": "2"}})], []),
        ([flavor_change({"description": "a"}, {"description": "b"})], []),
        ([DELETED], []),  # nothing else gives what it no longer gives
        ([DELETED, CREATED], ["f1"]),
        ([flavor_change({"public": True, "extra_specs": {}}, None), CREATED], []),
        ([flavor_change({"public": False, "access": ["p"], "extra_specs": {}}, None), CREATED], []),
    ],
)
def test_projects_of_flavors_are_read_if_they_decide(changes: list[FlavorChange], expected: list[str]) -> None:
    assert list(decisive(changes)) == expected


FULL = FlavorRight(gpus=frozenset("x"), traits=frozenset("T"), projects=frozenset("p"), others=frozenset("p"))
BEFORE = AccessState(
    flavors={"f1": FULL},
    hosts=HOSTS,
    aggregates={"a": RESERVED},
    bearers=frozenset({("T", "u1")}),
    limits={("C", ""): 1, ("C", "p"): 2},
)
NODE = Hypervisor(uuid="u2", node="h2", host="h2")
METADATA = {"filter_tenant_id": "p"}


@pytest.mark.parametrize(
    ("change", "part", "expected"),
    [
        (MOVED, "flavors", {"f1": replace(FULL, projects=frozenset("q"), others=frozenset("pq"))}),
        (replace(MOVED, id="new"), "flavors", {"f1": FULL}),
        (DELETED, "flavors", {}),
        (
            flavor_change({"extra_specs": {"trait:T": "required"}}, {"extra_specs": {"trait:F": "forbidden"}}),
            "flavors",
            {"f1": replace(FULL, traits=frozenset(), forbidden=frozenset("F"))},
        ),
        (
            flavor_change({"extra_specs": {ALIAS: "x:1"}}, {"extra_specs": {ALIAS: "y:1", "trait:U": "required"}}),
            "flavors",
            {"f1": replace(FULL, gpus=frozenset("y"), traits=frozenset("TU"))},
        ),
        (flavor_change({"description": "a"}, {"description": "b"}), "flavors", {"f1": FULL}),
        (LimitChange.of(("C", "m"), Project(id="p", name="p"), None, 3, ""), "limits", {("C", ""): 1, ("C", "p"): 3}),
        (LimitChange.of(("C", "m"), Project(id="p", name="p"), None, None, ""), "limits", {("C", ""): 1}),
        (LimitChange.of(("C", "m"), None, None, 0, ""), "limits", {("C", ""): 0, ("C", "p"): 2}),
        (TraitChange.of(NODE, "T", "", wanted=True), "bearers", {("T", "u1"), ("T", "u2")}),
        (TraitChange.of(replace(NODE, uuid="u1"), "T", "", wanted=False), "bearers", set()),
        (AggregateChange.of("b", None, ""), "aggregates", {"a": RESERVED, "b": Aggregate(name="b", hosts=frozenset())}),
        (AggregateChange.of("a", METADATA, ""), "aggregates", {}),
        (
            MetadataChange.of("a", {"filter_tenant_id": None, "trait:T": "required"}, METADATA, ""),
            "aggregates",
            {"a": ISOLATED},
        ),
        (
            HostChange.of("a", "h2", "", wanted=True),
            "aggregates",
            {"a": replace(RESERVED, hosts=frozenset({"h1", "h2"}))},
        ),
        (HostChange.of("a", "h1", "", wanted=False), "aggregates", {"a": replace(RESERVED, hosts=frozenset())}),
    ],
)
def test_each_change_moves_its_part_of_the_state(change: CloudChange, part: str, expected: Any) -> None:
    after = BEFORE.after([change])
    assert getattr(after, part) == expected
    assert replace(after, **{part: getattr(BEFORE, part)}) == BEFORE


def test_a_new_flavor_has_its_projects() -> None:
    for access, projects in (({}, frozenset[str]()), ({"access": ["p"]}, frozenset("p"))):
        specs = {ALIAS: "x:1", "trait:T": "required", "trait:F": "forbidden"}
        created = flavor_change(None, {"public": False, "extra_specs": specs, **access})
        assert AccessState().after([created]).flavors == {
            "f1": FlavorRight(gpus=frozenset("x"), traits=frozenset("T"), forbidden=frozenset("F"), projects=projects)
        }


def test_all_projects_that_anything_names_are_known() -> None:
    state = replace(
        BEFORE,
        limits={("C", ""): 1, ("C", "l"): 2},
        aggregates={"a": replace(RESERVED, metadata={"filter_tenant_id": "r"})},
    )
    assert state.projects() == {"", "p", "l", "r"}
    assert AccessState(flavors={"f": PUBLIC}).projects() == {""}


def test_without_hosts_a_flavor_may_run_anywhere() -> None:
    right = FlavorRight(gpus=frozenset("x"), traits=frozenset("T"))
    state = AccessState(flavors={"f": right}, known=frozenset("T"))
    assert state.rights(frozenset("p")) == {("p", "x"): (1, math.inf)}


WITHOUT = FlavorRight(gpus=frozenset("x"), forbidden=frozenset("T"))


@pytest.mark.parametrize(
    ("right", "parts", "hosts"),
    [
        (WITHOUT, {"known": frozenset("T"), "bearers": {("T", "u2")}}, 1),
        (WITHOUT, {"bearers": {("T", "u2")}}, 3),  # not read
        (FlavorRight(gpus=frozenset("x"), traits=frozenset("T")), {"aggregates": {"a": ISOLATED}}, 3),
        (PUBLIC, {"aggregates": {"a": ISOLATED}, "outside": frozenset({("a", "h1")})}, 3),
        (PUBLIC, {"aggregates": {"a": ISOLATED}, "outside": frozenset({("a", "h2")})}, 2),
    ],
)
def test_hosts_and_flavors_agree_about_traits(right: FlavorRight, parts: dict[str, Any], hosts: int) -> None:
    assert rights(right, **parts)["p", "x"] == (hosts, math.inf)


@pytest.mark.parametrize(
    ("reserved", "expected"),
    [
        ({"a": {"h1"}, "p": {"h1"}}, {"p": 3, "q": 2}),  # one aggregate of several admits
        ({"q": {"h1", "h2"}, "p": {"h1"}}, {"p": 1, "q": 3}),
        ({"p,q": {"h1"}}, {"p": 3, "q": 3}),
        ({"": {"h1"}}, {"p": 2, "q": 2}),
    ],
)
def test_a_host_accepts_the_projects_of_its_aggregates(reserved: dict[str, set[str]], expected: dict[str, int]) -> None:
    aggregates = {
        names: Aggregate(name=names, hosts=frozenset(hosts), metadata={"filter_tenant_id": names})
        for names, hosts in reserved.items()
    }
    assert dict(AccessState(hosts=HOSTS, aggregates=aggregates).accepted(P)) == expected
    (nobody,) = dict(AccessState(hosts=HOSTS, aggregates=aggregates).accepted(frozenset({""}))).values()
    assert nobody == 3 & ~sum({"h1": 1, "h2": 2}[host] for host in set().union(*reserved.values()))


@pytest.mark.parametrize(
    ("limits", "absent", "expected"),
    [
        ({("C", ""): 3, ("D", ""): 2}, math.inf, 2),
        ({("C", ""): 3, ("D", ""): 2, ("D", "p"): 9}, math.inf, 3),
        ({("C", ""): -1, ("D", ""): 2}, math.inf, 2),
        ({("C", ""): -1}, math.inf, math.inf),
        ({("C", ""): 3}, math.inf, 3),
        ({("C", ""): 3}, 0, None),  # before Nova 2025.1, nobody gets any without a default
        ({("C", ""): 3, ("D", "p"): 0}, math.inf, None),
    ],
)
def test_the_least_limit_of_several_kinds_counts(
    limits: dict[tuple[str, str], int], absent: float, expected: float | None
) -> None:
    right = FlavorRight(gpus=frozenset({"x", "y", "z"}))
    found = rights(right, classes={"x": "C", "y": "D"}, limits=limits, absent=absent)
    assert found.get(("p", "x,y,z")) == (None if expected is None else (3, expected))


def test_flavors_of_one_kind_add_their_hosts() -> None:
    flavors = {
        "f": FlavorRight(gpus=frozenset("x"), traits=frozenset("T")),
        "g": FlavorRight(gpus=frozenset("x"), forbidden=frozenset("T")),
        "plain": FlavorRight(gpus=frozenset()),
        "hidden": FlavorRight(gpus=frozenset("y"), projects=frozenset("q"), others=frozenset("p")),
    }
    state = AccessState(flavors=flavors, hosts=HOSTS, known=frozenset("T"), bearers=frozenset({("T", "u1")}))
    assert state.rights(frozenset("p")) == {("p", "x"): (3, math.inf)}


@pytest.mark.parametrize(("project", "text"), [("p", "p (x)"), ("", "any project (x)")])
def test_a_breach_names_the_project(project: str, text: str) -> None:
    assert breach({}, {}, {(project, "x"): (1, math.inf)}) == text
