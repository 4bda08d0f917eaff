"""The machine's shape as QEMU arguments: CPU, IOMMU, where the two 'GPUs' and the network card are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

GPU_COUNT = 2
GPU_ID = "1234:1111"
AUDIO_ID = "8086:2668"


@dataclass(frozen=True, kw_only=True)
class SharedCard:
    """A card with SR-IOV: QEMU's name of the device, its driver, the ids of card and virtual functions, their number.

    None is a GPU: QEMU has no GPU with SR-IOV.
    """

    device: str
    driver: str
    id: str
    virtual_id: str
    count: int


NVME = SharedCard(device="nvme", driver="nvme", id="1b36:0010", virtual_id="1b36:0010", count=4)
"""Its virtual functions have its ids, and are in its slot."""
IGB = SharedCard(device="igb", driver="igb", id="8086:10c9", virtual_id="8086:10ca", count=2)
"""A network card of QEMU 8.0 and later. Its virtual functions have ids of their own, and are in other slots."""
SHARED_CARD = "shared-card"
"""QEMU's name of the card with SR-IOV."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What kind of host is emulated.

    With `shared_group`, the last GPU and the only network card are conventional PCI devices behind one
    PCIe-to-PCI bridge. The bridge gives all of them its own requester ID, so the IOMMU cannot tell them apart
    and the kernel puts them in one group.

    `console` says which display the firmware uses. A server has a small one on its management controller
    ("bmc"); without it the firmware, and then the kernel's efifb, take the first GPU ("gpu").

    With `shared_card`, there is a card with SR-IOV too. With `only_network_card`, it is the host's network card.
    """

    cpu_vendor: Literal["intel", "amd"] = "intel"
    shared_group: bool = False
    console: Literal["bmc", "gpu"] = "bmc"
    memory_mib: int = 4096
    processors: int = 2
    shared_card: SharedCard | None = None
    only_network_card: bool = False


def arguments(
    shape: Shape, accelerator: str, ssh_port: int, relays: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """QEMU's arguments for everything but disks, firmware and serial port.

    SSH of the host is reachable on 127.0.0.1:`ssh_port`. For each connection of the host to an address and port in
    `relays`, QEMU starts the command beside it.
    """
    result = [
        *("-machine", f"q35,accel={accelerator},kernel-irqchip=split"),
        *("-m", str(shape.memory_mib), "-smp", str(shape.processors)),
        *("-nodefaults", "-vga", "none", "-display", "none", "-no-user-config"),
    ]
    if shape.cpu_vendor == "amd":
        result += ["-cpu", "EPYC", "-device", "amd-iommu,intremap=on"]
    else:
        # caching-mode makes the emulated unit notice mappings of vfio inside the host.
        result += ["-cpu", "max", "-device", "intel-iommu,intremap=on,caching-mode=on"]
    if shape.console == "bmc":
        result += ["-device", "ramfb"]
    shared = GPU_COUNT - 1 if shape.shared_group else None
    for index in range(GPU_COUNT):
        port = port_of(index)
        result += ["-device", f"pcie-root-port,id={port},chassis={index + 1},slot={index + 1}"]
        if index == shared:
            result += ["-device", f"pcie-pci-bridge,id=shared,bus={port}"]
        result += _gpu(index, "shared" if index == shared else port, slot=1 if index == shared else 0)
    if shape.shared_card is not None:
        result += _shared_card(shape.shared_card, ",netdev=net0" if shape.only_network_card else "")
    forwarded = "".join(f",guestfwd=tcp:{address}-cmd:{command}" for address, command in relays.items())
    result += ["-netdev", f"user,id=net0,hostfwd=tcp:127.0.0.1:{ssh_port}-:22{forwarded}"]
    if shape.shared_group:
        result += ["-device", "virtio-net-pci,netdev=net0,bus=shared,addr=2.0"]
    elif not shape.only_network_card:
        result += ["-device", "virtio-net-pci,netdev=net0"]
    return result


def port_of(index: int) -> str:
    """QEMU's name of the root port above a GPU."""
    return f"port{index}"


def function_of(index: int, number: int) -> str:
    """QEMU's name of one function of a GPU: 0 is the display, 1 the audio."""
    return f"gpu{index}.{number}"


def _gpu(index: int, bus: str, slot: int) -> list[str]:
    """A display controller and an HD-audio controller in one slot, as a graphics card has."""
    display, audio = (function_of(index, number) for number in (0, 1))
    return [
        *("-device", f"secondary-vga,id={display},bus={bus},addr={slot:x}.0,multifunction=on"),
        *("-device", f"intel-hda,id={audio},bus={bus},addr={slot:x}.1"),
    ]


def _shared_card(card: SharedCard, options: str) -> list[str]:
    """A card with SR-IOV. An NVMe controller needs two queues and an interrupt for each virtual function."""
    port = ["-device", "pcie-root-port,id=port-sriov,chassis=9,slot=9"]
    device = f"{card.device},id={SHARED_CARD},bus=port-sriov{options}"
    if card != NVME:
        return [*port, "-device", device]
    flexible = f"sriov_vq_flexible={2 * card.count},sriov_vi_flexible={card.count}"
    subsystem = ["-device", "nvme-subsys,id=subsystem"]
    return [*port, *subsystem, "-device", f"{device},serial=lab,subsys=subsystem,sriov_max_vfs={card.count},{flexible}"]
