"""Nova's rules for mediated devices, release by release; tests/nova/parsers compares them with Nova's own code."""

from __future__ import annotations

import pytest

from gpustack.nova_options.mediated import TypeSection, card_types, settings, takes_several
from gpustack.nova_options.releases import release

FIRST, SECOND, OTHER = "0000:84:00.0", "0000:85:00.0", "0000:86:00.0"
A = TypeSection(type="nvidia-35", addresses=(FIRST,), resource_class="CUSTOM_A", limit=4)
B = TypeSection(type="nvidia-36", addresses=(SECOND,))
BARE = TypeSection(type="nvidia-37")


@pytest.mark.parametrize(
    ("name", "sections", "first", "other"),
    [
        ("2023.2", [A], ("nvidia-35", "VGPU"), ("nvidia-35", "VGPU")),
        ("2024.1", [A], ("nvidia-35", "CUSTOM_A"), (None, "VGPU")),
        ("2023.1", [A, B], ("nvidia-35", "CUSTOM_A"), (None, "VGPU")),
        ("2023.1", [A, BARE], ("nvidia-35", "VGPU"), ("nvidia-35", "VGPU")),
        ("2023.1", [BARE, A], ("nvidia-37", "VGPU"), ("nvidia-37", "VGPU")),
        ("2026.2", [BARE, A], ("nvidia-35", "CUSTOM_A"), ("nvidia-37", "VGPU")),
        ("Ussuri", [A, B], ("nvidia-35", "VGPU"), ("nvidia-35", "VGPU")),
    ],
)
def test_the_type_and_class_of_a_card(name, sections, first, other):
    read = card_types(sections, release(name))
    assert (read.of(FIRST), read.of(OTHER)) == (first, other)


@pytest.mark.parametrize("name", ["Victoria", "2023.1", "2026.2"])
def test_an_address_of_two_types_is_refused(name):
    twice = TypeSection(type="nvidia-36", addresses=(FIRST,))
    problems = card_types([A, twice], release(name)).problems
    assert [(p.type, p.at, p.refused) for p in problems] == [("nvidia-36", "device_addresses", True)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Wallaby", {"devices": {"enabled_vgpu_types": "nvidia-35"}, "vgpu_nvidia-35": {"device_addresses": FIRST}}),
        (
            "2023.2",
            {
                "devices": {"enabled_mdev_types": "nvidia-35"},
                "mdev_nvidia-35": {"device_addresses": FIRST, "mdev_class": "CUSTOM_A"},
            },
        ),
        (
            "2024.1",
            {
                "devices": {"enabled_mdev_types": "nvidia-35"},
                "mdev_nvidia-35": {"device_addresses": FIRST, "mdev_class": "CUSTOM_A", "max_instances": "4"},
            },
        ),
        ("Queens", {"devices": {"enabled_vgpu_types": "nvidia-35"}}),
    ],
)
def test_settings_have_the_names_of_the_release(name, expected):
    assert settings([A], release(name)) == expected


def test_several_providers_came_with_a_release():
    assert [takes_several(release(name)) for name in ("2025.2", "2026.1")] == [False, True]


@pytest.mark.parametrize(
    ("name", "address", "refused"),
    [
        ("2026.2", "mtty_mtty", False),  # Nova looks for it below /sys/devices/virtual
        ("2026.2", "zz", True),
        ("2026.1", "mtty_mtty", True),
        ("2026.2", "pci_0000_84_00_0", True),  # libvirt's name of a card, which no directory there has
        ("2026.2", "0000:84:00", True),
    ],
)
def test_parents_without_pci_came_with_a_release(name, address, refused):
    problems = card_types([TypeSection(type="mtty-2", addresses=(address,))], release(name)).problems
    assert [problem.refused for problem in problems] == [True] * refused
