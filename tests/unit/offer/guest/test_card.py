"""The requirement of one card, as `gpustack explain` and the catalogue's page show it."""

from __future__ import annotations

import pytest

from gpustack.offer.guest.card import driver_text, fields
from gpustack.pci import catalogue
from gpustack.pci.catalogue import Card


def card(text: str) -> Card:
    found = catalogue.lookup(*text.split(":"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ("10de:11b4", "R418 to R470, proprietary kernel modules"),
        ("10de:233b", "R565 or later, open or proprietary kernel modules"),
        ("10de:0ff2", "R470 or earlier, proprietary kernel modules"),
        ("1002:74a1", "amdgpu"),
        ("8086:56a0", "i915, Linux 6.2 or later"),
        ("8086:4907", "unknown"),
    ],
)
def test_the_driver_of_a_card(ids: str, text: str) -> None:
    assert driver_text(card(ids)) == text


def test_known_facts_have_a_field_and_unknown_ones_are_named() -> None:
    assert dict(fields(card("10de:20f1"))) == {
        "Guest driver": "R450 or later, open or proprietary kernel modules",
        "Compute target": "8.0",
        "MIG": "up to 7 instances",
    }
    assert dict(fields(card("10de:0ff2")))["Unknown"] == "first driver branch"
    assert dict(fields(card("1002:74a1")))["Virtual functions"] == "1002:74b5"
    assert dict(fields(card("8086:56c0")))["Kernel argument"] == "i915.force_probe=56c0"
