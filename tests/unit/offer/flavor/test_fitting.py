"""Memory pages of flavors on hosts whose huge pages are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.cloud.flavors import Sizes
from gpustack.hosts.facts.store import parse_host
from gpustack.offer.flavor.fitting import Firmware, memory_pages, placed
from gpustack.offer.flavor.shares import HostShare, host_shares
from gpustack.spec.load import parse_spec

SPEC = parse_spec(
    'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu*": [k4200]}\n', "spec"
)
GIB, MIB2 = 1 << 20, 2048


def share(name: str, *nodes: Mapping[int, int] | None, memory: int = 64 * 1024) -> HostShare:
    """A host with 64 GiB of RAM and these huge pages on its NUMA nodes; None: a snapshot without them."""
    raw: dict[str, Any] = {
        "version": 1,
        "hostname": name,
        "memory_mib": memory,
        "numa_nodes": [
            {
                "node": number,
                "huge_pages": None if pages is None else [{"size_kib": k, "total": n} for k, n in pages.items()],
            }
            for number, pages in enumerate(nodes)
        ],
        "pci": [{"address": "0000:80:00.0", "vendor": "10de", "product": "11b4", "class": "030000", "iommu_group": 1}],
    }
    (of_host,) = host_shares(SPEC, [parse_host(raw, name)])
    return of_host


@pytest.mark.parametrize(
    ("size", "nodes", "hosts", "expected"),
    [
        ("large", 1, [share("gpu1", {GIB: 16})], ""),
        ("large", 1, [share("gpu1", {GIB: 0, MIB2: 0})], "GPU807 : none"),
        ("1GB", 1, [share("gpu1", {GIB: 0, MIB2: 8192})], "GPU807 : 2 MiB"),
        ("1GB", 1, [share("gpu1", {MIB2: 8192}), share("gpu2", {GIB: 16})], ""),
        ("1GB", 1, [share("gpu1", {GIB: 8}, {GIB: 12})], "GPU808 gpu1, has 8 x 1 GiB, 12 x 1 GiB"),
        ("1GB", 2, [share("gpu1", {GIB: 8}, {GIB: 12})], ""),
        ("1GB", 1, [share("gpu1", {MIB2: 8192}), share("gpu2", None)], ""),
        ("1GB", 1, [share("gpu1", None)], ""),
        ("1GB", 1, [], ""),
        ("1GB", 1, [share("gpu1", {64: 9, 1024: 9, 32768: 9})], "GPU807 : 64 KiB and 1 MiB and 32 MiB"),
        ("any", 1, [share("gpu1", {MIB2: 0})], ""),
        (None, 1, [share("gpu1", {GIB: 48})], ""),
        (None, 1, [share("gpu1", {GIB: 26}, {GIB: 26})], "GPU809 gpu1 has 12 GiB"),
        ("small", 1, [share("gpu0", {GIB: 0}), share("gpu1", {GIB: 60})], "GPU809 gpu1 has 4 GiB"),
        (None, 1, [share("gpu1", {GIB: 65})], "GPU809 gpu1 has 0 MiB"),
        (None, 1, [share("gpu1", None)], ""),
    ],
)
def test_pages_that_hosts_lack_are_reported(
    size: str | None, nodes: int, hosts: list[HostShare], expected: str
) -> None:
    sizes = Sizes(vcpus=4, ram=16 * 1024, disk=10)
    found = [f"{f.code} {f.message}" for f in memory_pages("f", size, sizes, nodes, hosts)]
    code, _, words = expected.partition(" ")
    assert [text.startswith(code) and words in text for text in found] == [True] * bool(expected)


def test_pages_on_a_node_without_cpus_hold_no_instance() -> None:
    pages = [{GIB: 8}, {GIB: 64}]
    (facts,) = (share("gpu1", *pages),)
    nodes = {0: replace(facts.nodes[0], cpus=8), 1: replace(facts.nodes[1], cpus=0)}
    found = memory_pages("f", "1GB", Sizes(vcpus=4, ram=16 * 1024, disk=10), 1, [replace(facts, nodes=nodes)])
    assert [entry.code for entry in found] == ["GPU808"]


def test_pages_whose_number_is_unreadable_are_unknown() -> None:
    assert share("gpu1", {GIB: None}).huge_pages is None  # type: ignore[dict-item]


MEASURED = yaml.safe_load(Path(__file__).with_name("address-space.yaml").read_text())
MIB, BYTES_PER_GIB = 1 << 20, 1 << 30


def name(row: dict[str, Any]) -> str:
    gpus = f"{len(row['gpus'])}x{'+'.join(map(str, row['gpus'][0]))}"
    return f"{row['firmware']}-{row['bits']}-{gpus}-{row.get('vendor', '')}-{row.get('ram', '')}-{row.get('ports', '')}"


@pytest.mark.parametrize("row", MEASURED, ids=name)
def test_gpus_are_counted_as_measured(row: dict[str, Any]) -> None:
    counted = placed(
        Firmware(row["firmware"]),
        [[size * MIB for size in gpu] for gpu in row["gpus"]],
        ram=int(row.get("ram", 0.5) * BYTES_PER_GIB),
        bits=row["bits"],
        vendor=row.get("vendor", "AuthenticAMD"),
        other_ports=row.get("ports", 0),
    )
    assert counted == row["placed"]


@pytest.mark.parametrize(
    ("bits", "ram", "gpus", "expected"),
    [
        (38, 1, [32], 1),  # the eighth is no larger than the window that OVMF has anyway
        (39, 414, [32, 16], 2),
        (39, 415, [32, 16], 1),  # RAM and the eighth fill the address space
    ],
)
def test_ovmf_takes_an_eighth_only_if_it_is_larger_and_free(
    bits: int, ram: int, gpus: list[int], expected: int
) -> None:
    """``PlatformDynamicMmioWindow`` of edk2."""
    bars = [(size * BYTES_PER_GIB,) for size in gpus]
    assert placed(Firmware.OVMF, bars, ram=ram * BYTES_PER_GIB, bits=bits, other_ports=0) == expected


@pytest.mark.parametrize("firmware", Firmware)
def test_gpus_without_large_bars_always_fit(firmware: Firmware) -> None:
    assert placed(firmware, [(), (256 * MIB,)], ram=900 * BYTES_PER_GIB) == 2
    assert placed(firmware, [], ram=BYTES_PER_GIB) == 0


def test_a_smaller_gpu_fits_beside_one_without_room() -> None:
    assert placed(Firmware.OVMF, [(256 * BYTES_PER_GIB,), (16 * BYTES_PER_GIB,)], ram=BYTES_PER_GIB) == 1


def test_the_hosts_address_width_has_room_with_either_firmware() -> None:
    gpus = [(128 * BYTES_PER_GIB, 32 * MIB)] * 8
    assert {firmware: placed(firmware, gpus, ram=2048 * BYTES_PER_GIB, bits=46) for firmware in Firmware} == {
        Firmware.OVMF: 8,
        Firmware.SEABIOS: 8,
    }
