"""Fleets of servers as snapshots: twelve kinds with realistic numbers of PCI functions, and hosts that all differ.

Servers of one kind differ in their names, serial numbers, UUIDs, times and a few MiB of memory, as real ones do.
"""

from __future__ import annotations

import copy
import functools
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support.host_samples import Raw, snapshot

UUID = "3c1b6d0e-8d1c-4c43-9b6d-6a1f8f0a7c55"
"""The UUID of the root file system in the sample."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of server.

    :ivar ids: vendor and product of its GPUs, ``10de:20b2``.
    :ivar pci_class: their class.
    :ivar audio: whether each has a sound function.
    :ivar switches: the NVSwitches.
    :ivar ports: the ports of its network cards, each with ``vfs`` virtual functions.
    :ivar uncore: the functions of its processors and chipset.
    :ivar driver: the host's driver of the GPUs.
    """

    name: str
    ids: str
    gpus: int
    pci_class: str = "030200"
    audio: bool = False
    switches: int = 0
    ports: int = 2
    vfs: int = 0
    drives: int = 2
    uncore: int = 60
    driver: str | None = "vfio-pci"

    @property
    def functions(self) -> int:
        """The number of PCI functions."""
        return 2 * self.gpus + self.gpus * self.audio + self.switches + self.ports * (1 + self.vfs) + self.rest

    @property
    def rest(self) -> int:
        """The functions that belong to no slot."""
        return self.drives + self.uncore


KINDS = (
    Kind(name="hgx-h100", ids="10de:2330", gpus=8, switches=4, ports=10, drives=10, uncore=130),
    Kind(name="hgx-a100", ids="10de:20b2", gpus=8, switches=6, ports=10, drives=8, uncore=110),
    Kind(name="dgx-v100", ids="10de:1db5", gpus=8, ports=6, drives=5, uncore=150),
    Kind(name="mi300x", ids="1002:74a1", gpus=8, pci_class="120000", ports=10, drives=10, uncore=90),
    Kind(name="l40s", ids="10de:26b9", gpus=4, audio=True, ports=4, vfs=8, drives=6, uncore=100),
    Kind(name="a40", ids="10de:2235", gpus=4, audio=True, ports=4, drives=4, uncore=96),
    Kind(name="a10-sriov", ids="10de:2236", gpus=2, ports=2, vfs=64, drives=4, uncore=80),
    Kind(name="t4", ids="10de:1eb8", gpus=4, ports=4, drives=4, uncore=116),
    Kind(name="rtx-a6000", ids="10de:2230", gpus=4, pci_class="030000", audio=True, driver="nouveau"),
    Kind(name="flex-170", ids="8086:56c0", gpus=3, pci_class="038000", ports=4, uncore=100),
    Kind(name="p100", ids="10de:15f8", gpus=2, ports=2, uncore=90, driver=None),
    Kind(name="k4200", ids="10de:11b4", gpus=1, pci_class="030000", audio=True, uncore=24, driver="nouveau"),
)


def fleet(size: int, *, kinds: int = len(KINDS), different: bool = False) -> list[Raw]:
    """The facts of hosts, of all kinds in turn.

    :param different: whether each host differs from all others in something that matters.
    """
    return [server(KINDS[number % kinds], number, different=different) for number in range(size)]


def document(hosts: list[Raw]) -> Raw:
    """A snapshot."""
    return {"gpustack_snapshot": 1, "hosts": hosts}


def spec(size: int, *, kinds: int = len(KINDS)) -> Raw:
    """A spec that passes through all GPUs of :func:`fleet`, with a flavor for each model."""
    chosen = KINDS[:kinds]
    models = {
        kind.name: {"match": dict(zip(("vendor", "product"), kind.ids.split(":"), strict=True))} for kind in chosen
    }
    flavors = {f"{kind.name}-1": {"model": kind.name, "vcpus": 8, "ram": "32GiB", "disk": 50} for kind in chosen}
    names = [kind.name for kind in chosen]
    return {
        "version": 1,
        "models": models,
        "hosts": {f"gpu[0000:{max(size - 1, 0):04d}]": {"models": names, "options": {"nvswitch": "isolated"}}},
        "flavors": flavors,
        "nova": {"release": "2025.2", "placement": "schedule"},
    }


def server(kind: Kind, number: int, *, different: bool = False) -> Raw:
    """The facts of one host."""
    raw = copy.deepcopy(_model(kind))
    raw["hostname"] = f"gpu{number:04d}"
    raw["memory_mib"] += number % 7
    raw["collected_at"] = f"2026-11-20T09:{number // 60 % 60:02d}:{number % 60:02d}Z"
    raw["kernel"]["booted_at"] += number
    own = f"{number:08x}-8d1c-4c43-9b6d-6a1f8f0a7c55"
    for entry in (raw["kernel"], *raw["boot"]["entries"]):
        key = "command_line" if "command_line" in entry else "arguments"
        entry[key] = entry[key].replace(UUID, own)
    for entry, key in ((raw["boot"], "config_mtime"), *((k, "initramfs_mtime_ns") for k in raw["boot"]["kernels"])):
        entry[key] += number * 1_000_000_007
    for place, function in enumerate(raw["pci"]):
        if function["serial"] is not None:
            function["serial"] = serial(number, place)
    if different:
        raw["pci"].append(_function(f"0000:fe:{number >> 3 & 31:02x}.{number & 7:x}", "8086:2025", "088000", number))
        raw["files"]["/etc/modprobe.d/site.conf"] = {"text": f"options nvme io_queue_depth={number + 2}\n"}
    return raw


def serial(number: int, place: int) -> str:
    """The PCI serial number of a function: ``00-00-00-04-00-00-00-01``."""
    return "-".join(textwrap.wrap(f"{number:08x}{place:08x}", 2))


@functools.cache
def _model(kind: Kind) -> Raw:
    raw = snapshot("k4200-prepared")
    raw["iommu"]["group_count"] = 4 * kind.functions
    raw["pci"] = list(_functions(kind))
    return raw


def _functions(kind: Kind) -> Iterator[Raw]:
    """Root ports with a GPU, an NVSwitch, a drive or a network card each, and the functions of the processors."""
    number, group = 0x10, 0

    def below(functions: int) -> tuple[str, str]:
        nonlocal number, group
        number, group = number + 1, group + 2
        return f"0000:00:{number >> 3 & 31:02x}.{number & 7:x}", f"0000:{number:02x}:00"

    devices = [
        *[(kind.ids, kind.pci_class, kind.driver)] * kind.gpus,
        *[("10de:22a3", "068000", "vfio-pci")] * kind.switches,
        *[("8086:0a54", "010802", "nvme")] * kind.drives,
    ]
    for ids, pci_class, driver in devices:
        port, slot = below(1)
        if pci_class == kind.pci_class:  # other devices are on ports that share the group of their root complex
            yield _function(port, "8086:2030", "060400", group - 1, driver="pcieport")
        more: Raw = {"driver": driver, "parent": port if pci_class == kind.pci_class else None, "slot": str(number)}
        serial = None if pci_class == "010802" else "0"
        yield _function(f"{slot}.0", ids, pci_class, group, serial=serial, **more)
        if kind.audio and pci_class == kind.pci_class:
            yield _function(f"{slot}.1", "10de:0e0a", "040300", group, **{**more, "driver": "vfio-pci"})
    for port_number in range(kind.ports):
        _, slot = below(1)
        uses = {"net": [{"name": f"ens{port_number}f0", "state": "up"}]}
        names = [f"{slot[:-2]}{n + 1 >> 3:02x}.{n + 1 & 7:x}" for n in range(kind.vfs)]
        physical: Raw = {"driver": "mlx5_core", "uses": uses, "virtual_functions": names}
        if names:
            physical |= {"sriov_totalvfs": kind.vfs, "sriov_numvfs": kind.vfs}
        yield _function(f"{slot}.0", "15b3:1017", "020000", group, **physical)
        for n, name in enumerate(names):
            virtual = {"driver": "mlx5_core", "physical_function": f"{slot}.0"}
            yield _function(name, "15b3:1018", "020000", 10_000 + 100 * group + n, **virtual)
    for n in range(kind.uncore):
        yield _function(f"0000:ff:{n >> 3:02x}.{n & 7:x}", f"8086:{0x2040 + n:04x}", "088000", 5000 + n)


def _function(address: str, ids: str, pci_class: str, group: int, **more: Any) -> Raw:
    vendor, product = ids.split(":")
    window: Raw = {"start": 1 << 40, "size": 1 << 28, "prefetchable": True, "bits": 64, "io": False}
    device = pci_class[:2] in ("02", "03", "12", "06", "01") and not pci_class.startswith("0604")
    return {
        "address": address,
        "vendor": vendor,
        "product": product,
        "subsystem_vendor": vendor,
        "subsystem_product": "0001",
        "class": pci_class,
        "revision": "01",
        "driver": None,
        "driver_override": None,
        "modalias": f"pci:v0000{vendor.upper()}d0000{product.upper()}sv00008086sd00000001bc{pci_class[:2]}sc00i00",
        "modules": ["nouveau"] if vendor == "10de" and pci_class[:2] == "03" else [],
        "iommu_group": group,
        "numa_node": group & 1,
        "boot_vga": False if pci_class == "030000" else None,
        "sriov_totalvfs": None,
        "sriov_numvfs": None,
        "physical_function": None,
        "virtual_functions": [],
        "reset_methods": ["bus"] if device else [],
        "bars": [{"index": n, **window} for n in range(2)] if device else [],
        "link": {"speed": "16.0 GT/s PCIe", "width": 16, "max_speed": "16.0 GT/s PCIe", "max_width": 16}
        if device
        else None,
        "slot": None,
        "serial": None,
        "parent": None,
        "uses": {},
        "claims": [],
        **more,
    }
