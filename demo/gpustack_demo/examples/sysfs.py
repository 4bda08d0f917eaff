"""Write ``/sys`` and ``/proc`` of a running kernel as files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpustack_demo.examples.machine import Device, Machine, MemoryBar

_GRAPHICS = frozenset({"nouveau", "ast", "amdgpu", "radeon", "nvidia"})
# The names of drivers' memory in /proc/iomem, for drivers that set one.
_REGIONS = {
    "ahci": "ahci",
    "igb": "igb",
    "nvidia": "nvidia",
    "nvme": "nvme",
    "snd_hda_intel": "ICH HD audio",
    "xhci_hcd": "xhci-hcd",
}
_SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass(frozen=True, kw_only=True)
class RunningHost:
    """The state of a running kernel.

    :ivar modules: the loaded modules, in the order of loading.
    :ivar drivers: the driver of each bound function, by address.
    :ivar overrides: ``driver_override`` of functions, by address.
    :ivar iommu: whether the kernel enabled the IOMMU.
    :ivar unsafe_interrupts: the parameter of vfio_iommu_type1.
    :ivar run: files that the boot left below ``/run``.
    """

    release: str
    command_line: str
    booted_at: int
    modules: tuple[str, ...]
    drivers: Mapping[str, str]
    overrides: Mapping[str, str]
    iommu: bool
    unsafe_interrupts: bool
    run: Mapping[str, str] = field(default_factory=dict)


def write_running(root: Path, machine: Machine, running: RunningHost) -> None:
    """Replace ``/sys`` and ``/proc`` below ``root`` by those of a running kernel."""
    for top in ("sys", "proc", "run"):
        shutil.rmtree(root / top, ignore_errors=True)
    _Writer(root, machine, running).write()


class Offspring:
    """The entries that drivers create for functions: links in both directions, and the devices of host drivers."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self.root = root
        self.devices = {d.address: d for d in machine.devices}
        self.cards = {kind: self.taken(kind) for kind in ("drm", "sound")}
        self.cards |= {"event": self.taken("input"), "usb": self.taken("input") + 1}

    def taken(self, kind: str) -> int:
        """The number of devices of a class so far."""
        return len(list((self.root / "sys/class" / kind).glob("*")))

    def file(self, path: str, content: str | bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())

    def link(self, path: str, target: str) -> None:
        """A relative link from ``path`` to ``target``, both seen from the root."""
        source = self.root / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.symlink_to("../" * path.count("/") + target)

    def place(self, device: Device) -> str:
        """The directory of a function, below its bridges up to the root bus."""
        if device.parent is None:
            domain, bus, _ = device.address.split(":")
            return f"sys/devices/pci{domain}:{bus}/{device.address}"
        return f"{self.place(self.devices[device.parent])}/{device.address}"

    def bind(self, device: Device, driver: str) -> None:
        """Bind a function to a driver."""
        directory = self.place(device)
        (self.root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        self.link(f"{directory}/driver", f"sys/bus/pci/drivers/{driver}")
        self.link(f"sys/bus/pci/drivers/{driver}/{device.address}", directory)
        self.offspring(device, directory, driver)

    def offspring(self, device: Device, directory: str, driver: str) -> None:
        """The devices that a host driver creates for its function; vfio-pci and pci-stub create none."""
        if driver in ("vfio-pci", "pci-stub"):
            return
        if device.net is not None:
            self.file(f"{directory}/net/{device.net}/operstate", device.net_state)
            self.link(f"sys/class/net/{device.net}", f"{directory}/net/{device.net}")
        if device.block is not None:
            (self.root / f"{directory}/block/{device.block}").mkdir(parents=True)
            self.link(f"sys/class/block/{device.block}", f"{directory}/block/{device.block}")
        if device.usb is not None:
            bus = self.number("usb")
            usb = f"{directory}/usb{bus}/{bus}-1"
            self.file(f"{usb}/product", device.usb)
            self.file(f"{usb}/bDeviceClass", "00")
            self.link(f"sys/bus/usb/devices/{bus}-1", usb)
            event = f"event{self.number('event')}"
            (self.root / f"{usb}/input/input3/{event}").mkdir(parents=True)
            self.link(f"sys/class/input/{event}", f"{usb}/input/input3/{event}")
        kind = "drm" if driver in _GRAPHICS else "sound" if driver == "snd_hda_intel" else None
        if kind is not None:
            card = f"card{self.number(kind)}"
            (self.root / f"{directory}/{kind}/{card}").mkdir(parents=True)
            self.link(f"sys/class/{kind}/{card}", f"{directory}/{kind}/{card}")

    def number(self, kind: str) -> int:
        self.cards[kind] += 1
        return self.cards[kind] - 1


class _Writer(Offspring):
    def __init__(self, root: Path, machine: Machine, running: RunningHost) -> None:
        super().__init__(root, machine)
        self.machine = machine
        self.running = running

    def write(self) -> None:
        (self.root / "run").mkdir()
        for path, text in self.running.run.items():
            self.file(path.lstrip("/"), text.removesuffix("\n"))
        for device in self.machine.devices:
            self.device(device)
        self.firmware()
        self.processes()
        for module in self.running.modules:
            (self.root / "sys/module" / module).mkdir(parents=True, exist_ok=True)
        if "vfio_iommu_type1" in self.running.modules:
            parameters = "sys/module/vfio_iommu_type1/parameters"
            unsafe = "Y" if self.running.unsafe_interrupts else "N"
            self.file(f"{parameters}/allow_unsafe_interrupts", unsafe)
        for number, (cpus, memory) in enumerate(self.machine.numa_nodes):
            node = f"sys/devices/system/node/node{number}"
            self.file(f"{node}/cpulist", cpus)
            self.file(f"{node}/meminfo", f"Node {number} MemTotal:       {memory * 1024} kB")
        self.file("sys/devices/system/cpu/online", f"0-{self.machine.processor.logical - 1}")
        if self.running.iommu:
            kind = "ivhd" if "IVRS" in self.machine.acpi_tables else "dmar"
            for unit in range(2):
                (self.root / f"sys/devices/virtual/iommu/{kind}{unit}").mkdir(parents=True)
                self.link(f"sys/class/iommu/{kind}{unit}", f"sys/devices/virtual/iommu/{kind}{unit}")

    def device(self, device: Device) -> None:
        directory = self.place(device)
        (self.root / directory).mkdir(parents=True, exist_ok=True)
        self.link(f"sys/bus/pci/devices/{device.address}", directory)
        for name, value in self.attributes(device):
            self.file(f"{directory}/{name}", value)
        self.file(f"{directory}/config", _config(device))
        driver = self.running.drivers.get(device.address)
        if driver is not None:
            self.bind(device, driver)
        if self.running.iommu:
            group = f"sys/kernel/iommu_groups/{device.group}"
            (self.root / group / "devices").mkdir(parents=True, exist_ok=True)
            self.link(f"{directory}/iommu_group", group)
            self.link(f"{group}/devices/{device.address}", directory)
        if device.slot is not None:
            self.file(f"sys/bus/pci/slots/{device.slot}/address", device.address.rpartition(".")[0])

    def attributes(self, device: Device) -> Iterator[tuple[str, str]]:
        sub_vendor, sub_product = device.subsystem or ("0000", "0000")
        yield from (
            ("vendor", f"0x{device.vendor}"),
            ("device", f"0x{device.product}"),
            ("subsystem_vendor", f"0x{sub_vendor}"),
            ("subsystem_device", f"0x{sub_product}"),
            ("class", f"0x{device.pci_class}"),
            ("revision", f"0x{device.revision}"),
            ("modalias", device.modalias),
            ("numa_node", str(device.numa_node)),
            ("driver_override", self.running.overrides.get(device.address, "(null)")),
            ("resource", "\n".join(_resources(device.bars))),
        )
        if device.boot_vga is not None:
            yield "boot_vga", str(int(device.boot_vga))
        if device.sriov_totalvfs is not None:
            yield "sriov_totalvfs", str(device.sriov_totalvfs)
            yield "sriov_numvfs", "0"
        if device.reset_methods:
            yield "reset_method", " ".join(device.reset_methods)
        if device.link is not None:
            speed, width = device.link
            for name in ("current", "max"):
                yield f"{name}_link_speed", speed
                yield f"{name}_link_width", str(width)

    def firmware(self) -> None:
        for table in self.machine.acpi_tables:
            self.file(f"sys/firmware/acpi/tables/{table}", table.encode())
        locked = self.machine.secure_boot
        self.file(f"sys/firmware/efi/efivars/{_SECURE_BOOT}", b"\x06\0\0\0" + bytes([locked]))
        lockdown = "none [integrity] confidentiality" if locked else "[none] integrity confidentiality"
        self.file("sys/kernel/security/lockdown", lockdown)
        self.file("sys/class/dmi/id/sys_vendor", self.machine.vendor)
        self.file("sys/class/dmi/id/product_name", self.machine.product)

    def processes(self) -> None:
        running, processor = self.running, self.machine.processor
        self.file("proc/cmdline", running.command_line)
        self.file("proc/self/mountinfo", "24 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw")
        self.file("sys/dev/block/8:2/size", "1048576")
        self.file("proc/stat", f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {running.booted_at}")
        modules = (f"{name} 16384 0 - Live 0x0000000000000000" for name in reversed(running.modules))
        self.file("proc/modules", "\n".join(modules))
        self.file("proc/sys/kernel/osrelease", running.release)
        self.file("proc/sys/kernel/hostname", self.machine.name)
        self.file("proc/sys/kernel/arch", "x86_64")
        self.file("proc/meminfo", f"MemTotal:       {self.machine.memory_mib * 1024} kB")
        bits = f"{processor.physical_address_bits} bits physical, {processor.virtual_address_bits} bits virtual"
        self.file(
            "proc/cpuinfo",
            f"processor\t: 0\nvendor_id\t: {processor.vendor}\nmodel name\t: {processor.model_name}\n"
            f"flags\t\t: fpu {' '.join(processor.flags)} nx\naddress sizes\t: {bits}",
        )
        chip = "IR-" if self.machine.interrupt_remapping else ""
        self.file(
            "proc/interrupts",
            f"            CPU0\n   8:          0  {chip}IO-APIC    8-edge      rtc0\n"
            f"  24:          0  {chip}PCI-MSI 458752-edge      PCIe PME",
        )
        self.file("proc/iomem", "\n".join(self.memory()))

    def memory(self) -> Iterator[str]:
        yield "00001000-0009ffff : System RAM"
        for device in sorted(self.machine.devices, key=lambda d: d.address):
            driver = self.running.drivers.get(device.address)
            for bar in device.bars:
                if bar.io:
                    continue
                span = f"{bar.start:08x}-{bar.start + bar.size - 1:08x}"
                yield f"{span} : {device.address}"
                if driver in _REGIONS:
                    yield f"  {span} : {_REGIONS[driver]}"
                elif device.boot_vga and bar.index == 0 and driver is None:
                    yield f"  {span} : BOOTFB"


def _resources(bars: tuple[MemoryBar, ...]) -> Iterator[str]:
    """The lines of ``resource``: start, end and flags of six BARs and the ROM (include/linux/ioport.h)."""
    by_index = {bar.index: bar for bar in bars}
    for index in range(7):
        bar = by_index.get(index)
        if bar is None:
            yield "0x0000000000000000 0x0000000000000000 0x0000000000000000"
            continue
        flags = 0x40101 if bar.io else 0x40200
        flags |= 0x2008 * bar.prefetchable | 0x100004 * (bar.bits == 64)
        yield f"0x{bar.start:016x} 0x{bar.start + bar.size - 1:016x} 0x{flags:016x}"


def _config(device: Device) -> bytes:
    """The configuration space: identifiers, class, and the Device Serial Number capability if there is one."""
    data = bytearray(4096 if device.link else 256)
    data[0:4] = bytes.fromhex(device.vendor)[::-1] + bytes.fromhex(device.product)[::-1]
    data[8:12] = bytes.fromhex(device.revision) + bytes.fromhex(device.pci_class)[::-1]
    data[14] = 1 if device.pci_class.startswith("0604") else 0
    if device.serial is not None:
        data[256:260] = (0x0003 | 1 << 16).to_bytes(4, "little")
        data[260:268] = bytes.fromhex(device.serial.replace("-", ""))[::-1]
    return bytes(data)
