"""The GPUs among functions: one for each slot, without virtual displays."""

from __future__ import annotations

import pytest

from gpustack.offer.guest.inside.devices import Device, gpus

CONSOLES = [["1234", "1111"], ["1af4", None]]


def function(address: str, ids: str = "10de:20b5", pci_class: str = "030200") -> Device:
    vendor, product = ids.split(":")
    return {"address": address, "vendor": vendor, "product": product, "class": pci_class}


@pytest.mark.parametrize(
    ("functions", "chosen"),
    [
        ([function("0000:01:00.0")], ["0000:01:00.0"]),
        ([function("0000:02:00.0"), function("0000:01:00.0")], ["0000:01:00.0", "0000:02:00.0"]),
        ([function("0000:01:00.0"), function("0000:01:00.1")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", pci_class="040300"), function("0000:01:00.1")], ["0000:01:00.1"]),
        ([function("0000:01:00.0", pci_class="120000")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", pci_class="038000")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", pci_class="020000")], []),
        ([function("0000:01:00.0", "1234:1111")], []),
        ([function("0000:01:00.0", "1234:2222")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", "1af4:1050")], []),
        ([function("0000:01:00.0", "1111:1234")], ["0000:01:00.0"]),
        ([], []),
    ],
)
def test_the_first_gpu_of_each_slot_counts(functions: list[Device], chosen: list[str]) -> None:
    assert [gpu["address"] for gpu in gpus(functions, CONSOLES)] == chosen
