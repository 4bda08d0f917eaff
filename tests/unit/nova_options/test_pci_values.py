"""Names of resource classes and traits, as Nova makes them of configuration."""

from __future__ import annotations

import pytest

from gpustack.nova_options.pci_values import reported_class, resource_class, traits


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu", "CUSTOM_GPU"),
        ("CUSTOM_GPU", "CUSTOM_GPU"),
        ("pgpu", "PGPU"),
        ("my gpu-2", "CUSTOM_MY_GPU_2"),
        ("custom_a-b", "CUSTOM_A-B"),  # Nova leaves names with the prefix alone, and Placement refuses this one
        ("", None),
        (None, None),
    ],
)
def test_names_are_normalised_as_nova_does(name, expected):
    assert resource_class(name) == expected


def test_a_class_without_a_name_is_made_of_the_ids():
    assert reported_class(None, "10de", "1db4") == "CUSTOM_PCI_10DE_1DB4"
    assert reported_class("gpu", "*", "1db4") == "CUSTOM_GPU"
    assert reported_class(None, "10de", "*") is None


@pytest.mark.parametrize(
    ("written", "normalised"),
    [
        ("fast,HW_GPU_API_VULKAN", {"CUSTOM_FAST", "HW_GPU_API_VULKAN"}),
        ("A, B", {"CUSTOM_A", "CUSTOM__B"}),
        ("custom_a,gpu-1", {"CUSTOM_A", "CUSTOM_GPU_1"}),
        (None, set()),
    ],
)
def test_traits_are_those_that_nova_reports(written, normalised):
    assert traits({"traits": written}) == normalised
