"""The Device Serial Number in extended configuration space, however broken that space is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpustack.hosts.facts.collector.resources import serial_number
from support.sysroot import config_space


def reader(space: bytes) -> tuple[list[tuple[int, int]], object]:
    accesses: list[tuple[int, int]] = []

    def read(offset: int, length: int) -> bytes:
        accesses.append((offset, length))
        return space[offset : offset + length]

    return accesses, read


def test_the_number_is_written_as_lspci_writes_it() -> None:
    accesses, read = reader(config_space(bytes.fromhex("f04a2cffff2db048")))
    assert serial_number(read) == "48-b0-2d-ff-ff-2c-4a-f0"
    assert accesses == [(0x100, 4), (0x150, 4), (0x154, 8)]


def test_an_erased_number_is_none() -> None:
    for number in (bytes(8), b"\xff" * 8):
        assert serial_number(reader(config_space(number))[1]) is None


def test_a_list_that_loops_or_runs_away_ends() -> None:
    loop = bytearray(4096)
    loop[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    assert serial_number(reader(bytes(loop))[1]) is None
    last = bytearray(4096)
    last[0x100:0x104] = (0x0001 | 0xFFC << 20).to_bytes(4, "little")
    last[0xFFC:] = (0x0003).to_bytes(4, "little")
    assert serial_number(reader(bytes(last))[1]) is None


def test_only_the_first_bytes_without_privilege() -> None:
    assert serial_number(reader(config_space(bytes(range(8)))[:64])[1]) is None


@given(st.binary(max_size=4096))
def test_any_bytes_give_a_number_or_none(extended: bytes) -> None:
    accesses, read = reader(bytes(0x100) + extended[: 4096 - 0x100])
    number = serial_number(read)
    assert number is None or len(number) == 23
    assert len(accesses) == len(set(accesses))
    assert all(0x100 <= offset < 4096 for offset, _ in accesses)
