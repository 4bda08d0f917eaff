"""Marker classes: names, units and extra specs of the aliases with a limit."""

import pytest

from gpustack.spec.load import parse_spec
from gpustack.spec.markers import extra_specs, marker_of, markers, units
from gpustack.spec.model import Spec


def spec(quotas: str = "") -> Spec:
    text = 'version: 1\nmodels:\n  k4200: {match: {vendor: "10de", product: "11b4"}, alias: k-4200}\n'
    text += '  p100: {match: {vendor: "10de", product: "15f8"}}\nhosts: {gpu01: [k4200, p100]}\n'
    return parse_spec(text + 'nova: {release: "2025.2", placement: schedule}\n' + quotas, "test")


@pytest.mark.parametrize(("alias", "name"), [("k-4200", "K_4200"), ("a..b", "A_B"), ("é1", "_1")])
def test_a_marker_has_the_letters_of_a_resource_class(alias: str, name: str) -> None:
    assert marker_of(alias) == f"CUSTOM_GPU_QUOTA_{name}"


def test_only_aliases_with_a_limit_have_markers() -> None:
    limited = spec("quotas: {count: marker, default: {k4200: 2}}\n")
    assert markers(limited) == {"k-4200": "CUSTOM_GPU_QUOTA_K_4200"}
    gpus = {"k-4200": 2, "p100": 1}
    assert units(limited, gpus) == {"CUSTOM_GPU_QUOTA_K_4200": 2}
    assert extra_specs(limited, gpus) == {"resources:CUSTOM_GPU_QUOTA_K_4200": "2"}
    assert units(limited, {"k-4200": 0}) == {}


def test_devices_are_counted_without_markers() -> None:
    assert markers(spec()) == {}
    assert markers(spec("quotas: {count: device, default: {k4200: 2}}\n")) == {}
