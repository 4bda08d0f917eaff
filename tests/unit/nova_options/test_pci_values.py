"""Names of resource classes, as Nova makes them of configuration."""

from __future__ import annotations

import pytest

from gpustack.nova_options.pci_values import reported_class, resource_class


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu", "CUSTOM_GPU"),
        ("CUSTOM_GPU", "CUSTOM_GPU"),
        ("pgpu", "PGPU"),
        ("my gpu-2", "CUSTOM_MY_GPU_2"),
        ("custom_a-b", "CUSTOM_CUSTOM_A_B"),  # no custom class as it is, so Nova prefixes it once more
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
