"""Flavors named on a command line."""

from __future__ import annotations

import pytest

from gpustack.base.errors import FlavorError
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.flavor.manual import find_flavor

SIZES = Sizes(vcpus=8, ram=32768, disk=40)
FLAVORS = [PresentFlavor(id="gpu", name="small", sizes=SIZES), PresentFlavor(id="2", name="gpu", sizes=SIZES)]


@pytest.mark.parametrize(("name", "flavor_id"), [("small", "gpu"), ("2", "2")])
def test_flavors_are_found_by_name_or_id(name: str, flavor_id: str) -> None:
    assert find_flavor(FLAVORS, name).id == flavor_id


def test_a_name_that_is_the_id_of_another_flavor_is_refused() -> None:
    with pytest.raises(FlavorError, match=r"small \(id gpu\) and gpu \(id 2\)"):
        find_flavor(FLAVORS, "gpu")


def test_a_flavor_whose_name_is_its_id_is_found() -> None:
    assert find_flavor([PresentFlavor(id="g1", name="g1", sizes=SIZES)], "g1").id == "g1"
