"""The cloud's flavor counts, not the spec's."""

from __future__ import annotations

from dataclasses import replace

from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.operate.capacity.flavors import demands
from gpustack.spec.load import parse_spec

SPEC = parse_spec('version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {g: [k4200]}\n', "s")
SIZES = Sizes(vcpus=2, ram=1024, disk=10)
SPECS = {"pci_passthrough:alias": "k4200:1"}
WANTED = WantedFlavor(name="g1", sizes=SIZES, gpus={"k4200": 1}, extra_specs=SPECS)
PRESENT = Flavor(id="1", name="g1", sizes=SIZES, extra_specs={**SPECS, "gpustack:sets": "pci_passthrough:alias"})


def test_equal_flavors_have_no_finding() -> None:
    found, findings = demands(SPEC, [WANTED], {"g1": PRESENT})
    assert [(need.gpus, need.in_cloud) for need in found] == [({"k4200": 1}, True)]
    assert not findings


def test_a_difference_is_a_finding_and_the_cloud_counts() -> None:
    specs = {"pci_passthrough:alias": "k4200:8", "trait:CUSTOM_A": "required"}
    changed = replace(PRESENT, sizes=replace(SIZES, vcpus=4), extra_specs=specs)
    (need,), (finding,) = demands(SPEC, [WANTED], {"g1": changed})
    assert (need.count, need.vcpus, need.required) == (8, 4, {"CUSTOM_A"})
    assert finding.code == "GPU570"
    for text in ("vcpus is 4, the spec has 2", "trait:CUSTOM_A is required", "k4200:8, the spec has k4200:1"):
        assert text in finding.message


def test_a_flavor_of_the_spec_only_is_marked() -> None:
    (need,), (finding,) = demands(SPEC, [WANTED], {})
    assert (need.count, need.in_cloud, finding.code) == (1, False, "GPU571")
    assert not demands(SPEC, [WANTED], None)[1]


def test_an_alias_that_the_spec_lacks_is_unknown() -> None:
    other = replace(PRESENT, extra_specs={"pci_passthrough:alias": "h100:1"})
    (need,), _ = demands(SPEC, [WANTED], {"g1": other})
    assert need.unknown == ("h100",)
