"""Files of a host's root, one by one: sysfs, procfs, /boot and /etc in the kernel's layout, for the collector.

A test states only the files that it is about, also rare and broken ones. The example hosts are another idea: a complete
machine (:class:`gpustack_demo.examples.machine.Machine`), whose files follow from its boot.

::

    root = SysRoot(tmp_path).host("gpu01")
    root.function("0000:88:00.0", vendor="10de", product="11b4", cls="030000", driver="nouveau", group=7)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from gpustack_demo.examples.machine import modalias

MEM = 0x200
MEM64 = 0x40000 | 0x100000 | MEM
PREFETCHABLE = 0x2000
IO = 0x100


class SysRoot:
    """One fake root; every method returns the root, so calls can be chained."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._places: dict[str, str] = {}
        self._made: set[str] = set()
        self._iomem: list[str] = []

    # --- files ---

    def at(self, path: str) -> Path:
        """The real path of a path below the root."""
        return self.path / path.lstrip("/")

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> Self:
        """Write a file, and create its directory."""
        place = f"{self.path}/{path.lstrip('/')}"
        self._parents(place)
        with open(place, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if mode != 0o644:
            Path(place).chmod(mode)
        return self

    def link(self, path: str, target: str) -> Self:
        """Make a symbolic link."""
        place = f"{self.path}/{path.lstrip('/')}"
        self._parents(place)
        Path(place).symlink_to(target)
        return self

    def directory(self, path: str) -> Self:
        """Make a directory."""
        self.at(path).mkdir(parents=True, exist_ok=True)
        return self

    def _parents(self, place: str) -> None:
        parent = place.rpartition("/")[0]
        if parent not in self._made:
            Path(parent).mkdir(parents=True, exist_ok=True)
            self._made.add(parent)

    # --- the machine ---

    def host(
        self,
        name: str = "gpu01",
        *,
        release: str = "6.1.0-37-amd64",
        cpu_vendor: str = "GenuineIntel",
        flags: str = "fpu vmx ept sse2",
        physical_bits: int = 46,
        command_line: str = "BOOT_IMAGE=/boot/vmlinuz-6.1.0-37-amd64 root=UUID=0a1b ro quiet",
        memory_kib: int = 527_433_728,
        processors: int = 4,
        secure_boot: bool | None = None,
    ) -> Self:
        """Write the basics of a host: identity, processor, memory, running kernel. ``secure_boot`` None is a BIOS."""
        self.write("/etc/hostname", f"{name}\n")
        self.write("/proc/sys/kernel/hostname", f"{name}\n")
        self.write("/proc/sys/kernel/osrelease", f"{release}\n")
        self.write("/proc/sys/kernel/arch", "x86_64\n")
        self.write("/proc/cmdline", command_line + "\n")
        self.write("/proc/stat", "cpu  1 2 3 4\nbtime 1763688000\nprocesses 4711\n")
        self.write("/proc/meminfo", f"MemTotal:       {memory_kib} kB\nMemFree:        1024 kB\n")
        self.write("/proc/modules", "nouveau 2433024 1 - Live 0x0\nvfio_pci 16384 0 - Live 0x0\n")
        part = (
            "processor\t: {}\nvendor_id\t: " + cpu_vendor + "\nmodel name\t: Example CPU @ 2.60GHz\n"
            f"flags\t\t: {flags}\naddress sizes\t: {physical_bits} bits physical, 48 bits virtual\n\n"
        )
        self.write("/proc/cpuinfo", "".join(part.format(n) for n in range(processors)))
        self.write("/sys/devices/system/cpu/online", f"0-{processors - 1}\n")
        self.write("/sys/devices/system/node/node0/cpulist", f"0-{processors - 1}\n")
        self.write("/sys/devices/system/node/node0/meminfo", f"Node 0 MemTotal:       {memory_kib} kB\n")
        self.write("/sys/class/dmi/id/sys_vendor", "Dell Inc.\n").write("/sys/class/dmi/id/product_name", "C4130\n")
        self.write(
            "/etc/os-release",
            'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\nNAME=\'Debian\'\n',
        )
        self.directory("/sys/firmware").directory("/sys/bus/pci/devices")
        if secure_boot is not None:
            value = b"\x06\0\0\0" + bytes([secure_boot])
            self.write("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", value)
        return self

    def iommu(self, *, table: str = "DMAR", unit: str = "dmar0", remapping: bool = True) -> Self:
        """Add an active IOMMU, with or without interrupt remapping."""
        self.write(f"/sys/firmware/acpi/tables/{table}", b"\0" * 48)
        self.directory(f"/sys/devices/virtual/iommu/{unit}")
        self.link(f"/sys/class/iommu/{unit}", f"../../devices/virtual/iommu/{unit}")
        chip = "IR-" if remapping else ""
        self.write(
            "/proc/interrupts",
            "           CPU0       CPU1\n"
            f"   8:          0          0  {chip}IO-APIC    8-edge      rtc0\n"
            " 120:          0          0  DMAR-MSI    0-edge      dmar0\n"
            f" 125:         17          0  {chip}PCI-MSI 524288-edge      xhci_hcd\n",
        )
        return self

    # --- PCI functions and their devices ---

    def function(
        self,
        address: str,
        *,
        vendor: str,
        product: str,
        cls: str = "030000",
        subsystem: tuple[str, str] = ("10de", "1096"),
        revision: str = "a1",
        driver: str | None = None,
        group: int | None = None,
        numa: int = 0,
        behind: Sequence[str] = (),
        bars: Iterable[tuple[int, int, int]] = (),
        reset: str | None = "flr bus",
        boot_vga: bool | None = None,
        override: str = "(null)",
        totalvfs: int | None = None,
        numvfs: int = 0,
        slot: str | None = None,
        serial: bytes | None = None,
        express: bool = True,
    ) -> Self:
        """Add a PCI function.

        :param behind: the bridges above it, the outermost first.
        :param bars: start, size and resource flags of each BAR.
        :param serial: eight bytes of the Device Serial Number capability.
        """
        above = "/".join(behind)
        domain, bus, _ = (behind[0] if behind else address).split(":")
        place = "/".join(part for part in (f"/sys/devices/pci{domain}:{bus}", above, address) if part)
        self._places[address] = place
        values = {
            "vendor": f"0x{vendor}",
            "device": f"0x{product}",
            "subsystem_vendor": f"0x{subsystem[0]}",
            "subsystem_device": f"0x{subsystem[1]}",
            "class": f"0x{cls}",
            "revision": f"0x{revision}",
            "numa_node": str(numa),
            "driver_override": override,
            "modalias": modalias(vendor, product, subsystem, cls),
        }
        if reset is not None:
            values["reset_method"] = reset
        if boot_vga is not None:
            values["boot_vga"] = str(int(boot_vga))
        if totalvfs is not None:
            values |= {"sriov_totalvfs": str(totalvfs), "sriov_numvfs": str(numvfs)}
        if express:
            values |= {
                "current_link_speed": "8.0 GT/s PCIe",
                "current_link_width": "16",
                "max_link_speed": "8.0 GT/s PCIe",
                "max_link_width": "16",
            }
        for name, value in values.items():
            self.write(f"{place}/{name}", value + "\n")
        lines = []
        for start, size, flags in bars:
            lines.append(f"0x{start:016x} 0x{start + size - 1 if size else 0:016x} 0x{flags:016x}")
            if size and start and flags & MEM:
                self._iomem.append(f"  {start:08x}-{start + size - 1:08x} : {address}\n")
        lines += [f"0x{0:016x} 0x{0:016x} 0x{0:016x}"] * (13 - len(lines))
        self.write(f"{place}/resource", "\n".join(lines) + "\n")
        if serial is not None:
            self.write(f"{place}/config", config_space(serial))
        self.link(f"/sys/bus/pci/devices/{address}", "../../../" + place[len("/sys/") :])
        up = "../" * (place.count("/") - 1)
        if driver is not None:
            self.directory(f"/sys/bus/pci/drivers/{driver}")
            self.link(f"{place}/driver", f"{up}bus/pci/drivers/{driver}")
        if group is not None:
            self.directory(f"/sys/kernel/iommu_groups/{group}/devices")
            self.link(f"{place}/iommu_group", f"{up}kernel/iommu_groups/{group}")
            self.link(f"/sys/kernel/iommu_groups/{group}/devices/{address}", f"../../../../{place[len('/sys/') :]}")
        if slot is not None:
            self.write(f"/sys/bus/pci/slots/{slot}/address", address.rpartition(".")[0] + "\n")
        return self

    def virtual_functions(self, physical: str, *addresses: str) -> Self:
        """Link existing virtual functions to their physical function."""
        for number, address in enumerate(addresses):
            self.link(f"{self._places[physical]}/virtfn{number}", f"../{address}")
            self.link(f"{self._places[address]}/physfn", f"../{physical}")
        return self

    def device(self, address: str, below: str, *, classes: str, **attributes: str) -> Self:
        """Add a device below a function (``below``: its path there), listed in a class or bus directory."""
        place = f"{self._places[address]}/{below}"
        self.directory(place)
        for name, value in attributes.items():
            self.write(f"{place}/{name}", value + "\n")
        depth = "../" * (classes.count("/") - 1)
        self.link(f"{classes}/{below.rpartition('/')[2]}", depth + place[len("/sys/") :])
        return self

    def net(self, address: str, name: str, state: str = "up") -> Self:
        """A network interface."""
        return self.device(address, f"net/{name}", classes="/sys/class/net", operstate=state)

    def disk(self, address: str, name: str, below: str = "ata1/host0/target0:0:0/0:0:0:0/block") -> Self:
        """A disk with one partition."""
        self.device(address, f"{below}/{name}", classes="/sys/class/block")
        return self.device(address, f"{below}/{name}/{name}1", classes="/sys/class/block")

    def usb(self, address: str, name: str = "1-2", *, maker: str = "Logitech", product: str = "USB Keyboard") -> Self:
        """A USB device."""
        values = {"manufacturer": maker, "product": product, "bDeviceClass": "00"}
        return self.device(address, f"usb1/{name}", classes="/sys/bus/usb/devices", **values)

    def iomem(self, *lines: str) -> Self:
        """Write ``/proc/iomem``: the BARs of all functions so far, and further lines."""
        return self.write("/proc/iomem", "00000000-00000fff : Reserved\n" + "".join([*self._iomem, *lines]))

    # --- kernels and boot loader ---

    def kernel(
        self,
        release: str = "6.1.0-37-amd64",
        *,
        modules: Iterable[str] = (
            "vfio/pci/vfio-pci",
            "vfio/pci/vfio-pci-core",
            "vfio/vfio",
            "gpu/drm/nouveau/nouveau",
        ),
        builtin: Iterable[str] = (),
        aliases: Iterable[tuple[str, str]] = (),
        image: str = "/boot/vmlinuz-{}",
        initramfs: str | None = "/boot/initrd.img-{}",
    ) -> Self:
        """Add a bootable kernel with its modules."""
        self.write(image.format(release), b"MZ")
        if initramfs is not None:
            self.write(initramfs.format(release), b"070701")
        base = f"/lib/modules/{release}"
        self.write(f"{base}/modules.dep", "".join(f"kernel/drivers/{name}.ko.xz:\n" for name in modules))
        self.write(f"{base}/modules.builtin", "".join(f"kernel/drivers/{name}.ko\n" for name in builtin))
        lines = ["# Aliases extracted from modules themselves.\n", *(f"alias {p} {m}\n" for p, m in aliases)]
        return self.write(f"{base}/modules.alias", "".join(lines))


def config_space(serial: bytes) -> bytes:
    """4096 bytes of configuration space: an extended capability 1 (AER), then the Device Serial Number."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x150 << 20).to_bytes(4, "little")
    space[0x150:0x154] = (0x0003 | 1 << 16).to_bytes(4, "little")
    space[0x154:0x15C] = serial
    return bytes(space)


NOUVEAU = ("pci:v000010DEd*sv*sd*bc03sc*i*", "nouveau")
NVIDIAFB = ("pci:v000010DEd*sv*sd*bc03sc00i00*", "nvidiafb")
HDA = ("pci:v000010DEd*sv*sd*bc04sc03i00*", "snd_hda_intel")
IGB = ("pci:v00008086d00001521sv*sd*bc*sc*i*", "igb")


def talk_host(path: Path) -> SysRoot:
    """A Dell C4130 with two Quadro K4200, each with its audio function; the console is on a Matrox card."""
    root = SysRoot(path).host("gpu01").iommu().kernel(aliases=[NOUVEAU, NVIDIAFB, HDA, IGB])
    root.function("0000:80:02.0", vendor="8086", product="2f04", cls="060400", driver="pcieport", group=40)
    root.function("0000:80:03.0", vendor="8086", product="2f08", cls="060400", driver="pcieport", group=41)
    for bus, bridge, group, base in (("88", "0000:80:02.0", 7, 0xC8000000), ("89", "0000:80:03.0", 8, 0xCC000000)):
        root.function(
            f"0000:{bus}:00.0",
            vendor="10de",
            product="11b4",
            driver="nouveau",
            group=group,
            numa=1,
            behind=[bridge],
            bars=[
                (base, 16 << 20, MEM),
                (0x3FFE0000000 + (base << 4), 256 << 20, MEM64 | PREFETCHABLE),
                (0, 0, 0),
                (0x3FFF0000000 + (base << 4), 32 << 20, MEM64 | PREFETCHABLE),
                (0, 0, 0),
                (0x8000, 128, IO),
            ],
            reset="bus",
            boot_vga=False,
            slot="3" if bus == "88" else "4",
            serial=bytes(range(8)) if bus == "88" else None,
        )
        root.function(
            f"0000:{bus}:00.1",
            vendor="10de",
            product="0e0a",
            cls="040300",
            driver="snd_hda_intel",
            group=group,
            numa=1,
            behind=[bridge],
            bars=[(base + (16 << 20), 16 << 10, MEM)],
            reset="bus",
        )
        card = "card1" if bus == "88" else "card2"
        root.device(f"0000:{bus}:00.0", f"drm/{card}", classes="/sys/class/drm")
        root.device(f"0000:{bus}:00.1", f"sound/{card}", classes="/sys/class/sound")
        root.device(f"0000:{bus}:00.1", f"sound/{card}/input9/event{bus}", classes="/sys/class/input")
    root.function(
        "0000:0b:00.0", vendor="102b", product="0534", driver="mgag200", group=30, boot_vga=True, express=False
    )
    root.function("0000:01:00.0", vendor="8086", product="1521", cls="020000", driver="igb", group=20, reset="flr")
    root.net("0000:01:00.0", "eno1")
    root.function("0000:00:1f.2", vendor="8086", product="8d02", cls="010601", driver="ahci", group=21, reset=None)
    root.disk("0000:00:1f.2", "sda")
    root.function("0000:00:14.0", vendor="8086", product="8d31", cls="0c0330", driver="xhci_hcd", group=22)
    root.usb("0000:00:14.0")
    root.device("0000:00:14.0", "usb1/1-2/1-2:1.0/input/input3/event3", classes="/sys/class/input")
    return root.iomem()


def nvswitch_host(path: Path) -> SysRoot:
    """An eight-GPU HGX A100 with six NVSwitches, on an AMD host in UEFI mode."""
    root = SysRoot(path).host("hgx01", cpu_vendor="AuthenticAMD", flags="svm npt", physical_bits=48, secure_boot=True)
    root.iommu(table="IVRS", unit="ivhd0").kernel(aliases=[NOUVEAU])
    for number in range(8):
        bridge = f"0000:{0x10 + number * 0x10:02x}:01.0"
        root.function(bridge, vendor="1022", product="1483", cls="060400", driver="pcieport", group=100 + number)
        root.function(
            f"0000:{0x17 + number * 0x10:02x}:00.0",
            vendor="10de",
            product="20b2",
            cls="030200",
            subsystem=("10de", "1463"),
            driver="nvidia",
            group=10 + number,
            numa=number // 2,
            behind=[bridge],
            bars=[
                (0x90000000 + (number << 25), 16 << 20, MEM),
                (1 << (45 + number % 2), 128 << 30, MEM64 | PREFETCHABLE),
            ],
            totalvfs=16,
        )
    for number in range(6):
        root.function(
            f"0000:{0xC0 + number:02x}:00.0",
            vendor="10de",
            product="1af1",
            cls="068000",
            driver="nvidia-nvswitch",
            group=30 + number,
        )
    return root.iomem()
