"""PCI addresses: the kernel's notation, that of lspci, and what Nova can store."""

import pytest

from gpustack.pci.address import Address


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0000:88:00.0", "0000:88:00.0"),
        ("88:1f.7", "0000:88:1f.7"),
        ("10000:E1:00.1", "10000:e1:00.1"),
    ],
)
def test_addresses_are_read_and_shown(text: str, shown: str) -> None:
    address = Address.parse(text)
    assert str(address) == shown
    assert address.slot == shown[:-2]


@pytest.mark.parametrize("text", ["", "88:20.0", "88:00.8", "000:88:00.0", "0000:88:00.0\n", "0000:88:00.\u0660", "x"])
def test_other_texts_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected domain:bus:device\.function"):
        Address.parse(text)


def test_addresses_sort_by_their_numbers() -> None:
    texts = ["10000:01:00.0", "0000:0a:00.0", "0000:09:10.1", "0000:09:10.0", "0000:09:02.0"]
    assert [str(address) for address in sorted(map(Address.parse, texts))] == texts[::-1]


def test_nova_stores_domains_of_four_digits() -> None:
    assert Address.parse("ffff:00:00.0").fits_nova
    assert not Address.parse("10000:00:00.0").fits_nova
