"""What a machine is made of: its PCI functions, its kernels and their modules, its distribution.

An example host keeps its description in ``.example/machine.json`` of its directory: that is the hardware that
the stand-in kernel finds when it boots.
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


class Device(_Part):
    """A PCI function.

    :ivar parent: address of the bridge above it; None on a root bus.
    :ivar group: the IOMMU group that the kernel puts it into once an IOMMU is on.
    :ivar net, block, usb: what a driver of the host makes of it, once bound (``eno1``, ``sda``, a USB product).
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
        """The alias by which udev asks for a driver (kernel: ``drivers/pci/pci-sysfs.c``, ``modalias_show``)."""
        sub_vendor, sub_product = self.subsystem or ("0000", "0000")
        base, sub, interface = self.pci_class[:2], self.pci_class[2:4], self.pci_class[4:]
        return (
            f"pci:v{self.vendor.upper():0>8}d{self.product.upper():0>8}"
            f"sv{sub_vendor.upper():0>8}sd{sub_product.upper():0>8}"
            f"bc{base.upper()}sc{sub.upper()}i{interface.upper()}"
        )


class Module(_Part):
    """A kernel module.

    :ivar drivers: the PCI drivers that it registers, and the aliases of the functions that each one takes.
    :ivar needs: the modules that it needs, as ``modules.dep`` has them.
    :ivar early: whether the distribution's initramfs has it without being asked.
    :ivar builtin: whether it is part of the kernel image.
    """

    name: str
    path: str
    drivers: Mapping[str, tuple[str, ...]] = {}
    needs: tuple[str, ...] = ()
    early: bool = False
    builtin: bool = False


class InstalledKernel(_Part):
    """An installed kernel; ``config`` holds the options of its ``/boot/config-…`` that matter here."""

    release: str
    config: Mapping[str, str] = {}
    modules: tuple[Module, ...]

    def module(self, name: str) -> Module | None:
        """The module of that name; ``-`` and ``_`` are the same, as to ``modprobe``."""
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
    """A whole host: hardware, distribution and what its administrator wrote.

    :ivar files: files of the distribution and the administrator by path, beside those every example host has.
    :ivar loader: what starts a machine of Debian's family; one of the RHEL family has GRUB.
    :ivar panics_with: kernel arguments with which this machine does not come up.
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
        """The machine whose directory ``root`` is.

        :raises OSError: when it is not the directory of an example host.
        """
        return cls.model_validate_json((root / _DESCRIPTION).read_text(encoding="utf-8"))

    def save(self, root: Path) -> None:
        """Keep the description in the machine's directory."""
        path = root / _DESCRIPTION
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def kernel(self, release: str) -> InstalledKernel | None:
        """The installed kernel of that release."""
        return next((k for k in self.kernels if k.release == release), None)
