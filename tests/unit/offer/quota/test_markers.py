"""The markers of hosts in Placement, and those of flavors, against their GPUs."""

from __future__ import annotations

import pytest

from gpustack.cloud.flavors import Sizes
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.desired import wanted as wanted_flavors
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.quota.desired import wanted
from gpustack.offer.quota.markers import differing, gpus_of, sums, uncounted
from gpustack.spec.load import parse_spec
from gpustack.spec.markers import markers
from support.fleet_answers import facts

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"gpu*": [k4200]}
nova: {release: "2026.2", placement: schedule}
quotas: {count: COUNT, default: {k4200: 1}}
"""
HOSTS = [facts("gpu1", 0x81, 0x82), facts("gpu2", 0x81), facts("other", 0x81)]
MARKER = "CUSTOM_GPU_QUOTA_K4200"


@pytest.mark.parametrize(("count", "name"), [("marker", MARKER), ("device", "CUSTOM_PCI_10DE_11B4")])
def test_gpus_of_the_spec_are_counted(count: str, name: str) -> None:
    spec = parse_spec(SPEC.replace("COUNT", count), "spec")
    gpus = gpus_of(spec, HOSTS)
    assert gpus == {"gpu1": {name: 2}, "gpu2": {name: 1}, "other": {}}
    assert sums(gpus, wanted(spec)) == {name: 3}


def test_hosts_with_other_totals_are_reported() -> None:
    spec = parse_spec(SPEC.replace("COUNT", "marker"), "spec")
    placement = {"gpu1": {MARKER: 2, "VCPU": 8}, "other": {MARKER: 1}}
    found = [(f.code, f.place) for f in differing(spec, gpus_of(spec, HOSTS), placement)]
    assert found == [("GPU746", "gpu2"), ("GPU746", "other")]


def test_devices_have_no_markers_to_compare() -> None:
    spec = parse_spec(SPEC.replace("COUNT", "device"), "spec")
    assert list(differing(spec, gpus_of(spec, HOSTS), {})) == []


OF_FLAVORS = """\
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
    flavors = wanted_flavors(parse_spec(OF_FLAVORS, "spec"), release=release("2025.2")).flavors
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
    assert [found.code for found in uncounted([flavor], markers(parse_spec(OF_FLAVORS, "spec")))] == codes


def test_without_quotas_there_are_no_markers() -> None:
    spec = parse_spec(OF_FLAVORS.partition("quotas")[0], "spec")
    assert markers(spec) == {}
