"""The markers of hosts in Placement against their GPUs."""

from __future__ import annotations

import pytest

from gpustack.offer.quota.desired import wanted
from gpustack.offer.quota.hosts import differing, gpus_of, sums
from gpustack.spec.load import parse_spec
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
