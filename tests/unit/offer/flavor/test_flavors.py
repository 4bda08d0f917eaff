"""The mark of flavors: whose a flavor is, and which of its extra specs gpustack set."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import (
    MARK,
    ORIGIN,
    SETS,
    PresentFlavor,
    WantedFlavor,
    access_mark,
    gpus_without_spec,
    sets_mark,
)
from gpustack.spec.extra_specs import ALIAS

SIZES = Sizes(vcpus=1, ram=1, disk=1)


def there(description: str = "", **extra_specs: str) -> PresentFlavor:
    specs = {key.replace("__", ":"): value for key, value in extra_specs.items()}
    return PresentFlavor(id="1", name="g", sizes=SIZES, description=description, extra_specs=specs)


ALIASED = {"pci_passthrough__alias": "a:1"}


@pytest.mark.parametrize(
    ("flavor", "state", "owned"),
    [
        (there(f"x {MARK}", gpustack__sets=ALIAS, **ALIASED), "managed", {ALIAS}),
        (there(gpustack__sets=ALIAS, **ALIASED), "managed", {ALIAS}),  # somebody changed the description
        (there(f"x {MARK}", **ALIASED), "half made", set()),
        (there(f"x {MARK}", gpustack__sets=ALIAS), "half made", {ALIAS}),
        (there(f"x {MARK}", gpustack__sets="hw:x", hw__x="1"), "half made", {"hw:x"}),  # it requests no GPU
        (there(f"x {MARK}", gpustack__sets="resources:VGPU", resources__VGPU="1"), "managed", {"resources:VGPU"}),
        (there(f"{MARK} x", **ALIASED), "foreign", set()),
        (there("x"), "foreign", set()),
    ],
)
def test_the_mark_shows_the_state(flavor: PresentFlavor, state: str, owned: set[str]) -> None:
    assert (flavor.state, flavor.owned) == (state, owned)
    assert (flavor.ours, flavor.half_made, flavor.managed) == (
        state != "foreign",
        state == "half made",
        state == "managed",
    )


@pytest.mark.parametrize(
    ("number", "length", "chunks"),
    [(1, 255, 1), (2, 127, 1), (2, 128, 2), (3, 85, 2), (0, 0, 1)],
)
def test_a_mark_has_as_few_values_as_nova_permits(number: int, length: int, chunks: int) -> None:
    keys = {str(n) + "k" * (length - 1) for n in range(number)}
    marks = sets_mark(keys)
    assert list(marks) == [SETS, f"{SETS}.2"][:chunks]
    assert PresentFlavor(id="1", name="g", sizes=SIZES, extra_specs=marks).owned == keys


def test_other_names_are_no_continuation_of_the_mark() -> None:
    assert there(gpustack__sets="a", gpustack__setsX="b", **{"gpustack__sets.2": "c"}).owned == {"a", "c"}


@pytest.mark.parametrize(
    ("description", "access", "shown", "public"),
    [("", None, "2 x a, 1 x b [gpustack]", True), ("lab", (), "lab [gpustack]", False)],
)
def test_a_desired_flavor_has_the_mark(description: str, access: Any, shown: str, public: bool) -> None:
    flavor = WantedFlavor(
        name="g",
        sizes=SIZES,
        gpus={"a": 2, "b": 1},
        extra_specs={ALIAS: "a:2,b:1", "hw:x": "1"},
        description=description,
        access=access,
        origin="hand",
    )
    assert (flavor.marked_description, flavor.public) == (shown, public)
    assert flavor.marks == {SETS: f"hw:x,{ALIAS}", ORIGIN: "hand"}


def test_a_flavor_without_gpus_is_described_by_the_mark_alone() -> None:
    assert WantedFlavor(name="g", sizes=SIZES, gpus={}, extra_specs={}).marked_description == MARK


def test_the_mark_of_projects_does_not_depend_on_their_order() -> None:
    assert access_mark(["b", "a", "a"]) == access_mark(("a", "b")) != access_mark(["a"])


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({ALIAS: "a:2"}, {"a": 2}),
        ({"resources:VGPU": "2"}, {"VGPU": 2}),
        ({ALIAS: "a:2", "resources:VGPU": "1"}, {"a": 2, "VGPU": 1}),
        ({"resources:CUSTOM_X": "2"}, {}),  # perhaps no vGPU
        ({"resources:CUSTOM_X": "2", SETS: "resources:CUSTOM_X"}, {"CUSTOM_X": 2}),
        ({ALIAS: "a:2", "resources:CUSTOM_X": "2", SETS: f"{ALIAS},resources:CUSTOM_X"}, {"a": 2}),
        ({"resources:CUSTOM_GPU_QUOTA_A": "2", SETS: "resources:CUSTOM_GPU_QUOTA_A"}, {}),
        ({ALIAS: None, SETS: None}, {}),
    ],
)
def test_gpus_without_a_spec(specs: dict[str, str | None], expected: dict[str, int]) -> None:
    assert gpus_without_spec(specs) == expected
