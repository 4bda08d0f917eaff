"""The entry of a GPU, by the names that Nova and hosts have for it."""

from __future__ import annotations

import pytest

from gpustack.spec.model import OutOfService
from gpustack.spec.out_of_service import by_machine, entry_of

SERIAL = "12-34-56-78-9a-bc-de-00"
ENTRIES = (
    OutOfService(host="gpu1.example.org", address="81:00.0", reason="no reset"),
    OutOfService(host="gpu2", serial=SERIAL.upper(), reason="fatal AER errors"),
)


@pytest.mark.parametrize(
    ("hosts", "address", "serial", "reason"),
    [
        ({"gpu1"}, "0000:81:00.0", None, "no reset"),
        ({"GPU1.example.org"}, "0000:81:00.0", None, "no reset"),
        ({"gpu1.other.org"}, "0000:81:00.0", None, None),
        ({"gpu1"}, "0000:82:00.0", None, None),
        ({"gpu2.example.org"}, "0000:81:00.0", SERIAL, "fatal AER errors"),
        ({"gpu2"}, "0000:81:00.0", None, None),
        ({"gpu1"}, "0000:82:00.0", SERIAL, None),
    ],
)
def test_the_entry_of_a_gpu(hosts: set[str], address: str, serial: str | None, reason: str | None) -> None:
    entry = entry_of(by_machine(ENTRIES), hosts, address, serial)
    assert (entry.reason if entry else None) == reason
