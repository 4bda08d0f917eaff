"""The parts of a machine: PCI functions, kernels and their modules, distribution.

An example host keeps its description in ``.example/machine.json``: the hardware that the stand-in kernel detects.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

_DESCRIPTION = Path(".example/machine.json")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MemoryBar(_Part):
    """A base address register; ``size`` in bytes."""

    index: int
    start: int
    size: int
    prefetchable: bool = False
    bits: Literal[32, 64] = 32
    io: bool = False


def modalias(vendor: str, product: str, subsystem: tuple[str, str], pci_class: str) -> str:
    """The alias by which udev requests a driver (kernel: ``drivers/pci/pci-sysfs.c``, ``modalias_show``)."""
    ids = zip(("v", "d", "sv", "sd"), (vendor, product, *subsystem), strict=True)
    classes = zip(("bc", "sc", "i"), (pci_class[:2], pci_class[2:4], pci_class[4:]), strict=True)
    return "pci:" + "".join([f"{k}{i.upper():0>8}" for k, i in ids] + [f"{k}{i.upper()}" for k, i in classes])


class Device(_Part):
    """A PCI function.

    :ivar parent: address of the bridge above it; None on a root bus.
    :ivar group: its IOMMU group if an IOMMU is enabled.
    :ivar net, block, usb: the devices that a host driver creates once bound (``eno1``, ``sda``, a USB product).
    """

    address: str
    vendor: str
    product: str
    pci_class: str
    group: int
    subsystem: tuple[str, str] | None = None
    revision: str = "00"
    parent: str | None = None
    numa_node: int = 0
    boot_vga: bool | None = None
    bars: tuple[MemoryBar, ...] = ()
    link: tuple[str, int] | None = None
    reset_methods: tuple[str, ...] = ()
    sriov_totalvfs: int | None = None
    slot: str | None = None
    serial: str | None = None
    net: str | None = None
    net_state: str = "up"
    block: str | None = None
    usb: str | None = None

    @property
    def modalias(self) -> str:
        return modalias(self.vendor, self.product, self.subsystem or ("0000", "0000"), self.pci_class)


class Module(_Part):
    """A kernel module.

    :ivar drivers: the PCI drivers that it registers, each with the aliases of its functions.
    :ivar needs: its dependencies, as in ``modules.dep``.
    :ivar early: whether the distribution's initramfs contains it by default.
    :ivar builtin: whether it is built into the kernel image.
    """

    name: str
    path: str
    drivers: Mapping[str, tuple[str, ...]] = {}
    needs: tuple[str, ...] = ()
    early: bool = False
    builtin: bool = False


class InstalledKernel(_Part):
    """An installed kernel; ``config`` holds the relevant options of its ``/boot/config-…``."""

    release: str
    config: Mapping[str, str] = {}
    modules: tuple[Module, ...]

    def module(self, name: str) -> Module | None:
        """The module of that name; ``-`` and ``_`` are equal, as in ``modprobe``."""
        wanted = name.replace("-", "_")
        return next((m for m in self.modules if m.name == wanted), None)


class Processor(_Part):
    """The processors of a machine."""

    vendor: Literal["GenuineIntel", "AuthenticAMD"]
    model_name: str
    logical: int
    physical_address_bits: int
    virtual_address_bits: int = 48
    flags: tuple[str, ...]


class Machine(_Part):
    """A complete host: hardware, distribution and the administrator's files.

    :ivar files: files of the distribution and the administrator by path, in addition to those of every example host.
    :ivar loader: the boot loader of a machine of Debian's family; the RHEL family uses GRUB.
    :ivar panics_with: kernel arguments with which this machine does not boot.
    """

    name: str
    vendor: str
    product: str
    processor: Processor
    memory_mib: int
    numa_nodes: tuple[tuple[str, int], ...]
    acpi_tables: tuple[str, ...]
    interrupt_remapping: bool = True
    secure_boot: bool = False
    os_release: Mapping[str, str]
    kernels: tuple[InstalledKernel, ...]
    root_uuid: str
    files: Mapping[str, str]
    devices: tuple[Device, ...]
    loader: Literal["grub", "systemd-boot"] = "grub"
    panics_with: tuple[str, ...] = ()

    @classmethod
    def load(cls, root: Path) -> Self:
        """The machine in the directory ``root``.

        :raises OSError: when it is not the directory of an example host.
        """
        return cls.model_validate_json((root / _DESCRIPTION).read_text(encoding="utf-8"))

    def save(self, root: Path) -> None:
        """Write the description into the machine's directory."""
        path = root / _DESCRIPTION
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def kernel(self, release: str) -> InstalledKernel | None:
        """The installed kernel of that release."""
        return next((k for k in self.kernels if k.release == release), None)
