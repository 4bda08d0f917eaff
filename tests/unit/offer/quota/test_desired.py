"""The limits of a spec by the class that Nova counts."""

from __future__ import annotations

import pytest

from gpustack.offer.quota.desired import WantedLimits, class_of, wanted
from gpustack.spec.load import parse_spec

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: k-4200}
  own: {match: {vendor: "10de", product: "15f8"}, resource_class: CUSTOM_OWN}
hosts: {gpu1: [k4200, own]}
nova: {release: "2026.2", placement: schedule}
"""


@pytest.mark.parametrize(
    ("count", "classes"),
    [
        ("", ["CUSTOM_GPU_QUOTA_K_4200", "CUSTOM_GPU_QUOTA_OWN"]),
        ("count: marker, ", ["CUSTOM_GPU_QUOTA_K_4200", "CUSTOM_GPU_QUOTA_OWN"]),
        ("count: device, ", ["CUSTOM_PCI_10DE_11B4", "CUSTOM_OWN"]),
    ],
)
def test_limits_are_for_markers_or_for_devices(count: str, classes: list[str]) -> None:
    quotas = f"quotas: {{{count}default: {{k4200: 1, own: 0}}, projects: {{p: {{own: 3}}}}}}\n"
    first, second = classes
    spec = parse_spec(SPEC + quotas, "spec")
    assert wanted(spec) == WantedLimits(
        models={first: "k4200", second: "own"}, defaults={first: 1, second: 0}, projects={"p": {second: 3}}
    )


def test_without_quotas_there_are_no_limits_but_markers_have_a_name() -> None:
    spec = parse_spec(SPEC, "spec")
    assert wanted(spec) == WantedLimits()
    assert class_of(spec, "k4200") == "CUSTOM_GPU_QUOTA_K_4200"
