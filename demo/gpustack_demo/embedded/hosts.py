"""The compute hosts of an embedded Nova, and the PCI devices that their libvirt reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

Config = Sequence[str | Path]
"""nova.conf of one service, in reading order: texts, and paths of files or drop-in directories."""


@dataclass(frozen=True, kw_only=True)
class MdevType:
    """A type of mediated devices that the driver of a card creates, such as ``nvidia-711``.

    :ivar instances: how many of them fit on the card. As with NVIDIA's driver, all of a card have one type.
    """

    id: str
    name: str
    instances: int


@dataclass(frozen=True, kw_only=True)
class EmbeddedDevice:
    """One PCI function of a host; the fields are those of a gpustack snapshot.

    ``sriov_totalvfs`` makes it a physical function (``type-PF``; 0 is enough), ``physical_function`` a virtual
    function.
    """

    address: str
    vendor: str
    product: str
    driver: str | None = "vfio-pci"
    iommu_group: int | None = None
    numa_node: int | None = 0
    sriov_totalvfs: int | None = None
    physical_function: str | None = None
    virtual_functions: tuple[str, ...] = ()
    class_: str | None = None
    mdev_types: tuple[MdevType, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EmbeddedHost:
    """One compute host.

    :param pci: its devices.
    :param config: its own nova.conf; None for that of the API.
    :param cell: the cell of its nova-compute.
    :param numa_nodes: NUMA nodes, with ``cpus_per_node`` CPUs and an equal share of ``memory_mib`` each.
    :param sockets: CPU sockets, with an equal number of the NUMA nodes each.
    :param node: the hypervisor hostname, if it differs from ``name``.
    :param running: whether nova-compute starts with the cloud.
    """

    name: str
    pci: tuple[EmbeddedDevice, ...] = ()
    config: Config | None = None
    cell: str = "cell1"
    numa_nodes: int = 2
    sockets: int = 1
    cpus_per_node: int = 16
    memory_mib: int = 262_144
    node: str | None = None
    running: bool = True


def gpus(
    count: int, *, vendor: str = "10de", product: str = "11b4", bus: int = 0x81, sriov_totalvfs: int | None = None
) -> tuple[EmbeddedDevice, ...]:
    """``count`` GPUs without SR-IOV, bound to vfio-pci, each in its own IOMMU group, spread over two NUMA nodes.

    Their addresses are ``0000:81:00.0``, ``0000:82:00.0`` and so on. The default model is Quadro K4200.
    """
    return tuple(
        EmbeddedDevice(
            address=f"0000:{bus + number:02x}:00.0",
            vendor=vendor,
            product=product,
            iommu_group=40 + number,
            numa_node=number % 2,
            sriov_totalvfs=sriov_totalvfs,
            class_="030000",
        )
        for number in range(count)
    )


def devices_of_snapshot(pci: Iterable[Mapping[str, Any]]) -> tuple[EmbeddedDevice, ...]:
    """The devices of a host from facts of gpustack's collector (the ``pci`` list of a snapshot)."""
    return tuple(_device(entry) for entry in pci)


def _device(entry: Mapping[str, Any]) -> EmbeddedDevice:
    same = {field.name: entry.get(field.name) for field in fields(EmbeddedDevice)}
    same["virtual_functions"] = tuple(entry.get("virtual_functions") or ())
    same["class_"] = entry.get("class")
    same["mdev_types"] = ()
    arguments: dict[str, Any] = same
    return EmbeddedDevice(**arguments)
