"""Hosts whose drivers create vGPUs, as files of sysfs and procfs: stand-ins for drivers that no test has.

They follow the documentation:

* ``vfio``: NVIDIA's driver since Linux 6.8 (NVIDIA Virtual GPU Software User Guide, Creating an NVIDIA vGPU on a Linux
  with KVM Hypervisor that Uses a Vendor-Specific VFIO Framework). ``creatable_vgpu_types`` has the head and the columns
  of the driver's format ``%-5d : %s``.
* ``mdev``: mediated devices on a card (Linux, ``Documentation/driver-api/vfio-mediated-device.rst``, and the user
  guide for its older kernels); ``sriov-mdev``: on the virtual functions of a card.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.own_files import VFS_SCRIPT
from gpustack.prepare.host.render import render_virtual_functions
from support.sysroot import SysRoot

CARDS = ("0000:41:00.0", "0000:81:00.0")
TYPES: dict[int, str] = {709: "NVIDIA A16-2Q", 710: "NVIDIA A16-4Q", 711: "NVIDIA A16-8Q", 712: "NVIDIA A16-16Q"}
MIG_TYPES: dict[int, str] = {474: "NVIDIA A100-1-5C", 475: "NVIDIA A100-2-10C", 476: "NVIDIA A100-3-20C"}
UUIDS = ("aa618089-8b16-4d01-a136-25a0f3c73123", "bb618089-8b16-4d01-a136-25a0f3c73123")
INSTANCE = "5ae5d3a1-4c61-4f0e-9c4b-6a2f3b1d7c90"
MODULES = ("nvidia", "nvidia_vgpu_vfio", "mdev")


@dataclass(frozen=True, kw_only=True)
class VgpuHost:
    """The files of a host.

    :ivar framework: ``vfio``, ``mdev``, ``sriov-mdev``; ``none`` without a vGPU driver.
    :ivar types: the types by number.
    :ivar virtual: the number of virtual functions of each card; 0 before its host driver creates them.
    :ivar current: the numbers of the types of the first virtual functions of each card.
    :ivar devices: the mediated devices on the first function of the first card, each with the number of its type.
    :ivar instances: the numbers of the GPU instances (MIG) of each card; None without MIG.
    :ivar absent: attributes that are left out, by the ends of their paths.
    :ivar texts: other texts of attributes, by the ends of their paths.
    """

    framework: str = "vfio"
    cards: Sequence[str] = CARDS
    types: Mapping[int, str] = field(default_factory=lambda: TYPES)
    virtual: int = 4
    current: Sequence[int] = ()
    devices: Mapping[str, int] = field(default_factory=dict)
    instances: Sequence[int] | None = None
    driver: str | None = "nvidia"
    modules: Sequence[str] = MODULES
    absent: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    def attributes(self) -> dict[str, str]:
        """The attributes of vGPUs, by path."""
        files: dict[str, str] = {}
        for minor, card in enumerate(self.cards):
            files[f"/proc/driver/nvidia/gpus/{card}/information"] = f"Model: \t NVIDIA A16\nDevice Minor: \t {minor}\n"
            if self.instances is not None:
                mig = f"/proc/driver/nvidia/capabilities/gpu{minor}/mig"
                files[f"{mig}/config"] = "DeviceFileMinor: 1\nDeviceFileMode: 256\n"
                files |= {f"{mig}/gi{number}/access": "DeviceFileMinor: 30\n" for number in self.instances}
            for number, function in enumerate(self.functions(card)):
                base = f"/sys/bus/pci/devices/{function}"
                if self.framework == "vfio":
                    files |= {f"{base}/nvidia/{name}": text for name, text in self._vendor(number).items()}
                elif self.framework.endswith("mdev"):
                    files |= {f"{base}/{name}": text for name, text in self._mediated().items()}
        return {
            path: next((text for end, text in self.texts.items() if path.endswith(end)), text)
            for path, text in files.items()
            if not path.endswith(tuple(self.absent) or ("\0",))
        }

    def functions(self, card: str) -> list[str]:
        """The functions on which the driver creates vGPUs."""
        if self.framework == "mdev":
            return [card]
        slot = card.removesuffix("00.0")
        return [f"{slot}{number // 8:02x}.{number % 8}" for number in range(4, 4 + self.virtual)]

    def _vendor(self, number: int) -> dict[str, str]:
        """The directory ``nvidia`` of a virtual function. The driver lists no type on a card without room."""
        has_room = len(self.current) < self.virtual
        lines = [f"{kind:<5d} : {name}\n" for kind, name in self.types.items() if has_room]
        return {
            "creatable_vgpu_types": "ID    : vGPU Name\n" + "".join(lines),
            "current_vgpu_type": f"{self.current[number] if number < len(self.current) else 0}\n",
            "gpu_instance_id": "0\n",
            "placement_id": "0\n",
            "vgpu_params": "\n",
        }

    def _mediated(self) -> dict[str, str]:
        """The directory ``mdev_supported_types`` of a function."""
        files = {}
        for number, name in self.types.items():
            base = f"mdev_supported_types/nvidia-{number}"
            mib = int(name.rpartition("-")[2].rstrip("ABCQ")) * 1024
            files[f"{base}/name"] = f"{name}\n"
            files[f"{base}/description"] = f"num_heads=4, frl_config=60, framebuffer={mib}M, max_instance=2\n"
            files[f"{base}/available_instances"] = "0\n" if self.devices else "2\n"
            files[f"{base}/device_api"] = "vfio-pci\n"
            files[f"{base}/create"] = ""
        return files

    def make(self, path: Path) -> SysRoot:
        """Write the files."""
        root = SysRoot(path).host()
        groups = itertools.count(220)
        for card in self.cards:
            parts = [] if self.framework == "mdev" else self.functions(card)
            total = None if self.framework == "mdev" else 16
            for address in (card, *parts):
                root.function(
                    address,
                    vendor="10de",
                    product="25b6",
                    cls="030200",
                    driver=self.driver,
                    group=next(groups),
                    totalvfs=total if address == card else None,
                    numvfs=len(parts),
                )
            root.virtual_functions(card, *parts)
        root.write("/proc/modules", "".join(f"{name} 16384 0 - Live 0x0\n" for name in self.modules))
        for attribute, text in self.attributes().items():
            root.write(attribute, text)
        for group, (uuid, number) in enumerate(self.devices.items(), 90):
            parent = f"/sys/bus/pci/devices/{self.functions(self.cards[0])[0]}"
            root.link(f"{parent}/{uuid}/mdev_type", f"../mdev_supported_types/nvidia-{number}")
            root.link(f"{parent}/{uuid}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
            root.link(f"/sys/bus/mdev/devices/{uuid}", f"../../../..{parent}/{uuid}")
        return root

    def read(self, path: Path, files: Mapping[str, str] | None = None) -> Host:
        """The facts of the host.

        :param files: further files, by path.
        """
        root = self.make(path)
        for name, text in (files or {}).items():
            root.write(name, text)
        return parse_host(collect(str(path)), "gpu01")


def used_by_instance(root: SysRoot, node: str) -> SysRoot:
    """A process of QEMU that has a device node open."""
    root.write("/proc/4711/cmdline", f"qemu-kvm\0-name\0guest=instance-0000002a\0-uuid\0{INSTANCE}\0")
    root.write("/proc/4711/comm", "qemu-kvm\n").write("/proc/4711/maps", "")
    return root.link("/proc/4711/fd/11", node)


def define(root: SysRoot, *devices: str, uuid: str = INSTANCE) -> SysRoot:
    """A domain of libvirt with mediated devices, by uuid, and PCI functions, by address."""
    sources = [
        f"<address uuid='{name}'/>"
        if "-" in name
        else "<address domain='0x{}' bus='0x{}' slot='0x{}' function='0x{}'/>".format(*re.split("[:.]", name))
        for name in devices
    ]
    own = "<address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x0'/>"
    hostdevs = "".join(
        f"    <hostdev mode='subsystem' type='{'mdev' if 'uuid' in source else 'pci'}' managed='no'>\n"
        f"      <source>\n        {source}\n      </source>\n      {own}\n    </hostdev>\n"
        for source in sources
    )
    usb = "<hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>"
    text = (
        f"<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE.\n-->\n<domain type='kvm'>\n  <name>instance-0000002a</name>\n"
        f"  <uuid>{uuid}</uuid>\n  <devices>\n{hostdevs}{usb}\n"
        "    <graphics type='vnc' passwd='secret'/>\n  </devices>\n</domain>\n"
    )
    return root.write(f"/etc/libvirt/qemu/{uuid}.xml", text)


class Programs:
    """Stand-ins for NVIDIA's programs, and the script of the unit on a host's files.

    ``sriov-manage`` makes the virtual functions of a card visible; ``nvidia-smi`` keeps modes and GPU
    instances in files, and has room for two instances.
    """

    def __init__(
        self, root: SysRoot, *, modes: str = "Disabled, Disabled", resets: bool = True, mixes: bool = True
    ) -> None:
        self.root, self.path = root, root.path
        devices, hidden = root.at("/sys/bus/pci/devices"), self.path / "hidden"
        hidden.mkdir()
        for card in (devices / card for card in CARDS if (devices / card / "virtfn0").exists()):
            for link in card.glob("virtfn*"):
                (devices / link.readlink().name).rename(hidden / link.readlink().name)
                link.rename(card / f".{link.name}")
            (card / "sriov_numvfs").write_text("0\n")
        (self.path / "modes").write_text(f"{modes}\n")
        (self.path / "instances").write_text("")
        self._program(
            "sriov-manage",
            f"cd {devices}/$2 && for link in .virtfn*; do\n"
            f'mv "{hidden}/$(basename "$(readlink "$link")")" {devices} && mv "$link" "${{link#.}}"; done\n'
            "ls -d virtfn* | wc -l >sriov_numvfs",
        )
        row = "|   0  MIG $3          19        $n          $n:1     |"
        enable = 'echo "Disabled, Enabled" >modes' if not resets else 'echo "Enabled, Enabled" >modes'
        mix = "touch mixed" if mixes else 'echo "Not Supported"; exit 3'
        self._program(
            "nvidia-smi",
            f'cd {self.path}; echo "$*" >>calls; case "$*" in\n'
            f'*query-gpu*) cat modes ;;\n*"-mig 1") {enable} ;;\n*--gpu-reset) echo "In use"; exit 19 ;;\n'
            '"-q -i "*) [ ! -e mixed ] || echo "    vGPU Heterogeneous Mode         : Enabled" ;;\n'
            f'*"-shm 1") {mix} ;;\n'
            '*-lgi) cat instances ;;\n*-cgi*) shift 4; n=$(wc -l <instances); set -- x x "$1"\n'
            '[ "$n" -lt 2 ] || { echo "Insufficient Resources"; exit 19; }\n'
            f'echo "{row}" >>instances ;;\nesac',
        )

    def _program(self, name: str, text: str) -> None:
        file = self.path / name
        file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        file.chmod(0o755)

    def start(self, cards: Sequence[Sequence[str]], **environment: str) -> tuple[int, list[str]]:
        """The exit status of the script for some cards, and its record."""
        return self.run(render_virtual_functions(cards)[VFS_SCRIPT].content, **environment)

    def run(self, text: str, **environment: str) -> tuple[int, list[str]]:
        """The exit status of a script, and its record."""
        script = self.path / "script"
        script.write_text(text, encoding="utf-8")
        own = {"SYSFS": "sys", "RUN": "run/gpustack", "PATIENCE": "0", "PATH": "/usr/bin:/bin"}
        own |= {"SRIOV_MANAGE": f"{self.path}/sriov-manage", "NVIDIA_SMI": f"{self.path}/nvidia-smi"}
        done = subprocess.run(
            ["sh", str(script)], cwd=self.path, env=own | environment, check=False, capture_output=True
        )
        record = self.root.at(RECORD)
        return done.returncode, record.read_text(encoding="utf-8").splitlines() if record.exists() else []

    def types(self, card: str) -> list[str]:
        """The types of the virtual functions of a card."""
        parts = sorted(self.root.at(f"/sys/bus/pci/devices/{card}").glob("virtfn*/nvidia/current_vgpu_type"))
        return [part.read_text(encoding="ascii").strip() for part in parts]
