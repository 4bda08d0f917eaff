"""The devices that kernel drivers created on PCI functions: network interfaces, disks, USB devices, sound, DRM."""

import re
from typing import Any, Dict, Iterator, List, Pattern, Set, Tuple

from .addresses import last_address
from .interfaces import interface, routes
from .reader import HostRoot


def slot_names(host: HostRoot) -> Dict[str, str]:
    """The names of physical slots by address: ``0000:88:00``, or ``0000:88`` for a complete bus."""
    base = "/sys/bus/pci/slots"
    names = {}
    for name in host.names(base):
        address = host.word(f"{base}/{name}/address", _SLOT_ADDRESS)
        if address:
            names[address.lower()] = name
    return names


_SLOT_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?")


def class_devices(host: HostRoot, directory: str, names: Pattern[str]) -> Iterator[Tuple[str, str, str]]:
    """The devices of a class below PCI functions: name, path in the device tree, address of the function.

    The path is the target of the device's link. A device belongs to the innermost function on its path, so a disk
    behind a USB controller belongs to the controller, and no device belongs to a bridge.
    """
    for name in host.names(directory):
        if names.fullmatch(name):
            path = f"{directory}/{name}"
            location = host.link(path) or host.link(path + "/device") or ""
            address = last_address(location)
            if address:
                yield name, location, address


def usb_label(host: HostRoot, path: str) -> str:
    """Manufacturer and product of a USB device, else its ids."""
    maker, product = (host.value(f"{path}/{name}") or "" for name in ("manufacturer", "product"))
    if not product:
        identifiers = [host.value(f"{path}/{name}") or "?" for name in ("idVendor", "idProduct")]
        return " ".join(part for part in (maker, ":".join(identifiers)) if part)
    return product if product.lower().startswith(maker.lower()) else f"{maker} {product}"


ANY = re.compile(r".+")
CARD = re.compile(r"card[0-9]+")
_EVENT = re.compile(r"event[0-9]+")
_USB_DEVICE = re.compile(r"[0-9]+-[0-9.]+")
USB_HUB = "09"


def uses(host: HostRoot) -> Dict[str, Dict[str, List[Any]]]:
    """The devices of each PCI function, by address and kind: net, block, usb, input, drm, infiniband, sound.

    ``drivers`` are the modules of drivers between a function and its network interfaces and disks: virtio, USB, SCSI.
    """
    by_address: Dict[str, Dict[str, List[Any]]] = {}

    def add(address: str, kind: str, value: object) -> None:
        values = by_address.setdefault(address, {}).setdefault(kind, [])
        if value not in values:
            values.append(value)

    def add_driver(address: str, device: str) -> None:
        module = host.link(device + "/device/driver/module")
        if module:
            add(address, "drivers", module.rpartition("/")[2])

    routed = None
    for name, _path, address in class_devices(host, "/sys/class/net", ANY):
        routed = routes(host) if routed is None else routed
        add(address, "net", interface(host, name, routed))
        add_driver(address, "/sys/class/net/" + name)
    disks: Set[str] = set()
    for name, location, address in class_devices(host, "/sys/class/block", ANY):
        disks.add(name)
        if ("/" + location).split("/")[-2] not in disks:  # else a partition, which sorts after its disk
            # With native multipath the function has a hidden path nvme0c1n1 to the disk nvme0n1.
            add(address, "block", re.sub(r"^(nvme[0-9]+)c[0-9]+(n[0-9]+)$", r"\1\2", name))
            add_driver(address, "/sys/class/block/" + name)
    for name, _path, address in class_devices(host, "/sys/bus/usb/devices", _USB_DEVICE):
        path = "/sys/bus/usb/devices/" + name
        if host.value(path + "/bDeviceClass") != USB_HUB:
            add(address, "usb", usb_label(host, path))
    for name, location, address in class_devices(host, "/sys/class/input", _EVENT):
        if "/sound/" not in location:  # the jack switches of a sound card are not keyboards
            add(address, "input", name)
    for kind, names in (("drm", CARD), ("infiniband", ANY), ("sound", CARD)):
        for name, _path, address in class_devices(host, "/sys/class/" + kind, names):
            add(address, kind, name)
    return by_address
