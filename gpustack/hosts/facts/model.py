"""The facts of one host: the JSON that the collector prints and that snapshots contain.

``None`` means unknown: the collector could not read the value. Unknown keys are ignored, so this version reads
snapshots of newer collectors with the same ``version``. Snapshots come from other machines, so each value that can
reach a file, a command or a table is validated by a pattern or a maximum length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from gpustack.base.by_key import Key, by_key
from gpustack.hosts.facts import fields
from gpustack.hosts.facts.boot_model import Boot, Tpm
from gpustack.hosts.facts.vgpu_model import MOST_TYPES, Domain, MediatedDevice, Mig, VgpuType, from_older
from gpustack.pci.address import Address

MOST_FUNCTIONS = 8192
"""Maximum number of PCI functions: four times as many as a host with 8 GPUs, 4 NICs and all their VFs has."""
MOST_TEXT = 4 << 20
"""Maximum number of characters in all configuration files together; they are parsed several times."""


class NetworkInterface(fields.FactsModel):
    """A network interface of a function; ``state`` is the kernel's ``operstate``.

    :ivar uppers: the interfaces above it, directly or not: bonds, bridges, VLANs; None if an older collector ran.
    :ivar routes: the routes of the host through it or one of those: ``default`` if the default route is among them;
        None if the routes could not be read.
    """

    name: fields.Line
    state: fields.Line | None = None
    uppers: Annotated[tuple[fields.Line, ...], Field(max_length=4096)] | None = None
    routes: Literal["default", "networks", "none"] | None = None

    @property
    def in_use(self) -> bool:
        """Whether the host uses it. Without a link, it is down even in a bond; some drivers report none."""
        return (
            self.state not in (None, "down", "notpresent")
            or bool(self.uppers)
            or self.routes in ("default", "networks")
        )


class Uses(fields.FactsModel):
    """What the running host makes of a function: the names that the kernel gave it.

    :ivar drivers: the modules of drivers between the function and its network interfaces and disks (virtio, USB, SCSI).
    """

    net: tuple[NetworkInterface, ...] = ()
    block: tuple[fields.Line, ...] = ()
    usb: tuple[fields.Line, ...] = ()
    input: tuple[fields.Line, ...] = ()
    infiniband: tuple[fields.Line, ...] = ()
    drivers: tuple[fields.Line, ...] = ()


class Bar(fields.FactsModel):
    """One base address register; ``size`` in bytes."""

    index: fields.Number
    start: fields.Number
    size: fields.Number
    prefetchable: bool = False
    bits: fields.Number | None = None
    io: bool = False


class Link(fields.FactsModel):
    """The PCI Express link of a function, as sysfs words it (``8.0 GT/s PCIe``, 16 lanes)."""

    speed: fields.Line | None = None
    width: fields.Number | None = None
    max_speed: fields.Line | None = None
    max_width: fields.Number | None = None

    @property
    def lanes(self) -> int | None:
        """The width; None if the device answers with ones in all bits, as one that is suspended or lost."""
        return None if self.width == 63 else self.width

    def __str__(self) -> str:
        """Its speed and width: ``8.0 GT/s PCIe x16``."""
        return f"{self.speed or '?'} x{self.lanes or '?'}"


class ErrorCounters(fields.FactsModel):
    """The AER counters of a function since boot: totals of the kernel's ``aer_dev_*``."""

    correctable: fields.Number | None = None
    nonfatal: fields.Number | None = None
    fatal: fields.Number | None = None


class Acs(fields.FactsModel):
    """The Access Control Services of a port: its registers (PCI Express Base Specification, 7.7.11).

    :ivar capability: 0 without the capability; None if the registers could not be read.
    :ivar unknown: why the registers could not be read.
    """

    capability: fields.Number | None = None
    control: fields.Number | None = None
    unknown: fields.Line | None = None

    @property
    def switched_off(self) -> int:
        """The supported services of the kernel's ``REQ_ACS_FLAGS`` (drivers/iommu/iommu.c) that are switched off."""
        if self.capability is None or self.control is None:
            return 0
        return _REQ_ACS_FLAGS & self.capability & ~self.control


_REQ_ACS_FLAGS = 0x01 | 0x04 | 0x08 | 0x10  # PCI_ACS_SV, PCI_ACS_RR, PCI_ACS_CR, PCI_ACS_UF


class Function(fields.FactsModel):
    """One PCI function (kernel: ``Documentation/ABI/testing/sysfs-bus-pci``).

    :ivar driver_module: the module of the driver; None if the driver is built in.
    :ivar modules: the modules of the running kernel that match it.
    :ivar other_modules: those that match it in other bootable kernels only; empty from older collectors.
    :ivar vgpu_framework: the way in which its driver creates vGPUs: ``vfio``, on virtual functions (NVIDIA, since
        Linux 6.8), or ``mdev``, as mediated devices. None if it creates none here.
    :ivar vgpu_types: the types that its driver supports. With ``vfio``, the card has those of its virtual functions.
    :ivar vgpu_type: the number of the type that a virtual function has.
    :ivar mediated_devices: the active mediated devices of this function.
    :ivar mig: Multi-Instance GPU; None if NVIDIA's driver does not serve it, or does not report it.
    :ivar acs: the Access Control Services of a port; None for other functions, and from older collectors.
    :ivar parent: the bridge above it; None on a root bus.
    :ivar root_bus: the root bus above it, by domain and number (``0000:80``).
    :ivar root_parent: the function that provides this root bus (Intel VMD); None if a host bridge does.
    """

    address: fields.Bdf
    vendor: fields.Hex4
    product: fields.Hex4
    subsystem_vendor: fields.Hex4 | None = None
    subsystem_product: fields.Hex4 | None = None
    pci_class: fields.Hex6 = Field(alias="class")
    revision: fields.Line | None = None
    driver: fields.Line | None = None
    driver_module: fields.Line | None = None
    driver_override: fields.Line | None = None
    modalias: fields.Line | None = None
    modules: tuple[fields.Module, ...] = ()
    other_modules: tuple[fields.Module, ...] = ()
    iommu_group: fields.Number | None = None
    numa_node: fields.Number | None = None
    boot_vga: bool | None = None
    sriov_totalvfs: fields.Number | None = None
    sriov_numvfs: fields.Number | None = None
    physical_function: fields.Bdf | None = None
    virtual_functions: tuple[fields.Bdf, ...] = ()
    vgpu_framework: Literal["vfio", "mdev"] | None = None
    vgpu_types: Annotated[tuple[VgpuType, ...], Field(max_length=MOST_TYPES)] = ()
    vgpu_type: fields.TypeNumber | None = None
    mediated_devices: Annotated[tuple[MediatedDevice, ...], Field(max_length=MOST_TYPES)] = ()
    mig: Mig | None = None
    reset_methods: tuple[fields.Line, ...] = ()
    bars: tuple[Bar, ...] = ()
    link: Link | None = None
    aer: ErrorCounters | None = None
    power_state: fields.Line | None = None
    slot: fields.Line | None = None
    responds: bool | None = None
    serial: fields.Line | None = None
    acs: Acs | None = None
    parent: fields.Bdf | None = None
    root_bus: fields.RootBus | None = None
    root_parent: fields.Bdf | None = None
    uses: Uses = Uses()
    claims: tuple[fields.Line, ...] = ()
    holders: tuple[fields.Line, ...] | None = None

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, ignored_types=(cached_property,))

    _older = model_validator(mode="before")(from_older)

    @cached_property
    def bdf(self) -> Address:
        """The address, parsed."""
        return Address.parse(self.address)

    @cached_property
    def digest(self) -> bytes:
        """A cryptographic digest of all values but those of this very device: its serial number and its counters."""
        return hashlib.blake2b(self.model_dump_json(exclude={"serial", "aer"}).encode(), digest_size=32).digest()

    @cached_property
    def windows(self) -> int:
        """The size of its memory windows, in bytes."""
        return sum(bar.size for bar in self.bars if not bar.io)

    @property
    def matching(self) -> tuple[str, ...]:
        """The modules that match it in any bootable kernel: the same, whichever runs."""
        return tuple(sorted({*self.modules, *self.other_modules}))

    @property
    def ids(self) -> str:
        """``vendor:product``, as ``lspci -n`` prints it."""
        return f"{self.vendor}:{self.product}"

    @property
    def dev_type(self) -> str:
        """Nova's ``dev_type`` (``nova/virt/libvirt/host.py``, ``_get_device_type``): ``type-VF``; ``type-PF`` for a
        function with the SR-IOV capability, even without enabled VFs; else ``type-PCI``."""
        if self.physical_function is not None:
            return "type-VF"
        return "type-PF" if self.sriov_totalvfs is not None else "type-PCI"


class Cpu(fields.FactsModel):
    """The processor; ``physical_address_bits`` bounds the guest's and the host's address space."""

    vendor: fields.Line | None = None
    model_name: fields.Line | None = None
    physical_address_bits: fields.Number | None = None
    virtual_address_bits: fields.Number | None = None
    logical: fields.Number | None = None
    flags: tuple[fields.Line, ...] = ()


class HugePages(fields.FactsModel):
    """The huge pages of one size on a NUMA node: their number, and how many are unused."""

    size_kib: fields.Number
    total: fields.Number | None = None
    free: fields.Number | None = None


class NumaNode(fields.FactsModel):
    """A NUMA node with its processors (``0-31,64-95``), memory in MiB, and huge pages (None: an older collector)."""

    node: fields.Number
    cpus: fields.Line | None = None
    memory_mib: fields.Number | None = None
    huge_pages: Annotated[tuple[HugePages, ...], Field(max_length=64)] | None = None


class Kernel(fields.FactsModel):
    """The running kernel; ``booted_at`` in seconds since the epoch (``btime`` of ``/proc/stat``).

    :ivar log: the newest messages with the words of a sign, each with its time; None if the log could not be read.
        Facts of an older gpustack have no times.
    :ivar nvidia_driver: the release of NVIDIA's loaded driver: ``580.95.05``; None without it.
    :ivar log_dropped: the number of further such messages.
    :ivar log_since: the time of the oldest message that the kernel still had, in seconds since boot; 0 if it had all.
    """

    release: fields.KernelRelease | None = None
    command_line: fields.Arguments | None = None
    booted_at: fields.Number | None = None
    lockdown: fields.Line | None = None
    secure_boot: bool | None = None
    loaded_modules: tuple[fields.Module, ...] = ()
    log: Annotated[tuple[fields.Message, ...], Field(max_length=4096)] | None = None
    log_dropped: fields.Number | None = None
    log_since: fields.Number | None = None
    nvidia_driver: fields.Line | None = None


class ReservedRegion(fields.FactsModel):
    """A range of addresses that a group can't use as it likes; ``direct`` must be mapped one to one."""

    start: int
    end: int
    type: fields.Line


class IommuGroup(fields.FactsModel):
    """The IOMMU group of a GPU: its reserved regions, and the names of all its devices."""

    number: int
    reserved: tuple[ReservedRegion, ...] = ()
    devices: tuple[fields.Line, ...] = ()


class Iommu(fields.FactsModel):
    """IOMMU kind (its ACPI tables) and state (units, groups, interrupt remapping).

    :ivar tables_listed: whether the firmware's tables could be seen at all: a container hides them.
    :ivar no_iommu_mode: whether vfio gives devices out without an IOMMU.
    :ivar groups: those of GPUs and NVSwitches.
    """

    acpi_tables: tuple[fields.Line, ...] = ()
    tables_listed: bool | None = None
    units: tuple[fields.Line, ...] = ()
    group_count: fields.Number = 0
    interrupt_remapping: bool | None = None
    unsafe_interrupts: bool | None = None
    no_iommu_mode: bool | None = None
    groups: tuple[IommuGroup, ...] = ()


class ConfigFile(fields.FactsModel):
    """A configuration file that matters to passthrough; ``mode`` like ``0644``, ``link`` the target if it is a link."""

    text: fields.FileText
    mode: fields.Mode = "0644"
    mtime_ns: fields.Number | None = None
    link: fields.Line | None = None


class Unread(fields.FactsModel):
    """A path that could not be read, and the system's reason."""

    path: fields.Line
    error: fields.Line


class MachineFirmware(fields.FactsModel):
    """Maker and model of the machine, from its firmware."""

    vendor: fields.Line | None = None
    product: fields.Line | None = None


class Decisions(dict[Hashable, Any]):
    """Decisions about a host, which are no part of its facts: equal hosts may have others."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None


class Host(fields.FactsModel):
    """Everything the collector read of one host."""

    version: Literal[1]
    hostname: fields.HostName
    inventory_groups: tuple[fields.HostName, ...] | None = None
    """The groups under which the controller read the host; None if it was read without an inventory."""
    collected_at: fields.Line | None = None
    root: fields.Line = "/"
    privileged: bool | None = None
    architecture: fields.Line | None = None
    os_release: Mapping[str, fields.Line] = {}
    container: fields.Line | None = None
    machine: MachineFirmware = MachineFirmware()
    cpu: Cpu = Cpu()
    memory_mib: fields.Number | None = None
    numa_nodes: tuple[NumaNode, ...] = ()
    kernel: Kernel = Kernel()
    iommu: Iommu = Iommu()
    boot: Boot = Boot()
    initramfs_tool: fields.Line | None = None
    tpm: Tpm = Tpm()
    files: Mapping[fields.HostPath, ConfigFile] = {}
    pci: Annotated[tuple[Function, ...], Field(max_length=MOST_FUNCTIONS)]
    libvirt: fields.Line | None = None
    """The version of libvirt: ``9.0.0``; None if it is unknown."""
    domains: Annotated[tuple[Domain, ...], Field(max_length=MOST_TYPES)] | None = None
    """The domains of libvirt with vGPUs or virtual functions; None in facts of an older collector."""
    unread: tuple[Unread, ...] = ()

    @field_validator("files")
    @classmethod
    def _texts_in_bounds(cls, files: Mapping[str, ConfigFile]) -> Mapping[str, ConfigFile]:
        if sum(len(file.text) for file in files.values()) > MOST_TEXT:
            raise ValueError(f"configuration files of more than {MOST_TEXT >> 20} MiB")
        return files

    @property
    def read_at(self) -> datetime | None:
        """The time of the facts, naive UTC; None if they have none."""
        try:
            moment = datetime.fromisoformat(self.collected_at or "")
            return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
        except (OverflowError, ValueError):  # a host can send any time
            return None

    def at(self, part: object) -> str:
        """The place of a part of the host in findings: ``gpu01 0000:88:00.0``."""
        return f"{self.hostname} {part}"

    def text(self, path: str) -> str:
        """The text of a configuration file; empty without it."""
        return self.files[path].text if path in self.files else ""

    def with_pci(self, functions: Iterable[Function]) -> Host:
        """Return a copy with other functions; unlike ``model_copy``, drop the properties cached from the old ones."""
        copy = self.model_copy(update={"pci": tuple(functions)})
        for name in ("functions", "children", "groups", "slots", "virtual", "assembled", "decisions"):
            copy.__dict__.pop(name, None)
        return copy

    @cached_property
    def assembled(self) -> dict[str, Any]:
        """The cards that :func:`gpustack.hosts.facts.gpus.assemble` returned, by address: each is assembled once."""
        return {}

    @cached_property
    def decisions(self) -> Decisions:
        """Decisions that are made once: the kind of the host, verdicts, and those of its twin, for all of its kind."""
        return Decisions()

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions by address."""
        return {f.address: f for f in self.pci}

    @cached_property
    def children(self) -> dict[str, tuple[Function, ...]]:
        """The functions below each bridge, by its address."""
        return _members((function.parent, function) for function in self.pci)

    @cached_property
    def groups(self) -> dict[int, tuple[Function, ...]]:
        """The functions of each IOMMU group, sorted by address."""
        return _members((function.iommu_group, function) for function in sorted(self.pci, key=lambda f: f.bdf))

    @cached_property
    def slots(self) -> dict[str, tuple[Function, ...]]:
        """The functions of each slot (``0000:88:00``), sorted by address."""
        return _members((function.bdf.slot, function) for function in sorted(self.pci, key=lambda f: f.bdf))

    @cached_property
    def virtual(self) -> dict[str, tuple[Function, ...]]:
        """The virtual functions of each physical function, by its address; each in the order of theirs."""
        in_order = sorted(self.pci, key=lambda function: function.bdf)
        return _members((function.physical_function, function) for function in in_order)


def _members(pairs: Iterable[tuple[Key | None, Function]]) -> dict[Key, tuple[Function, ...]]:
    """The functions by a key; without those that have none."""
    members = by_key((key, function) for key, function in pairs if key is not None)
    return {key: tuple(functions) for key, functions in members.items()}
