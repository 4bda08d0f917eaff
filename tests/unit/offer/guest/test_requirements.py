"""The driver for all models of a flavor: intersections, conflicts, and facts that nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpustack.base.findings import Code
from gpustack.offer.guest.drivers import findings_of as driver_findings
from gpustack.offer.guest.drivers import installations
from gpustack.offer.guest.requirements import (
    GuestRequirement,
    ModelRequirement,
    NvidiaDriver,
    combined,
    driver_text,
    fields,
    findings_of,
    requirement_of_flavor,
)
from gpustack.pci import catalogue
from gpustack.pci.catalogue import Card, Requirement
from gpustack.spec.model import Spec

IDS = {
    "k4200": "10de:11b4",
    "t4": "10de:1eb8",
    "p100": "10de:15f8",
    "a100": "10de:20f1",
    "rtx3060": "10de:2503",
    "h100": "10de:2331",
    "h100-64": "10de:2337",
    "gh200": "10de:2342",
    "pro6000": "10de:2bb1",
    "odd": "10de:ffff",
    "mi300x": "1002:74a1",
    "mi300x-vf": "1002:74b5",
    "b580": "8086:e20b",
    "b70": "8086:e223",
    "flex": "8086:56c0",
}
SIZES = {"vcpus": 2, "ram": "4GiB", "disk": "20GiB"}


def needs(flavor: Mapping[str, Any], **models: Mapping[str, Any]) -> GuestRequirement:
    entries = {
        name: {"match": dict(zip(("vendor", "product"), ids.split(":"), strict=True))} for name, ids in IDS.items()
    }
    entries = {name: {**entry, **models.get(name, {})} for name, entry in entries.items()}
    spec = Spec.model_validate(
        {"version": 1, "models": entries, "hosts": {"gpu01": list(entries)}, "flavors": {"f": {**SIZES, **flavor}}}
    )
    return requirement_of_flavor(spec, "f", spec.flavors["f"])


def of(*models: str) -> GuestRequirement:
    return needs({"gpus": dict.fromkeys(models, 1)})


def codes(requirement: GuestRequirement) -> list[Code]:
    return [entry.code for entry in findings_of(requirement)]


@pytest.mark.parametrize(
    ("models", "first", "last", "modules"),
    [
        (("k4200",), 418, 470, {"proprietary"}),
        (("k4200", "t4"), 418, 470, {"proprietary"}),
        (("p100", "a100"), 450, 580, {"proprietary"}),
        (("a100", "h100"), 520, None, {"open", "proprietary"}),
        (("a100", "pro6000"), 570, None, {"open"}),
        (("gh200",), 535, None, {"open"}),
        (("rtx3060", "gh200"), 545, None, {"open"}),  # R535's open modules serve GeForce cards with an option only
        (("h100", "mi300x"), 520, None, {"open", "proprietary"}),
    ],
)
def test_drivers_that_serve_all_models(
    models: tuple[str, ...], first: int, last: int | None, modules: set[str]
) -> None:
    requirement = of(*models)
    assert requirement.nvidia is not None
    assert (requirement.nvidia.first, requirement.nvidia.last, requirement.nvidia.modules) == (first, last, modules)
    assert codes(requirement) == []


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        (("k4200", "h100"), "k4200 needs R470 or earlier, h100 R520 or later"),
        (("k4200", "p100", "pro6000"), "k4200 needs R470 or earlier, pro6000 R570 or later"),
        (("p100", "pro6000"), "p100: proprietary kernel modules only; pro6000: open kernel modules only"),
        (("t4", "p100", "gh200"), "p100: proprietary kernel modules only; gh200: open kernel modules only"),
    ],
)
def test_a_conflict_names_the_models(models: tuple[str, ...], reason: str) -> None:
    requirement = of(*models)
    assert (requirement.conflict, requirement.nvidia) == (reason, None)
    (entry,) = findings_of(requirement)
    assert (entry.code, entry.place) == (Code.NO_SINGLE_DRIVER, "f")
    assert reason in entry.message


def test_a_flavor_by_attribute_needs_a_driver_for_all_selected_models() -> None:
    requirement = needs({"gpu": {"min_memory": "40GiB"}})
    assert {need.model for need in requirement.models} >= {"a100", "h100", "pro6000", "mi300x"}
    assert {need.model for need in requirement.models}.isdisjoint({"k4200", "t4", "p100"})
    assert requirement.nvidia is not None
    assert (requirement.nvidia.first, requirement.nvidia.modules) == (570, {"open"})


def test_models_that_share_an_alias_are_models_of_the_flavor() -> None:
    requirement = needs({"model": "k4200"}, k4200={"alias": "gpu"}, h100={"alias": "gpu"})
    assert [need.model for need in requirement.models] == ["k4200", "h100"]
    assert codes(requirement) == [Code.NO_SINGLE_DRIVER]


@pytest.mark.parametrize("system", [{"windows": True}, {"guest": "windows"}])
def test_windows_needs_a_branch_only(system: dict[str, Any]) -> None:
    windows = needs({"gpus": {"p100": 1, "pro6000": 1}, **system})
    assert (str(windows.nvidia), windows.conflict) == ("R570 to R580", None)
    assert (installations(windows), list(driver_findings(windows))) == ((), [])
    assert needs({"gpus": {"k4200": 1, "h100": 1}, **system}).conflict
    assert needs({"gpus": {"flex": 1}, **system}).linux == {}


def test_unknown_facts_are_reported_and_not_guessed() -> None:
    unlisted = of("odd")
    assert (unlisted.nvidia, unlisted.conflict) == (None, None)
    assert codes(unlisted) == [Code.REQUIREMENT_UNKNOWN]
    partly = of("h100-64", "a100")
    assert partly.nvidia is not None
    assert partly.nvidia.first == 450
    (entry,) = findings_of(partly)
    assert (entry.code, entry.place) == (Code.REQUIREMENT_UNKNOWN, "h100-64")
    assert "first driver branch" in entry.message


def test_virtual_functions_need_the_driver_of_their_card() -> None:
    requirement = of("mi300x-vf")
    assert (requirement.linux, requirement.compute, codes(requirement)) == ({"amdgpu": "6.5"}, ("gfx942",), [])


def test_intel_cards_name_driver_and_kernel() -> None:
    assert of("b580").linux == {"xe": "6.12"}
    assert of("b580", "b70").linux == {"xe": "7.3"}
    assert codes(of("b580", "b70")) == []
    assert Code.DRIVER_NEEDS_OPTION in codes(of("flex"))
    assert "i915.force_probe=56c0" in next(
        entry.remedy for entry in findings_of(of("flex")) if entry.code is Code.DRIVER_NEEDS_OPTION
    )


def test_compute_targets_and_mig_of_all_cards() -> None:
    assert of("a100", "pro6000", "mi300x").compute == ("8.0", "12.0", "gfx942")
    assert of("a100", "pro6000").mig == 4
    assert of("a100", "t4").mig == 0
    assert of("a100", "rtx3060").mig is None


def test_the_text_of_a_driver() -> None:
    assert str(of("k4200").nvidia) == "R418 to R470, proprietary kernel modules"
    assert str(of("a100", "pro6000").nvidia) == "R570 or later, open kernel modules"
    assert str(of("h100").nvidia) == "R520 or later, open or proprietary kernel modules"


def card(text: str) -> Card:
    found = catalogue.lookup(*text.split(":"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ("10de:11b4", "R418 to R470, proprietary kernel modules"),
        ("10de:233b", "R565 or later, open or proprietary kernel modules"),
        ("10de:0ff2", "R470 or earlier, proprietary kernel modules"),
        ("1002:74a1", "amdgpu, Linux 6.5 or later"),
        ("8086:56a0", "i915, Linux 6.2 or later"),
        ("8086:4907", "unknown"),
    ],
)
def test_the_driver_of_a_card(ids: str, text: str) -> None:
    assert driver_text(card(ids)) == text


def test_known_facts_have_a_field_and_unknown_ones_are_named() -> None:
    assert dict(fields(card("10de:20f1"))) == {
        "Guest driver": "R450 or later, open or proprietary kernel modules",
        "Compute target": "8.0",
        "MIG": "up to 7 instances",
    }
    assert dict(fields(card("10de:0ff2")))["Unknown"] == "first driver branch"
    assert dict(fields(card("1002:74a1")))["Virtual functions"] == "1002:74b5"
    assert dict(fields(card("8086:56c0")))["Kernel argument"] == "i915.force_probe=56c0"


@pytest.mark.parametrize("more", [{"vfs": {"count": 4, "vgpu_type": 63}}, {"vgpu": {"type": "A100-4C"}}])
def test_vgpus_need_the_licensed_guest_driver(more: dict[str, object]) -> None:
    shared = {"a100": more}
    requirement = needs({"gpus": {"a100": 1}}, **shared)
    assert (requirement.nvidia, requirement.vgpus, codes(requirement)) == (None, ("a100",), [Code.VGPU_GUEST_DRIVER])
    assert installations(requirement) == ()
    mixed = needs({"gpus": {"a100": 1, "h100": 1}}, **shared)
    assert codes(mixed) == [Code.NO_SINGLE_DRIVER, Code.VGPU_GUEST_DRIVER]


def test_no_recommended_release_contradicts_the_drivers_tables() -> None:
    for listed in catalogue.cards():
        requirement = combined(
            "f",
            [
                ModelRequirement(
                    model="m", vendor=listed.vendor, card=listed, requirement=catalogue.requirement_of(listed)
                )
            ],
        )
        releases = catalogue.requirement_of(listed).releases
        if requirement.nvidia is None or releases is None:
            continue
        for branch in range(515, 596):
            for modules in requirement.nvidia.modules:
                if requirement.nvidia.serves(branch, modules):
                    assert str(branch) in releases or branch > max(map(int, releases)), (listed.name, branch)
        for release in releases.values():
            earlier = f"{release.split('.')[0]}.0"
            assert not any(
                requirement.nvidia.serves_release(earlier, modules) for modules in requirement.nvidia.modules
            )


def nvidia(**fields: Any) -> NvidiaDriver:
    return NvidiaDriver(**{"first": None, "last": None, "modules": frozenset({"proprietary"}), **fields})


OPEN, BOTH = frozenset({"open"}), frozenset({"open", "proprietary"})
LISTS = ({"515": "515.43", "535": "535.54", "550": "550.40"}, {"535": "535.129", "550": "550.40"})


@pytest.mark.parametrize(
    ("driver", "branch", "modules", "expected"),
    [
        (nvidia(), 390, "proprietary", True),
        (nvidia(), 390, "open", False),
        (nvidia(first=450), 450, "proprietary", True),
        (nvidia(first=450), 449, "proprietary", False),
        (nvidia(last=470), 470, "proprietary", True),
        (nvidia(last=470), 471, "proprietary", False),
        (nvidia(first=450, modules=BOTH, first_open=515), 515, "open", True),
        (nvidia(first=450, modules=BOTH, first_open=515), 514, "open", False),
        (nvidia(first=450, modules=BOTH, first_open=515), 450, "proprietary", True),
        (nvidia(first=520, modules=OPEN, first_open=515), 515, "open", False),
        # Branches with public sources, which list the cards
        (nvidia(releases=LISTS), 514, "proprietary", True),
        (nvidia(releases=LISTS), 515, "proprietary", False),  # it lists one of two cards
        (nvidia(releases=LISTS), 535, "proprietary", True),
        (nvidia(releases=LISTS), 545, "proprietary", False),
        (nvidia(releases=LISTS), 600, "proprietary", True),  # as the newest one of the tables
    ],
)
def test_a_branch_serves_within_its_limits(driver: NvidiaDriver, branch: int, modules: str, expected: bool) -> None:
    assert driver.serves(branch, modules) is expected


@pytest.mark.parametrize(
    ("driver", "release", "expected"),
    [
        (nvidia(releases=LISTS), "535.129", True),
        (nvidia(releases=LISTS), "535.128.9", False),
        (nvidia(releases=LISTS), "515.99", False),
        (nvidia(first=580, first_release="580.142"), "580.142", True),
        (nvidia(first=580, first_release="580.142"), "580.126.20", False),
        (nvidia(first=580, first_release="580.142"), "590.1", True),
        (nvidia(), "1.0", True),
    ],
)
def test_a_release_serves_from_the_first_that_lists_the_cards(
    driver: NvidiaDriver, release: str, expected: bool
) -> None:
    assert driver.serves_release(release, "proprietary") is expected
    assert not driver.serves_release(release, "open")


def test_the_first_release_of_a_branch() -> None:
    known = nvidia(releases=LISTS)
    assert [known.first_of(branch) for branch in (514, 515, 535, 550, 600)] == [None, None, "535.129", "550.40", None]
    assert nvidia(releases=({"515": "515.43"}, {"515": "515.105"})).first_of(515) == "515.105"
    assert nvidia().first_of(535) is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "any branch, proprietary kernel modules"),
        ({"first": 450}, "R450 or later, proprietary kernel modules"),
        ({"last": 470}, "R470 or earlier, proprietary kernel modules"),
        ({"first": 450, "last": 470, "modules": BOTH}, "R450 to R470, open or proprietary kernel modules"),
        ({"first": 470, "last": 470, "modules": frozenset()}, "R470"),
    ],
)
def test_the_branches_of_a_driver_as_text(fields: dict[str, Any], text: str) -> None:
    assert str(nvidia(**fields)) == text


def model(name: str, vendor: str = "10de", *, vgpu: bool = False, **needs: Any) -> ModelRequirement:
    requirement = Requirement(**needs)
    return ModelRequirement(model=name, vendor=vendor, card=None, requirement=requirement, vgpu=vgpu)


@pytest.mark.parametrize(
    ("needs", "unknown"),
    [
        (model("a", first=450, modules="either"), ()),
        (model("a", modules="open"), ("first driver branch",)),
        (model("a"), ("first driver branch", "kernel modules")),
        (model("a", vgpu=True), ()),
        (model("a", "1002"), ("driver in Linux",)),
        (model("a", "1002", module="amdgpu"), ("first release of Linux",)),
        (model("a", "1002", module="amdgpu", kernel="6.5"), ()),
        (model("a", "8086", module="i915", force_probe=True), ()),
    ],
)
def test_facts_that_the_catalogue_lacks(needs: ModelRequirement, unknown: tuple[str, ...]) -> None:
    assert needs.unknown == unknown


@pytest.mark.parametrize(
    ("models", "modules", "first", "last", "first_open", "first_release"),
    [
        ([model("a", first=450, modules="either", first_open=515)], BOTH, 450, None, 515, None),
        ([model("a", first=450, modules="open", first_open=515)], OPEN, 515, None, 515, None),
        (
            [
                model("a", first=450, last=580, modules="either", first_open=515, first_release="580.9"),
                model("b", first=520, last=570, modules="either", first_open=525, first_release="580.10"),
            ],
            BOTH,
            520,
            570,
            525,
            "580.10",
        ),
    ],
)
def test_the_driver_of_several_models(
    models: list[ModelRequirement],
    modules: frozenset[str],
    first: int,
    last: int | None,
    first_open: int | None,
    first_release: str | None,
) -> None:
    found = combined("f", models).nvidia
    assert found is not None
    assert (found.modules, found.first, found.last) == (modules, first, last)
    assert (found.first_open, found.first_release) == (first_open, first_release)
    for_windows = combined("f", models, windows=True).nvidia
    assert for_windows is not None
    assert for_windows.modules == frozenset()


@pytest.mark.parametrize(
    ("first", "last", "conflict"),
    [(470, 470, False), (471, 470, True), (None, 470, False), (471, None, False)],
)
def test_branches_conflict_only_without_a_common_one(first: int | None, last: int | None, conflict: bool) -> None:
    found = combined("f", [model("a", first=first, modules="either"), model("b", last=last, modules="either")])
    assert (found.conflict, found.nvidia is None) == (
        f"b needs R{last} or earlier, a R{first} or later" if conflict else None,
        conflict,
    )


AMD = model("a", "1002", module="amdgpu", kernel="6.9")


@pytest.mark.parametrize(
    ("models", "linux"),
    [
        ([AMD, model("b", "1002", module="amdgpu", kernel="6.10")], {"amdgpu": "6.10"}),
        ([AMD, model("b", "1002", module="amdgpu")], {"amdgpu": None}),
        ([AMD, model("b", "8086", module="xe", kernel="6.8")], {"amdgpu": "6.9", "xe": "6.8"}),
        ([model("a", first=450, modules="either")], {}),
    ],
)
def test_the_first_kernel_for_all_cards(models: list[ModelRequirement], linux: dict[str, str | None]) -> None:
    assert combined("f", models).linux == linux
    assert combined("f", models, windows=True).linux == {}


def test_vgpus_and_complete_cards_have_different_drivers() -> None:
    shared, whole, amd = model("s", vgpu=True, modules="either"), model("w", modules="either"), model("a", "1002")
    assert combined("f", [shared, whole]).conflict == "s: the licensed vGPU guest driver; w: another driver"
    assert (combined("f", [shared]).conflict, combined("f", [shared]).nvidia) == (None, None)
    assert combined("f", [shared, amd]).conflict is None


@pytest.mark.parametrize(("drivers", "shown"), [((), "unknown"), (("580.1", "570.2"), "580.1 or 570.2")])
def test_vgpus_need_the_driver_of_the_hosts_release(drivers: tuple[str, ...], shown: str) -> None:
    (found,) = findings_of(combined("f", [model("s", vgpu=True)]), drivers)
    assert (found.code, shown in found.message) == (Code.VGPU_GUEST_DRIVER, True)
