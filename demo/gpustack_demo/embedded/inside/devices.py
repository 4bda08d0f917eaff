# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc"
"""The PCI devices of a host as libvirt describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from nova.tests.fixtures import libvirt as fakelibvirt

from .descriptions import DeviceDescription, HostDescription, MdevType


def _numbers(address: str) -> dict[str, int]:
    domain, bus, slot_function = address.split(":")
    slot, function = slot_function.split(".")
    return {"domain": int(domain, 16), "bus": int(bus, 16), "slot": int(slot, 16), "function": int(function, 16)}


def node_device_name(address: str) -> str:
    """libvirt's name of the node device at ``address``: ``pci_0000_81_00_0``."""
    return "pci_" + address.replace(":", "_").replace(".", "_")


def node_device_xml(device: DeviceDescription, created: Sequence[str] = ()) -> str:
    """The node device XML (https://libvirt.org/formatnode.html) of one device of a description.

    :param created: the types of its mediated devices.
    """
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
    if device["mdev_types"]:
        _types(ET.SubElement(pci, "capability", type="mdev_types"), device["mdev_types"], created)
    return ET.tostring(root, encoding="unicode")


def _types(types: ET.Element, kinds: Sequence[MdevType], created: Sequence[str]) -> None:
    for kind in kinds:
        element = ET.SubElement(types, "type", id=kind["id"])
        ET.SubElement(element, "name").text = kind["name"]
        ET.SubElement(element, "deviceAPI").text = "vfio-pci"
        fitting = kind["instances"] - len(created) if set(created) <= {kind["id"]} else 0
        ET.SubElement(element, "availableInstances").text = str(fitting)


def _address(parent: ET.Element, address: str) -> None:
    widths = {"domain": 4, "bus": 2, "slot": 2, "function": 1}
    ET.SubElement(parent, "address", {key: f"0x{value:0{widths[key]}x}" for key, value in _numbers(address).items()})


class NodeDevice(fakelibvirt.FakePCIDevice):
    """One device of a fake libvirt."""

    def __init__(self, device: DeviceDescription, mediated: Any) -> None:
        self.device = device
        self.mediated = mediated
        self.pci_device = node_device_xml(device)
        self.is_capable_of_mdevs = bool(device["mdev_types"])
        self.mac_address = None
        self.dev_type = "VF" if device["physical_function"] else "PCI"

    @property
    def address(self) -> str:
        """The address in the kernel's notation."""
        return str(self.device["address"])

    def XMLDesc(self, flags: int) -> str:  # noqa: N802 - libvirt's name
        """The XML, with the number of mediated devices that still fit; the fixture's number stays the same."""
        name = node_device_name(self.address)
        present = [device.type for device in self.mediated.devices.values() if device.parent == name]
        return node_device_xml(self.device, present)


class MediatedDevice(fakelibvirt.FakeMdevDevice):
    """A mediated device of a fake libvirt."""

    def __init__(self, uuid: str, kind: str, parent: str) -> None:
        self.uuid, self.type, self.parent = uuid, kind, parent
        super().__init__(dev_name=self.name(), type_id=kind, parent=parent)

    def name(self) -> str:
        """libvirt's name of the node device."""
        return "mdev_" + self.uuid.replace("-", "_")

    def setAutostart(self, autostart: int) -> int:  # noqa: N802 - libvirt's name
        """Succeed: the devices of an embedded host survive its reboot."""
        return 0


class Connection(fakelibvirt.Connection):
    """A fake libvirt that creates mediated devices; Nova's functional tests replace the driver's method instead."""

    def nodeDeviceCreateXML(self, xml: str, flags: int) -> Any:  # noqa: N802 - libvirt's name
        """Create a mediated device, if the card has room."""
        wanted = ET.fromstring(xml)  # noqa: S314 - Nova wrote it
        types = wanted.iterfind("capability/type")
        parent, kind = wanted.findtext("parent", ""), next(types).get("id", "")
        card = ET.fromstring(self.pci_info.get_device_by_name(parent).XMLDesc(0))  # noqa: S314 - from above
        fitting = card.findall(f"capability/capability[@type='mdev_types']/type[@id='{kind}']")
        if not any(int(entry.findtext("availableInstances", "0")) > 0 for entry in fitting):
            raise fakelibvirt.make_libvirtError(
                fakelibvirt.libvirtError,
                f"internal error: unable to create a mediated device of type {kind} on {parent}",
                error_code=fakelibvirt.VIR_ERR_INTERNAL_ERROR,
                error_domain=fakelibvirt.VIR_FROM_NODEDEV,
            )
        device = MediatedDevice(wanted.findtext("capability/uuid", ""), kind, parent)
        self.mdev_info.devices[device.name()] = device
        return device

    def nodeDeviceDefineXML(self, xml: str, flags: int) -> Any:  # noqa: N802 - libvirt's name
        """Return the device that was created."""
        uuid = ET.fromstring(xml).findtext("capability/uuid")  # noqa: S314 - Nova wrote it
        return next(device for device in self.mdev_info.devices.values() if device.uuid == uuid)


def connect(host: HostDescription, shape: Any, mediated: Any = None, **options: Any) -> Connection:
    """A connection to the fake libvirt of a host of a description.

    :param mediated: the mediated devices of an earlier connection.
    """
    mediated = mediated or fakelibvirt.HostMdevDevicesInfo()
    info = fakelibvirt.HostPCIDevicesInfo(num_pci=0, num_pfs=0, num_vfs=0)
    for device in host["pci"]:
        info.devices[node_device_name(device["address"])] = NodeDevice(device, mediated)
    return Connection("qemu:///system", host_info=shape, pci_info=info, mdev_info=mediated, **options)
