"""The PCI functions of the host."""

import errno
import os
import re
from typing import Any, Dict, List, Optional, Pattern

from .addresses import PCI, address_key
from .class_devices import slot_names, uses
from .iomem import claims
from .limits import ADDRESS, VALUE_LIMIT
from .reader import HostRoot
from .resources import access_control, bars, config_serial, responds
from .vgpus import vgpus

_HEX4 = re.compile(r"0x([0-9a-fA-F]{4})")
_HEX6 = re.compile(r"0x([0-9a-fA-F]{6})")
_HEX2 = re.compile(r"0x([0-9a-fA-F]{2})")


# The functions in the slot of a GPU: display controllers, processing accelerators, audio devices, USB controllers and
# the UCSI function of a USB-C port ("other serial bus").
GPU_CLASSES = ("03", "12", "0403", "0c03", "0c80")


class FunctionFiles:
    """The sysfs attributes of one function; attributes that are not in its directory are not opened."""

    def __init__(self, host: HostRoot, address: str) -> None:
        self.host = host
        self.base = f"{PCI}/{address}"
        self.present = set(host.names(self.base))

    def path(self, name: str) -> str:
        """The path of one attribute."""
        return f"{self.base}/{name}"

    def value(self, name: str) -> Optional[str]:
        """A text; ``None`` if it is empty."""
        return (self.host.value(self.path(name)) or None) if name in self.present else None

    def number(self, name: str) -> Optional[int]:
        """A number; ``None`` if it is negative, the kernel's value for "none"."""
        value = self.host.number(self.path(name)) if name in self.present else None
        return value if value is not None and value >= 0 else None

    def flag(self, name: str) -> Optional[bool]:
        """A boolean."""
        return self.host.flag(self.path(name)) if name in self.present else None

    def hexadecimal(self, name: str, pattern: Pattern[str]) -> Optional[str]:
        """The digits of a hexadecimal number, lower case, without ``0x``."""
        digits = self.host.word(self.path(name), pattern) if name in self.present else None
        return digits[2:].lower() if digits else None

    def link(self, name: str) -> Optional[str]:
        """The last component of a link's target."""
        target = self.host.link(self.path(name)) if name in self.present else None
        return target.rpartition("/")[2] if target else None

    def module(self) -> Optional[str]:
        """The module of the current driver; ``None`` if the driver is built in, or there is none."""
        target = self.host.link(self.path("driver/module")) if "driver" in self.present else None
        return target.rpartition("/")[2] if target else None

    def function(self, name: str) -> Optional[str]:
        """The PCI address that a link points to."""
        target = self.link(name)
        return target if target and ADDRESS.fullmatch(target) else None


def express_link(files: FunctionFiles) -> Optional[Dict[str, Any]]:
    """The PCI Express link; an ``Unknown`` speed and a width of 0 or 255 lanes are ``None``."""
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


_TOTAL = re.compile(r"^TOTAL_ERR_[A-Z]+ ([0-9]{1,18})$", re.MULTILINE)


def error_counters(files: FunctionFiles) -> Optional[Dict[str, Optional[int]]]:
    """The AER counters since boot (Documentation/ABI/testing/sysfs-bus-pci-devices-aer); ``None`` without AER."""
    if "aer_dev_fatal" not in files.present:
        return None

    def total(name: str) -> Optional[int]:
        match = _TOTAL.search(files.host.text(files.path(name), VALUE_LIMIT) or "") if name in files.present else None
        return int(match.group(1)) if match else None

    return {kind: total(f"aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")}


def reset_methods(files: FunctionFiles) -> List[str]:
    """The kernel's reset methods of a function, in the kernel's order; empty if there are none.

    Kernels before 5.15 have ``reset`` but no ``reset_method``: the method is then ``unspecified``.
    """
    if "reset_method" in files.present:
        return (files.value("reset_method") or "").split()
    return ["unspecified"] if "reset" in files.present else []


def virtual_functions(files: FunctionFiles) -> List[str]:
    """The addresses of the virtual functions, sorted by VF number."""
    links = sorted((int(name[6:]), name) for name in files.present if re.fullmatch(r"virtfn[0-9]{1,5}", name))
    return [address for address in (files.function(name) for _number, name in links) if address]


class Tables:
    """Tables that are read once for all functions."""

    def __init__(self, host: HostRoot) -> None:
        self.claims = claims(host)
        self.slots = slot_names(host)
        self.uses = uses(host)


def function(host: HostRoot, address: str, tables: Tables) -> Optional[Dict[str, Any]]:
    """One PCI function; ``None``, with a note, if it disappeared, or if vendor, device or class is unreadable."""
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
    record = {"address": address, **ids, **kernel_view(files), **hardware(files, tables, ids)}
    if host.exists(files.base):
        return record
    vanished(host, files, mark)
    return None


def vanished(host: HostRoot, files: FunctionFiles, mark: int) -> None:
    """Replace the notes of a function by one note that it disappeared."""
    host.forget(mark)
    host.note(files.base, "the device went away while it was read")


def identity(files: FunctionFiles) -> Dict[str, Any]:
    """Vendor, product and class; a value is ``None`` if it could not be read."""
    return {
        "vendor": files.hexadecimal("vendor", _HEX4),
        "product": files.hexadecimal("device", _HEX4),
        "class": files.hexadecimal("class", _HEX6),
    }


def kernel_view(files: FunctionFiles) -> Dict[str, Any]:
    """The kernel's view of the function: drivers, IOMMU group, NUMA node, SR-IOV, mediated devices."""
    override = files.value("driver_override")
    group = files.link("iommu_group")
    return {
        "driver": files.link("driver"),
        "driver_module": files.module(),
        "driver_override": None if override == "(null)" else override,
        "modalias": files.value("modalias"),
        "iommu_group": int(group) if group and group.isdecimal() else None,
        "numa_node": files.number("numa_node"),
        "boot_vga": files.flag("boot_vga"),
        "sriov_totalvfs": files.number("sriov_totalvfs"),
        "sriov_numvfs": files.number("sriov_numvfs"),
        "physical_function": files.function("physfn"),
        "virtual_functions": virtual_functions(files),
        **vgpus(files.host, files.base, sorted(files.present), files.link("driver")),
    }


def hardware(files: FunctionFiles, tables: Tables, ids: Dict[str, Any]) -> Dict[str, Any]:
    """The function's registers, its position in the machine, and its uses."""
    host, class_code = files.host, ids["class"]
    address = files.base.rpartition("/")[2]
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
        "aer": error_counters(files) if class_code.startswith(("03", "12", "0680", "0604")) else None,
        # Read before the configuration space, whose reading wakes a suspended device.
        "power_state": files.value("power_state"),
        "slot": tables.slots.get(slot, tables.slots.get(bus)),
        # A read wakes a suspended device, so only functions of cards are read.
        "responds": responds(host, config) if has_config and class_code.startswith((*GPU_CLASSES, "0680")) else None,
        "serial": config_serial(host, config) if has_config else None,
        "acs": access_control(host, config, ids["vendor"], ids["product"])
        if has_config and class_code.startswith("0604")
        else None,
        **position(host.link(files.base) or ""),
        "uses": tables.uses.get(address, {}),
        "claims": tables.claims.within(memory),
    }


_ROOT_BUS = re.compile(r"pci([0-9a-f]{4,8}:[0-9a-f]{2})")


def position(path: str) -> Dict[str, Optional[str]]:
    """The bridge above a function, its root bus, and the function that provides the root bus (Intel VMD).

    A path in sysfs is ``/sys/devices/pci0000:80/0000:80:05.5/pci10000:00/10000:00:02.0/10000:01:00.0``.
    """
    parts = path.split("/")

    def function_at(index: int) -> Optional[str]:
        return parts[index] if index >= 0 and ADDRESS.fullmatch(parts[index]) else None

    roots = [index for index, part in enumerate(parts) if _ROOT_BUS.fullmatch(part)]
    return {
        "parent": function_at(len(parts) - 2),
        "root_bus": parts[roots[-1]][len("pci") :] if roots else None,
        "root_parent": function_at(roots[-1] - 1) if roots else None,
    }


def pci(host: HostRoot) -> List[Dict[str, Any]]:
    """All PCI functions, sorted by address."""
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
