# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc"
"""The PCI devices of a host as libvirt describes them."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from nova.tests.fixtures import libvirt as fakelibvirt

from .descriptions import DeviceDescription, HostDescription


def _numbers(address: str) -> dict[str, int]:
    domain, bus, slot_function = address.split(":")
    slot, function = slot_function.split(".")
    return {"domain": int(domain, 16), "bus": int(bus, 16), "slot": int(slot, 16), "function": int(function, 16)}


def node_device_name(address: str) -> str:
    """libvirt's name of the node device at ``address``: ``pci_0000_81_00_0``."""
    return "pci_" + address.replace(":", "_").replace(".", "_")


def node_device_xml(device: DeviceDescription) -> str:
    """The node device XML (https://libvirt.org/formatnode.html) of one device of a description."""
    address = device["address"]
    root = ET.Element("device")
    ET.SubElement(root, "name").text = node_device_name(address)
    ET.SubElement(root, "path").text = f"/sys/devices/pci0000:00/{address}"
    physical = device["physical_function"]
    ET.SubElement(root, "parent").text = node_device_name(physical) if physical else "pci_0000_00_01_0"
    if device["driver"]:
        ET.SubElement(ET.SubElement(root, "driver"), "name").text = device["driver"]
    pci = ET.SubElement(root, "capability", type="pci")
    if device["class_"]:
        ET.SubElement(pci, "class").text = "0x{}".format(device["class_"])
    for key, number in _numbers(address).items():
        ET.SubElement(pci, key).text = str(number)
    ET.SubElement(pci, "product", id="0x{}".format(device["product"]))
    ET.SubElement(pci, "vendor", id="0x{}".format(device["vendor"]))
    if physical:
        _address(ET.SubElement(pci, "capability", type="phys_function"), physical)
    elif device["sriov_totalvfs"] is not None:
        functions = ET.SubElement(pci, "capability", type="virt_functions", maxCount=str(device["sriov_totalvfs"]))
        for virtual in device["virtual_functions"]:
            _address(functions, virtual)
    if device["iommu_group"] is not None:
        _address(ET.SubElement(pci, "iommuGroup", number=str(device["iommu_group"])), address)
    if device["numa_node"] is not None and device["numa_node"] >= 0:
        ET.SubElement(pci, "numa", node=str(device["numa_node"]))
    return ET.tostring(root, encoding="unicode")


def _address(parent: ET.Element, address: str) -> None:
    widths = {"domain": 4, "bus": 2, "slot": 2, "function": 1}
    ET.SubElement(parent, "address", {key: f"0x{value:0{widths[key]}x}" for key, value in _numbers(address).items()})


class NodeDevice(fakelibvirt.FakePCIDevice):
    """One device of a fake libvirt."""

    def __init__(self, device: DeviceDescription) -> None:
        self.device = device
        self.pci_device = node_device_xml(device)
        self.mac_address = None
        self.dev_type = "VF" if device["physical_function"] else "PCI"

    @property
    def address(self) -> str:
        """The address in the kernel's notation."""
        return str(self.device["address"])


def devices_of(host: HostDescription) -> Any:
    """The ``pci_info`` of a fake libvirt connection for a host of a description."""
    info = fakelibvirt.HostPCIDevicesInfo(num_pci=0, num_pfs=0, num_vfs=0)
    for device in host["pci"]:
        info.devices[node_device_name(device["address"])] = NodeDevice(device)
    return info
