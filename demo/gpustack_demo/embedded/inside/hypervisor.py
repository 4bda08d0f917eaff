# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return"
"""Features that Nova's fake libvirt lacks: a device has one running owner, and a domain keeps its host devices.

Before 2023.2 the fake drops the PCI devices of a domain; then they are stored separately.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from nova.tests.fixtures import libvirt as fakelibvirt

_FORGETS = not hasattr(fakelibvirt, "_parse_hostdev_info")
_NUMBERS = ("domain", "bus", "slot", "function")


def migrate_disk_and_power_off(driver: Any, context: Any, instance: Any, *args: Any, **kwargs: Any) -> str:
    """Replacement for the libvirt driver's method: power the guest off, without copying disks."""
    driver.power_off(instance)
    return "{}"


def hostdevs(domain: Any) -> list[str]:
    """The addresses of the PCI devices of a domain."""
    if _FORGETS:
        return sorted(domain.gpustack_hostdevs)
    devices = domain._def["devices"].get("hostdevs", [])
    return sorted(_address(device) for device in devices if device["type"] == "pci")


def mediated(domain: Any) -> list[str]:
    """The UUIDs of the mediated devices of a domain."""
    devices = domain._def["devices"].get("hostdevs", [])
    return sorted(device["address_uuid"] for device in devices if device["type"] == "mdev")


def document(domain: Any) -> str:
    """The domain's XML."""
    text: str = domain.XMLDesc(0)
    if not _FORGETS:
        return text
    elements = ""
    for address in hostdevs(domain):
        host, slot, function = address.rsplit(":", 1)[0], *address.rsplit(":", 1)[1].split(".")
        values = dict(zip(_NUMBERS, (*host.split(":"), slot, function)))  # noqa: B905 - strict came with Python 3.10
        source = " ".join("{}='0x{}'".format(*item) for item in values.items())
        elements += f"<hostdev mode='subsystem' type='pci' managed='yes'><source><address {source}/></source></hostdev>"
    return text.replace("</devices>", elements + "</devices>")


def remembering(parse: Any) -> Any:
    """Wrap the parser of the fake to keep a definition as Nova wrote it, and its PCI devices."""

    def parse_definition(domain: Any, xml: str) -> Any:
        domain.gpustack_definition = xml
        addresses = ET.fromstring(xml).findall("./devices/hostdev[@type='pci']/source/address")  # noqa: S314 - Nova wrote it
        domain.gpustack_hostdevs = [_address(address.attrib) for address in addresses]
        return parse(domain, xml)

    return parse_definition


def exclusive(create: Any) -> Any:
    """Wrap the start of a domain: as in libvirt, it fails if a running domain holds one of its devices."""

    def create_with_flags(domain: Any, flags: int) -> Any:
        wanted = set(hostdevs(domain))
        for other in domain._connection._vms.values():
            if other is domain or other.UUIDString() == domain.UUIDString() or not other.isActive():
                continue
            for address in wanted.intersection(hostdevs(other)):
                raise fakelibvirt.make_libvirtError(
                    fakelibvirt.libvirtError,
                    f"Requested operation is not valid: PCI device {address} is in use by driver QEMU, "
                    f"domain {other.name()}",
                    error_code=fakelibvirt.VIR_ERR_INTERNAL_ERROR,
                    error_domain=fakelibvirt.VIR_FROM_QEMU,
                )
        return create(domain, flags)

    return create_with_flags


def _address(numbers: Any) -> str:
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*tuple(int(numbers[key], 16) for key in _NUMBERS))
