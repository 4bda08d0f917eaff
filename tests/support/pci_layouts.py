"""PCI trees of machines, as facts and as a sysfs root. The positions are those of the named machines; sizes and links
are made up unless a test is about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from support.host_samples import Raw, function, raw_host
from support.sysroot import SysRoot

GEN3 = {"speed": "8.0 GT/s PCIe", "width": 16, "max_speed": "8.0 GT/s PCIe", "max_width": 16}


@dataclass(frozen=True)
class Place:
    """A function with the functions below it; what it does not state comes from the function above."""

    address: str
    pci_class: str
    ids: str
    below: tuple[Place, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)


def bridge(address: str, *below: Place, ids: str = "10b5:8764", **fields: Any) -> Place:
    """A port or bridge."""
    return Place(address, "060400", ids, below, fields)


def gpu(address: str, ids: str = "10de:1db5", **fields: Any) -> Place:
    """A GPU: by default a Tesla V100."""
    return Place(address, "030200", ids, (), fields)


def nic(address: str, ids: str = "15b3:1013", **fields: Any) -> Place:
    """A NIC: by default for InfiniBand."""
    return Place(address, "020700", ids, (), fields)


def other(address: str, pci_class: str = "088000", ids: str = "8086:2000", **fields: Any) -> Place:
    """Any other function."""
    return Place(address, pci_class, ids, (), fields)


def functions(*places: Place, **above: Any) -> Iterator[Raw]:
    """The facts of the functions.

    :param above: values of all of them.
    """
    for place in places:
        fields: Raw = {"link": GEN3, "driver": None, "iommu_group": None, **above, **place.fields}
        yield function(place.address, ids=place.ids, pci_class=place.pci_class, **fields)
        inherited: Raw = {key: fields[key] for key in ("numa_node", "link", "root_bus", "root_parent") if key in fields}
        yield from functions(*place.below, **{**above, **inherited, "parent": place.address})


def numa_nodes(count: int) -> list[Raw]:
    return [{"node": n, "cpus": f"{8 * n}-{8 * n + 7}", "memory_mib": 65536} for n in range(count)]


def machine(*places: Place, nodes: int = 2, **more: Any) -> Host:
    """A host with these functions."""
    return parse_host(raw_host(*functions(*places), numa_nodes=numa_nodes(nodes), **more), "test")


def dgx1() -> tuple[Place, ...]:
    """DGX-1V: for each processor one root bus with two PLX switches, each with two GPUs and a NIC.

    Addresses: https://github.com/NVIDIA/nccl/issues/671.
    """
    return tuple(
        bridge(
            f"0000:{root}:{port}.0",
            bridge(f"0000:{up}:00.0", *(bridge(f"0000:{down}:{slot}.0", device) for slot, device in devices.items())),
            ids="8086:6f04",
            numa_node=node,
        )
        for node, root, port, up, down, devices in (
            (
                0,
                "00",
                "02",
                "03",
                "04",
                {"08": nic("0000:05:00.0"), "10": gpu("0000:06:00.0"), "14": gpu("0000:07:00.0")},
            ),
            (
                0,
                "00",
                "03",
                "08",
                "09",
                {"08": gpu("0000:0a:00.0"), "10": gpu("0000:0b:00.0"), "14": nic("0000:0c:00.0")},
            ),
            (
                1,
                "80",
                "02",
                "82",
                "83",
                {"08": nic("0000:84:00.0"), "10": gpu("0000:85:00.0"), "14": gpu("0000:86:00.0")},
            ),
            (
                1,
                "80",
                "03",
                "87",
                "88",
                {"08": gpu("0000:89:00.0"), "10": gpu("0000:8a:00.0"), "14": nic("0000:8b:00.0")},
            ),
        )
    )


def hgx() -> tuple[Place, ...]:
    """HGX A100: switches below a switch, the NIC at the upper one. https://github.com/NVIDIA/nccl-tests/issues/100."""
    card = bridge("0000:0c:00.0", bridge("0000:0d:00.0", gpu("0000:0e:00.0", "10de:20b2")), ids="1000:c010")
    peer = bridge("0000:0f:00.0", bridge("0000:10:00.0", gpu("0000:11:00.0", "10de:20b2")), ids="1000:c010")
    lower = bridge("0000:06:00.0", bridge("0000:07:00.0", card), bridge("0000:07:04.0", peer), ids="1000:c010")
    upper = bridge("0000:01:00.0", bridge("0000:02:00.0", nic("0000:05:00.0")), bridge("0000:02:04.0", lower))
    second = bridge("0000:20:01.1", bridge("0000:21:00.0", bridge("0000:22:00.0", nic("0000:23:00.0"))), numa_node=0)
    return (bridge("0000:00:01.1", upper, ids="1022:1483", numa_node=0), second)


def vmd() -> tuple[Place, ...]:
    """Intel VMD hides root ports of bus 0000:80 in a domain of its own."""
    hidden: Raw = {"numa_node": 1, "root_bus": "10000:00", "root_parent": "0000:80:05.5"}
    return (
        bridge("0000:80:02.0", gpu("0000:81:00.0"), numa_node=1),
        other("0000:80:05.5", "010400", "8086:28c0", numa_node=1, link=None),
        bridge("10000:00:02.0", gpu("10000:01:00.0"), **hidden),
        bridge("10000:00:03.0", nic("10000:02:00.0"), **hidden),
    )


def thunderbolt() -> tuple[Place, ...]:
    """A GPU in the second enclosure of a chain, the NIC in the first one."""
    narrow = {"speed": "2.5 GT/s PCIe", "width": 4, "max_speed": "2.5 GT/s PCIe", "max_width": 4}
    card = gpu("0000:09:00.0", link={**narrow, "max_speed": "16.0 GT/s PCIe", "max_width": 16})
    enclosure = bridge("0000:07:00.0", bridge("0000:08:01.0", card), bridge("0000:08:04.0"), ids="8086:15da")
    first = bridge(
        "0000:04:00.0",
        bridge("0000:05:01.0", nic("0000:06:00.0", "8086:15f3"), ids="8086:15da"),
        bridge("0000:05:04.0", enclosure),
        ids="8086:15da",
    )
    return (bridge("0000:00:07.0", first, ids="8086:9a23", link=narrow),)


def conventional() -> tuple[Place, ...]:
    """A server's console adapter behind a bridge to conventional PCI, and a bridge on the root bus itself."""
    console = Place("0000:03:00.0", "030000", "1a03:2000", (), {"link": None})
    return (
        bridge("0000:00:1c.0", bridge("0000:02:00.0", console, ids="1a03:1150"), ids="8086:a190", numa_node=0),
        bridge("0000:00:1e.0", nic("0000:09:03.0", "8086:100e"), ids="8086:244e", numa_node=0, link=None),
        bridge("0000:00:02.0", gpu("0000:05:00.0"), ids="8086:6f04", numa_node=0),
    )


def virtual() -> tuple[Place, ...]:
    """A virtual machine of the type i440fx: everything is on one bus, without NUMA nodes."""
    return (gpu("0000:00:05.0"), gpu("0000:00:06.0"), nic("0000:00:03.0", "1af4:1000", link=None))


def domains() -> tuple[Place, ...]:
    """Hyper-V: each passed-through device has a domain of its own."""
    return (gpu("4a8c:00:00.0", numa_node=0), gpu("8a2b:00:00.0", numa_node=0), gpu("c0de:00:00.0", numa_node=1))


LAYOUTS = (dgx1, hgx, vmd, thunderbolt, conventional, virtual, domains)


def sysfs(path: Path, *places: Place) -> Path:
    """A root with these functions, each with the registers that lspci reads: type, and buses of a bridge."""
    root = SysRoot(path).host()
    _write(root, places, (), {})
    return root.path


def _write(root: SysRoot, places: tuple[Place, ...], behind: tuple[str, ...], above: dict[str, Any]) -> None:
    for place in places:
        fields = {**above, **place.fields}
        vendor, _, product = place.ids.partition(":")
        numa_node = fields.get("numa_node", -1)
        express = fields.get("link", GEN3) is not None
        over = (fields["root_parent"], f"pci{fields['root_bus']}") if "root_parent" in fields and not behind else ()
        root.function(
            place.address,
            vendor=vendor,
            product=product,
            cls=place.pci_class,
            numa=numa_node,
            behind=(*over, *behind),
            express=express,
        )
        root.write(f"/sys/bus/pci/devices/{place.address}/config", _config(place))
        _write(root, place.below, (*over, *behind, place.address), fields)


def _config(place: Place) -> bytes:
    """The header of the configuration space (PCI Local Bus Specification 3.0, 6.1; bridges: 3.2.5)."""
    config = bytearray(64)
    vendor, _, product = place.ids.partition(":")
    config[0:4] = bytes.fromhex(vendor)[::-1] + bytes.fromhex(product)[::-1]
    config[9:12] = bytes.fromhex(place.pci_class)[::-1]
    if place.pci_class.startswith("0604"):
        direct = [_bus(below.address) for below in place.below]
        within = [_bus(address) for address in _addresses(place.below)]
        config[14] = 1
        config[24:27] = bytes([_bus(place.address), min(direct, default=0), max(within, default=0)])
    return bytes(config)


def _bus(address: str) -> int:
    return int(address.split(":")[1], 16)


def _addresses(places: tuple[Place, ...]) -> Iterator[str]:
    for place in places:
        yield place.address
        yield from _addresses(place.below)
