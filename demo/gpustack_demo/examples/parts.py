"""Parts of the example hosts: boards, network ports, disks and cards, with their BARs and functions."""

from __future__ import annotations

from collections.abc import Iterable

from gpustack_demo.examples.machine import Device, MemoryBar

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def wide(index: int, start: int, size: int) -> MemoryBar:
    """A prefetchable 64-bit BAR: a card's own memory."""
    return MemoryBar(index=index, start=start, size=size, prefetchable=True, bits=64)


def root_port(address: str, ids: str, *, group: int, numa_node: int = 0) -> Device:
    """A PCI Express root port or switch port."""
    vendor, product = ids.split(":")
    return Device(address=address, vendor=vendor, product=product, pci_class="060400", group=group, numa_node=numa_node)


def network(address: str, ids: str, *, group: int, name: str, parent: str | None = None, state: str = "up") -> Device:
    """An Ethernet controller with the interface ``name``."""
    vendor, product = ids.split(":")
    return Device(
        address=address,
        vendor=vendor,
        product=product,
        pci_class="020000",
        revision="01",
        parent=parent,
        group=group,
        net=name,
        net_state=state,
        bars=(MemoryBar(index=0, start=0xFB000000, size=MIB),),
        reset_methods=("flr", "bus"),
    )


def console_and_storage(disk: str, *, amd: bool = False) -> Iterable[Device]:
    """Common parts of server boards: a host bridge, the BMC's console, a disk and a USB controller with a keyboard."""
    maker, host_bridge, port, usb = ("1022", "1480", "1483", "148c") if amd else ("8086", "2f00", "8d1e", "8d31")
    yield Device(address="0000:00:00.0", vendor=maker, product=host_bridge, pci_class="060000", group=0)
    yield root_port("0000:00:1c.7", f"{maker}:{port}", group=1)
    yield Device(
        address="0000:02:00.0",
        vendor="1a03",
        product="1150",
        pci_class="060400",
        revision="03",
        parent="0000:00:1c.7",
        group=2,
    )
    yield Device(
        address="0000:03:00.0",
        vendor="1a03",
        product="2000",
        pci_class="030000",
        revision="30",
        parent="0000:02:00.0",
        group=2,
        boot_vga=True,
        bars=(
            MemoryBar(index=0, start=0xC6000000, size=16 * MIB),
            MemoryBar(index=1, start=0xC7000000, size=128 * KIB),
        ),
    )
    yield Device(
        address="0000:00:14.0",
        vendor=maker,
        product=usb,
        pci_class="0c0330",
        revision="05",
        group=3,
        usb="HID Keyboard",
        bars=(MemoryBar(index=0, start=0xC7A00000, size=64 * KIB, bits=64),),
    )
    storage_class, block = ("010601", "sda") if disk == "ahci" else ("010802", "nvme0n1")
    yield Device(
        address="0000:00:1f.2",
        vendor="8086" if disk == "ahci" else "144d",
        product="8d02" if disk == "ahci" else "a80a",
        pci_class=storage_class,
        group=4,
        block=block,
        bars=(MemoryBar(index=5 if disk == "ahci" else 0, start=0xC7A10000, size=16 * KIB),),
    )


def board() -> Iterable[Device]:
    """The talk's host without its cards: console, disks, network, and a root port for each slot."""
    yield from console_and_storage("ahci")
    yield root_port("0000:00:02.0", "8086:2f04", group=10)
    yield network("0000:04:00.0", "8086:1521", group=11, name="eno1", parent="0000:00:02.0")
    yield network("0000:04:00.1", "8086:1521", group=12, name="eno2", parent="0000:00:02.0", state="down")
    yield Device(address="0000:00:1f.3", vendor="8086", product="8d22", pci_class="0c0500", revision="05", group=4)
    yield root_port("0000:80:02.0", "8086:2f04", group=49, numa_node=1)
    yield root_port("0000:80:03.0", "8086:2f08", group=51, numa_node=1)


def k4200(slot_address: str, *, parent: str, group: int, slot: str, base: int) -> Iterable[Device]:
    """A Quadro K4200: graphics 10de:11b4 and HDMI audio 10de:0e0a in one slot."""
    far = 0x3BFC0000000 + (base & 0xFF000000) * 16
    yield Device(
        address=f"{slot_address}.0",
        vendor="10de",
        product="11b4",
        subsystem=("10de", "1096"),
        pci_class="030000",
        revision="a1",
        parent=parent,
        group=group,
        numa_node=1,
        boot_vga=False,
        bars=(
            MemoryBar(index=0, start=base, size=16 * MIB),
            wide(1, far, 256 * MIB),
            wide(3, far + 256 * MIB, 32 * MIB),
            MemoryBar(index=5, start=0xE000, size=128, io=True),
        ),
        link=("5.0 GT/s PCIe", 16),
        reset_methods=("bus",),
        slot=slot,
    )
    yield Device(
        address=f"{slot_address}.1",
        vendor="10de",
        product="0e0a",
        subsystem=("10de", "1096"),
        pci_class="040300",
        revision="a1",
        parent=parent,
        group=group,
        numa_node=1,
        bars=(MemoryBar(index=0, start=base + 16 * MIB, size=16 * KIB),),
        link=("5.0 GT/s PCIe", 16),
        reset_methods=("bus",),
    )


def h100(address: str, number: int, node: int) -> Iterable[Device]:
    """One H100 SXM5 below its own switch port."""
    bus = int(address.split(":")[1], 16)
    port = f"0000:{bus - 1:02x}:01.0"
    high = 0x200000000000 + number * 0x4000000000
    yield root_port(port, "1000:c030", group=60 + 2 * number, numa_node=node)
    yield Device(
        address=address,
        vendor="10de",
        product="2330",
        subsystem=("10de", "16c1"),
        pci_class="030200",
        revision="a1",
        parent=port,
        group=61 + 2 * number,
        numa_node=node,
        bars=(
            wide(0, high, 16 * MIB),
            wide(2, high + 0x2000000000, 128 * GIB),
            wide(4, high + 32 * MIB, 32 * MIB),
        ),
        link=("32.0 GT/s PCIe", 16),
        reset_methods=("flr", "bus"),
        sriov_totalvfs=16,
        serial=f"48-b0-2d-{number:02x}-00-3c-a1-{0x10 + number:02x}",
    )
