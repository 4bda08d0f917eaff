"""The PCI functions of the host."""

import errno
import os
import re
from typing import Any, Dict, List, Optional, Pattern

from .addresses import PCI, address_key
from .aliases import aliases
from .class_devices import slot_names, uses
from .iomem import claims
from .limits import ADDRESS, VALUE_LIMIT
from .reader import HostRoot
from .resources import bars, config_serial, responds

_HEX4 = re.compile(r"0x([0-9a-fA-F]{4})")
_HEX6 = re.compile(r"0x([0-9a-fA-F]{6})")
_HEX2 = re.compile(r"0x([0-9a-fA-F]{2})")


# Display controllers, processing accelerators, audio devices, USB controllers and the UCSI function of a USB-C port
# ("other serial bus"): what a GPU's slot has.
GPU_CLASSES = ("03", "12", "0403", "0c03", "0c80")


class FunctionFiles:
    """The attributes of one function; those that its directory does not list are not asked for."""

    def __init__(self, host: HostRoot, address: str) -> None:
        self.host = host
        self.base = f"{PCI}/{address}"
        self.present = set(host.names(self.base))

    def path(self, name: str) -> str:
        """The path of one attribute."""
        return f"{self.base}/{name}"

    def value(self, name: str) -> Optional[str]:
        """A value; ``None`` when it is empty."""
        return (self.host.value(self.path(name)) or None) if name in self.present else None

    def number(self, name: str) -> Optional[int]:
        """A number; ``None`` when it is negative, which is the kernel's "none"."""
        value = self.host.number(self.path(name)) if name in self.present else None
        return value if value is not None and value >= 0 else None

    def flag(self, name: str) -> Optional[bool]:
        """A boolean."""
        return self.host.flag(self.path(name)) if name in self.present else None

    def hexadecimal(self, name: str, pattern: Pattern[str]) -> Optional[str]:
        """The digits of a hexadecimal number."""
        digits = self.host.word(self.path(name), pattern) if name in self.present else None
        return digits[2:].lower() if digits else None

    def link(self, name: str) -> Optional[str]:
        """The last name of a link's target."""
        target = self.host.link(self.path(name)) if name in self.present else None
        return target.rpartition("/")[2] if target else None

    def function(self, name: str) -> Optional[str]:
        """The function that a link leads to."""
        target = self.link(name)
        return target if target and ADDRESS.fullmatch(target) else None


def express_link(files: FunctionFiles) -> Optional[Dict[str, Any]]:
    """The PCI Express link; what the kernel calls ``Unknown`` is ``None``, and so are 0 and 255 lanes."""
    if "current_link_speed" not in files.present:
        return None

    def speed(name: str) -> Optional[str]:
        value = files.value(name)
        return value if value and not value.startswith("Unknown") else None

    def width(name: str) -> Optional[int]:
        value = files.number(name)
        return value if value and value < 255 else None

    return {
        "speed": speed("current_link_speed"),
        "width": width("current_link_width"),
        "max_speed": speed("max_link_speed"),
        "max_width": width("max_link_width"),
    }


def reset_methods(files: FunctionFiles) -> List[str]:
    """How the kernel can reset a function, in its order; empty when it can't.

    Kernels before 5.15 have ``reset`` but no ``reset_method``: the way is then ``unspecified``.
    """
    if "reset_method" in files.present:
        return (files.value("reset_method") or "").split()
    return ["unspecified"] if "reset" in files.present else []


def virtual_functions(files: FunctionFiles) -> List[str]:
    """The virtual functions, in the order of their numbers."""
    links = sorted((int(name[6:]), name) for name in files.present if re.fullmatch(r"virtfn[0-9]{1,5}", name))
    return [address for address in (files.function(name) for _, name in links) if address]


def mediated_devices(files: FunctionFiles) -> List[str]:
    """The mediated devices of a function, by UUID, and the type of vGPU that NVIDIA's driver has put on it.

    See ``Documentation/driver-api/vfio-mediated-device.rst``; without mdev, since Linux 6.8, the type is an attribute.
    """
    devices = sorted(name for name in files.present if _UUID.fullmatch(name))
    kind = files.host.value(files.path("nvidia/current_vgpu_type")) if "nvidia" in files.present else None
    return [*devices, f"vGPU type {kind}"] if kind not in (None, "", "0") else devices


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Tables:
    """What is read once for all functions."""

    def __init__(self, host: HostRoot) -> None:
        self.aliases = aliases(host)
        self.claims = claims(host)
        self.slots = slot_names(host)
        self.uses = uses(host)


def function(host: HostRoot, address: str, tables: Tables) -> Optional[Dict[str, Any]]:
    """One PCI function; ``None``, with a note, when it went away or says not even what it is."""
    mark = len(host.unread)
    files = FunctionFiles(host, address)
    ids = identity(files)
    if None in (ids["vendor"], ids["product"], ids["class"]):
        absent = any(entry["error"] == os.strerror(errno.ENODEV) for entry in host.unread[mark:])
        if absent or not host.exists(files.base):
            vanished(host, files, mark)
        else:
            host.note(files.base, "left out: its vendor, device or class could not be read")
        return None
    record = {"address": address, **ids, **kernel_view(files, tables), **hardware(files, tables, ids["class"])}
    if host.exists(files.base):
        return record
    vanished(host, files, mark)
    return None


def vanished(host: HostRoot, files: FunctionFiles, mark: int) -> None:
    """Replace what was noted of a function by the note that it went away."""
    host.forget(mark)
    host.note(files.base, "the device went away while it was read")


def identity(files: FunctionFiles) -> Dict[str, Any]:
    """What the function is; a value is ``None`` where it could not be read."""
    return {
        "vendor": files.hexadecimal("vendor", _HEX4),
        "product": files.hexadecimal("device", _HEX4),
        "class": files.hexadecimal("class", _HEX6),
    }


def kernel_view(files: FunctionFiles, tables: Tables) -> Dict[str, Any]:
    """What the kernel makes of the function: drivers, IOMMU group, node, the physical function and virtual ones."""
    modalias = files.value("modalias")
    override = files.value("driver_override")
    group = files.link("iommu_group")
    return {
        "driver": files.link("driver"),
        "driver_override": None if override == "(null)" else override,
        "modalias": modalias,
        "modules": tables.aliases.candidates(modalias) if modalias else [],
        "iommu_group": int(group) if group and group.isdigit() else None,
        "numa_node": files.number("numa_node"),
        "boot_vga": files.flag("boot_vga"),
        "sriov_totalvfs": files.number("sriov_totalvfs"),
        "sriov_numvfs": files.number("sriov_numvfs"),
        "physical_function": files.function("physfn"),
        "virtual_functions": virtual_functions(files),
        "mediated": mediated_devices(files),
    }


def hardware(files: FunctionFiles, tables: Tables, class_code: str) -> Dict[str, Any]:
    """The function's registers, its place in the machine, and who uses it."""
    host = files.host
    address = files.base.rpartition("/")[2]
    path = (host.link(files.base) or "").split("/")
    config, has_config = files.path("config"), "config" in files.present
    memory = bars(host.text(files.path("resource"), VALUE_LIMIT) or "") if "resource" in files.present else []
    slot, bus = address.rpartition(".")[0], address.rpartition(":")[0]
    return {
        "subsystem_vendor": files.hexadecimal("subsystem_vendor", _HEX4),
        "subsystem_product": files.hexadecimal("subsystem_device", _HEX4),
        "revision": files.hexadecimal("revision", _HEX2),
        "reset_methods": reset_methods(files),
        "bars": memory,
        "link": express_link(files),
        "slot": tables.slots.get(slot, tables.slots.get(bus)),
        # A read wakes a device that sleeps, so only those of cards are asked.
        "responds": responds(host, config) if has_config and class_code.startswith((*GPU_CLASSES, "0680")) else None,
        "serial": config_serial(host, config) if has_config else None,
        "parent": path[-2] if len(path) > 1 and ADDRESS.fullmatch(path[-2]) else None,
        "uses": tables.uses.get(address, {}),
        "claims": tables.claims.within(memory),
    }


def pci(host: HostRoot) -> List[Dict[str, Any]]:
    """Every PCI function, in the order of the addresses."""
    addresses = []
    for name in host.names(PCI):
        if ADDRESS.fullmatch(name):
            addresses.append(name)
        else:
            host.note(f"{PCI}/{name}", "not a PCI address")
    if not addresses:
        return []
    tables = Tables(host)
    records = (function(host, address, tables) for address in sorted(addresses, key=address_key))
    return [entry for entry in records if entry is not None]
