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
    combined,
    driver_text,
    fields,
    findings_of,
    requirement_of_flavor,
)
from gpustack.pci import catalogue
from gpustack.pci.catalogue import Card
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


def test_windows_needs_a_branch_only() -> None:
    windows = needs({"gpus": {"p100": 1, "pro6000": 1}, "windows": True})
    assert (str(windows.nvidia), windows.conflict) == ("R570 to R580", None)
    assert (installations(windows), list(driver_findings(windows))) == ((), [])
    assert needs({"gpus": {"k4200": 1, "h100": 1}, "windows": True}).conflict
    assert needs({"gpus": {"flex": 1}, "windows": True}).linux == {}


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
