"""Answers of Nova, Placement and hosts about a fleet, as data."""

from __future__ import annotations

from typing import Any

from gpustack.cloud.servers import Server
from gpustack.fleet.placement import Device
from gpustack.hosts.facts.model import Function, Host


def device(node: str, bus: int, *, function: int = 0, capacity: int = 1, used: int = 0, **more: Any) -> Device:
    """A device; the uuid of ``gpu1``'s 0000:81:00.0 is ``gpu1-81``."""
    address = f"0000:{bus:02x}:00.{function}"
    known = {"resource_class": "CUSTOM_PCI_10DE_11B4", "capacity": capacity, "used": used, **more}
    uuid = f"{node}-{bus:02x}" + (f".{function}" if function else "")
    return Device(uuid=uuid, name=f"{node}_{address}", root=node, node=node, address=address, **known)


def server(uuid: str, host: str, *, count: int = 1, **more: Any) -> Server:
    """An instance of project ``p1`` that requests K4200s."""
    known = {
        "status": "ACTIVE",
        "name": uuid.upper(),
        "flavor": "g1",
        "project": "p1",
        "user": "u1",
        "placed": bool(host),
        **more,
    }
    return Server(id=uuid, host=host, node=host, devices={"k4200": count} if count else {}, **known)


def facts(name: str, *buses: int, driver: str = "vfio-pci") -> Host:
    """A host with K4200s on these buses."""
    functions = [
        Function.model_validate(
            {
                "address": f"0000:{bus:02x}:00.0",
                "vendor": "10de",
                "product": "11b4",
                "class": "030000",
                "driver": driver,
                "iommu_group": bus,
                "numa_node": 0,
            }
        )
        for bus in buses
    ]
    return Host.model_validate({"version": 1, "hostname": name, "pci": functions})
