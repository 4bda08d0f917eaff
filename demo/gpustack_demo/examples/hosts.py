"""The example hosts: machines before gpustack prepares them."""

from __future__ import annotations

from gpustack_demo.examples.machine import Device, Machine, MemoryBar, Processor
from gpustack_demo.examples.modules import kernel
from gpustack_demo.examples.parts import (
    GIB,
    KIB,
    MIB,
    board,
    console_and_storage,
    h100,
    k4200,
    network,
    root_port,
    wide,
)

_DEBIAN = {
    "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)",
    "NAME": "Debian GNU/Linux",
    "VERSION_ID": "12",
    "VERSION": "12 (bookworm)",
    "VERSION_CODENAME": "bookworm",
    "ID": "debian",
}
_UBUNTU = {
    "PRETTY_NAME": "Ubuntu 24.04.3 LTS",
    "NAME": "Ubuntu",
    "VERSION_ID": "24.04",
    "VERSION": "24.04.3 LTS (Noble Numbat)",
    "VERSION_CODENAME": "noble",
    "ID": "ubuntu",
    "ID_LIKE": "debian",
}
# Debian's default enables the IOMMU for everything but Intel's integrated graphics; Ubuntu's for everything.
_DEBIAN_CONFIG = {"CONFIG_INTEL_IOMMU": "y", "CONFIG_INTEL_IOMMU_DEFAULT_ON_INTGPU_OFF": "y", "CONFIG_AMD_IOMMU": "y"}
_UBUNTU_CONFIG = {"CONFIG_INTEL_IOMMU": "y", "CONFIG_INTEL_IOMMU_DEFAULT_ON": "y", "CONFIG_AMD_IOMMU": "y"}
_RHEL_CONFIG = {"CONFIG_INTEL_IOMMU": "y", "CONFIG_AMD_IOMMU": "y"}
# The initramfs hook of plymouth adds the graphics drivers.
_PLYMOUTH = frozenset({"drm", "nouveau", "amdgpu", "radeon", "ast"})

_INTEL = ("vmx", "ept")
_GRUB = """\
# If you change this file, run 'update-grub' afterwards to update
# /boot/grub/grub.cfg.
# For full documentation of the options in this file, see:
#   info -f grub -n 'Simple configuration'

GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo %s`
GRUB_CMDLINE_LINUX_DEFAULT="%s"
GRUB_CMDLINE_LINUX="%s"

# Uncomment to disable graphical terminal
#GRUB_TERMINAL=console
"""


def _grub(distribution: str, default: str, always: str = "") -> dict[str, str]:
    return {"/etc/default/grub": _GRUB % (distribution, default, always)}


def talk_host(name: str = "gpu01") -> Machine:
    """The host of the talk "GPU on OpenStack" (2017): two Quadro K4200, each with its HDMI audio function.

    The cards are at 0000:84:00 and 0000:88:00; nouveau is in the initramfs and binds both cards at boot.
    """
    return Machine(
        name=name,
        vendor="Supermicro",
        product="SYS-1028GR-TR",
        processor=Processor(
            vendor="GenuineIntel",
            model_name="Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz",
            logical=48,
            physical_address_bits=46,
            flags=_INTEL,
        ),
        memory_mib=257_000,
        numa_nodes=(("0-11,24-35", 128_500), ("12-23,36-47", 128_500)),
        acpi_tables=("DMAR",),
        os_release=_DEBIAN,
        kernels=(
            kernel("6.1.0-40-amd64", config=_DEBIAN_CONFIG, early=_PLYMOUTH, virqfd=True),
            kernel("6.1.0-37-amd64", config=_DEBIAN_CONFIG, early=_PLYMOUTH, virqfd=True),
        ),
        root_uuid="5b7d1c3e-6f0a-4c1d-9a57-0f6a4b8f21d4",
        files=_grub("Debian", "quiet splash"),
        devices=(
            *board(),
            *k4200("0000:84:00", parent="0000:80:02.0", group=50, slot="5", base=0xC8000000),
            *k4200("0000:88:00", parent="0000:80:03.0", group=52, slot="6", base=0xCA000000),
        ),
    )


def rhel9_host(name: str = "gpu05") -> Machine:
    """The talk's cards in a host of the RHEL 9 family: dracut, boot entries with the complete command line."""
    return _rhel(name, "9.4", "9.4 (Blue Onyx)", ("5.14.0-427.42.1.el9_4.x86_64", "5.14.0-427.13.1.el9_4.x86_64"))


def rhel8_host(name: str = "gpu06") -> Machine:
    """The talk's cards in a host of the RHEL 8 family, whose entries reference ``$kernelopts``."""
    return _rhel(name, "8.10", "8.10 (Green Obsidian)", ("4.18.0-553.27.1.el8_10.x86_64",))


def systemd_boot_host(name: str = "gpu07") -> Machine:
    """The talk's cards in a host with systemd-boot, as installed by Debian's package."""
    return talk_host(name).model_copy(update={"loader": "systemd-boot", "files": {}})


def _rhel(name: str, version: str, full: str, releases: tuple[str, ...]) -> Machine:
    os_release = {
        "PRETTY_NAME": f"Rocky Linux {full}",
        "NAME": "Rocky Linux",
        "VERSION_ID": version,
        "VERSION": full,
        "ID": "rocky",
        "ID_LIKE": "rhel centos fedora",
    }
    kernels = tuple(kernel(r, config=_RHEL_CONFIG, early=_PLYMOUTH, virqfd=True) for r in releases)
    return talk_host(name).model_copy(update={"os_release": os_release, "kernels": kernels, "files": {}})


def nvswitch_host(name: str = "gpu02") -> Machine:
    """A server with eight H100 SXM and the four NVSwitches between them, and NVIDIA's driver installed."""
    gpus = (
        ("0000:1b:00.0", 0), ("0000:43:00.0", 0), ("0000:52:00.0", 0), ("0000:61:00.0", 0),
        ("0000:9d:00.0", 1), ("0000:c3:00.0", 1), ("0000:d1:00.0", 1), ("0000:df:00.0", 1),
    )  # fmt: skip
    return Machine(
        name=name,
        vendor="Supermicro",
        product="SYS-821GE-TNHR",
        processor=Processor(
            vendor="GenuineIntel",
            model_name="Intel(R) Xeon(R) Platinum 8480C",
            logical=224,
            physical_address_bits=52,
            virtual_address_bits=57,
            flags=_INTEL,
        ),
        memory_mib=2_063_000,
        numa_nodes=(("0-55,112-167", 1_031_500), ("56-111,168-223", 1_031_500)),
        acpi_tables=("DMAR",),
        os_release=_UBUNTU,
        kernels=(kernel("6.8.0-85-generic", config=_UBUNTU_CONFIG, early=_PLYMOUTH, nvidia=True),),
        root_uuid="0d9a1a52-9f0c-4a0c-8d1e-6c2a4b7e9f10",
        files={
            **_grub("Ubuntu", "quiet splash"),
            "/usr/lib/modprobe.d/nvidia-graphics-drivers.conf": "blacklist nouveau\nblacklist lbm-nouveau\n",
        },
        devices=(
            *console_and_storage("nvme"),
            root_port("0000:28:01.0", "8086:352a", group=8),
            network("0000:29:00.0", "15b3:1021", group=9, name="enp41s0np0", parent="0000:28:01.0"),
            root_port("0000:05:00.0", "1000:c030", group=11),
            *(
                Device(
                    address=f"0000:{bus:02x}:00.0",
                    vendor="10de",
                    product="22a3",
                    subsystem=("10de", "1796"),
                    pci_class="068000",
                    revision="a1",
                    parent="0000:05:00.0",
                    group=20 + number,
                    bars=(MemoryBar(index=0, start=0x9C000000 + (number << 25), size=32 * MIB, bits=64),),
                    link=("16.0 GT/s PCIe", 2),
                    reset_methods=("bus",),
                )
                for number, bus in enumerate((0x07, 0x08, 0x09, 0x0A))
            ),
            *(device for number, (address, node) in enumerate(gpus) for device in h100(address, number, node)),
        ),
    )


def shared_group_host(name: str = "gpu03") -> Machine:
    """A workstation with a card behind a bridge without ACS, together with the network card in use."""
    bridge = "0000:00:1c.0"
    return Machine(
        name=name,
        vendor="ASUSTeK COMPUTER INC.",
        product="Pro WS C422-ACE",
        processor=Processor(
            vendor="GenuineIntel",
            model_name="Intel(R) Xeon(R) W-2245 CPU @ 3.90GHz",
            logical=16,
            physical_address_bits=46,
            flags=_INTEL,
        ),
        memory_mib=128_500,
        numa_nodes=(("0-15", 128_500),),
        acpi_tables=("DMAR",),
        os_release=_DEBIAN,
        kernels=(kernel("6.1.0-40-amd64", config=_DEBIAN_CONFIG, virqfd=True),),
        root_uuid="c3f7b2a0-51a9-4a53-8d6f-90f5a7d3b7ce",
        files=_grub("Debian", "quiet"),
        devices=(
            *console_and_storage("ahci"),
            root_port(bridge, "8086:a190", group=14),
            Device(
                address="0000:65:00.0",
                vendor="10de",
                product="24b0",
                subsystem=("10de", "14ad"),
                pci_class="030000",
                revision="a1",
                parent=bridge,
                group=14,
                boot_vga=False,
                bars=(
                    MemoryBar(index=0, start=0xD7000000, size=16 * MIB),
                    wide(1, 0x3BFE0000000, 256 * MIB),
                    wide(3, 0x3BFF0000000, 32 * MIB),
                    MemoryBar(index=5, start=0xB000, size=128, io=True),
                ),
                link=("16.0 GT/s PCIe", 16),
                reset_methods=("flr", "bus"),
            ),
            Device(
                address="0000:65:00.1",
                vendor="10de",
                product="228b",
                subsystem=("10de", "14ad"),
                pci_class="040300",
                revision="a1",
                parent=bridge,
                group=14,
                bars=(MemoryBar(index=0, start=0xD8000000, size=16 * KIB),),
                reset_methods=("bus",),
            ),
            network("0000:66:00.0", "8086:1533", group=14, name="enp102s0", parent=bridge),
        ),
    )


def epyc_host(name: str = "gpu04") -> Machine:
    """An AMD EPYC server with two Instinct MI210; its command line does not enable the IOMMU."""
    return Machine(
        name=name,
        vendor="GIGABYTE",
        product="G292-Z20-00",
        processor=Processor(
            vendor="AuthenticAMD",
            model_name="AMD EPYC 7543 32-Core Processor",
            logical=64,
            physical_address_bits=48,
            flags=("svm", "npt"),
        ),
        memory_mib=515_000,
        numa_nodes=(("0-63", 515_000),),
        acpi_tables=("IVRS",),
        os_release=_UBUNTU,
        kernels=(kernel("6.8.0-85-generic", config=_UBUNTU_CONFIG, early=_PLYMOUTH),),
        root_uuid="aa5a2d1b-3a53-4f8c-b1a1-12f5a3c0a7d9",
        files=_grub("Ubuntu", "", "console=tty0 console=ttyS0,115200n8"),
        devices=(
            *console_and_storage("nvme", amd=True),
            root_port("0000:40:01.1", "1022:1483", group=30),
            network("0000:41:00.0", "15b3:101d", group=31, name="enp65s0np0", parent="0000:40:01.1"),
            *(
                device
                for number, bus in enumerate((0x83, 0xC3))
                for device in (
                    root_port(f"0000:{bus - 3:02x}:03.1", "1022:1483", group=40 + 2 * number),
                    Device(
                        address=f"0000:{bus:02x}:00.0",
                        vendor="1002",
                        product="740f",
                        subsystem=("1002", "0c34"),
                        pci_class="038000",
                        revision="02",
                        parent=f"0000:{bus - 3:02x}:03.1",
                        group=41 + 2 * number,
                        bars=(
                            wide(0, 0x10000000000 + (number << 37), 64 * GIB),
                            wide(2, 0x11000000000 + (number << 37), 2 * MIB),
                            MemoryBar(index=5, start=0xF0000000 + (number << 20), size=512 * KIB),
                        ),
                        link=("16.0 GT/s PCIe", 16),
                        reset_methods=("bus",),
                        slot=str(3 + number),
                    ),
                )
            ),
        ),
    )
