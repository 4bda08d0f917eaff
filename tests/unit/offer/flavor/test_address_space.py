"""The laws of both firmwares, against measurements (tests/lab/test_bars.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.offer.flavor.address_space import Firmware, placed

MEASURED = yaml.safe_load(Path(__file__).with_name("address-space.yaml").read_text())
MIB, GIB = 1 << 20, 1 << 30


def name(row: dict[str, Any]) -> str:
    gpus = f"{len(row['gpus'])}x{'+'.join(map(str, row['gpus'][0]))}"
    return f"{row['firmware']}-{row['bits']}-{gpus}-{row.get('vendor', '')}-{row.get('ram', '')}-{row.get('ports', '')}"


@pytest.mark.parametrize("row", MEASURED, ids=name)
def test_gpus_are_counted_as_measured(row: dict[str, Any]) -> None:
    counted = placed(
        Firmware(row["firmware"]),
        [[size * MIB for size in gpu] for gpu in row["gpus"]],
        ram=int(row.get("ram", 0.5) * GIB),
        bits=row["bits"],
        vendor=row.get("vendor", "AuthenticAMD"),
        other_ports=row.get("ports", 0),
    )
    assert counted == row["placed"]


@pytest.mark.parametrize("firmware", Firmware)
def test_gpus_without_large_bars_always_fit(firmware: Firmware) -> None:
    assert placed(firmware, [(), (256 * MIB,)], ram=900 * GIB) == 2
    assert placed(firmware, [], ram=GIB) == 0


def test_a_smaller_gpu_fits_beside_one_without_room() -> None:
    assert placed(Firmware.OVMF, [(256 * GIB,), (16 * GIB,)], ram=GIB) == 1


def test_the_hosts_address_width_has_room_with_either_firmware() -> None:
    gpus = [(128 * GIB, 32 * MIB)] * 8
    assert {firmware: placed(firmware, gpus, ram=2048 * GIB, bits=46) for firmware in Firmware} == {
        Firmware.OVMF: 8,
        Firmware.SEABIOS: 8,
    }
