"""Flavors that request other markers than GPUs."""

from __future__ import annotations

import pytest

from gpustack.nova_options.releases import release
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.flavor.flavors import PresentFlavor, Sizes
from gpustack.offer.quota.flavors import uncounted
from gpustack.spec.load import parse_spec
from gpustack.spec.markers import markers

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: k-4200}
  p100: {match: {vendor: "10de", product: "15f8"}}
hosts: {gpu1: [k4200, p100]}
nova: {release: "2025.2"}
flavors:
  "g{count}": {model: k4200, count: [1, 2], vcpus: 1, ram: 64MiB, disk: 0}
  both: {gpus: {k4200: 2, p100: 1}, vcpus: 1, ram: 64MiB, disk: 0}
quotas: {default: {k4200: 0}}
"""
KEY = "resources:CUSTOM_GPU_QUOTA_K_4200"
SIZES = Sizes(vcpus=1, ram=64, disk=0)


def test_flavors_of_the_spec_request_their_markers() -> None:
    flavors = wanted(parse_spec(SPEC, "spec"), release=release("2025.2")).flavors
    assert {flavor.name: flavor.extra_specs.get(KEY) for flavor in flavors} == {"g1": "1", "g2": "2", "both": "2"}
    assert not [key for flavor in flavors for key in flavor.extra_specs if "P100" in key]


@pytest.mark.parametrize(
    ("extra_specs", "codes"),
    [
        ({"pci_passthrough:alias": "k-4200:2", KEY: "2"}, []),
        ({"pci_passthrough:alias": "k-4200:2"}, ["GPU744"]),
        ({"pci_passthrough:alias": "k-4200:2,p100:1", KEY: "3"}, ["GPU745"]),
        ({KEY: "1"}, ["GPU745"]),
        ({"pci_passthrough:alias": "p100:1"}, []),
        ({}, []),
    ],
)
def test_flavors_of_the_cloud(extra_specs: dict[str, str], codes: list[str]) -> None:
    flavor = PresentFlavor(id="1", name="g", sizes=SIZES, extra_specs=extra_specs)
    assert [found.code for found in uncounted([flavor], markers(parse_spec(SPEC, "spec")))] == codes


def test_without_quotas_there_are_no_markers() -> None:
    spec = parse_spec(SPEC.partition("quotas")[0], "spec")
    assert markers(spec) == {}
