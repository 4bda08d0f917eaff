"""A stand-in for a running kernel: writes to the example host's sysfs have the same effect as on a real host.

Sources: the kernel's ``Documentation/ABI/testing/sysfs-bus-pci`` (``bind``, ``unbind``, ``driver_override``,
``drivers_probe``). A real write returns after its effect; here the effect follows shortly after the write.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from gpustack_demo.examples.kmod import plain
from gpustack_demo.examples.machine import Device, Machine, Module
from gpustack_demo.examples.sysfs import Offspring

_SECONDS = 0.01
_CLASSES = ("drm", "sound", "net", "block", "graphics")


class LiveKernel:
    """Serves the sysfs below a root while the context lasts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bus = root / "sys/bus/pci"
        self.machine = Machine.load(root)
        self.devices = {device.address: device for device in self.machine.devices}
        release = (root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8").strip()
        kernel = self.machine.kernel(release)
        self.modules: tuple[Module, ...] = kernel.modules if kernel is not None else ()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._files()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the kernel, as before a boot."""
        self._stop.set()
        self._thread.join()

    def _files(self) -> None:
        for driver in (self.bus / "drivers").iterdir():
            for name in ("bind", "unbind"):
                if not os.path.lexists(driver / name):
                    (driver / name).touch()
        if not (self.bus / "drivers_probe").exists():
            (self.bus / "drivers_probe").touch()

    def _serve(self) -> None:
        while not self._stop.wait(_SECONDS):
            self._files()
            for driver in sorted((self.bus / "drivers").iterdir()):
                for address in _written(driver / "unbind"):
                    self.unbind(address, driver.name)
            for address in _written(self.bus / "drivers_probe"):
                self.probe(address)
            for address in self.devices:
                override = self.bus / "devices" / address / "driver_override"
                if override.read_text(encoding="utf-8") == "\n":
                    override.write_text("(null)\n", encoding="utf-8")

    def _driver(self, address: str) -> str | None:
        link = self.bus / "devices" / address / "driver"
        return link.readlink().name if link.is_symlink() else None

    def unbind(self, address: str, driver: str) -> None:
        """Unbind a function from its driver, and remove everything that the driver created."""
        if self._driver(address) != driver:
            return
        directory = (self.bus / "devices" / address).resolve()
        for kind in _CLASSES:
            for link in (self.root / "sys/class" / kind).glob("*"):
                if directory in link.resolve().parents:
                    link.unlink()
            shutil.rmtree(directory / kind, ignore_errors=True)
        (self.bus / "drivers" / driver / address).unlink(missing_ok=True)
        (directory / "driver").unlink()
        self._free_memory(address)

    def _free_memory(self, address: str) -> None:
        """Remove the names below a function's BARs from ``/proc/iomem``."""
        iomem = self.root / "proc/iomem"
        remaining: list[str] = []
        inside = False
        for line in iomem.read_text(encoding="utf-8").splitlines(keepends=True):
            is_name = line.startswith("  ")
            if not is_name:
                inside = line.rstrip().endswith(f" : {address}")
            if not (is_name and inside):
                remaining.append(line)
        iomem.write_text("".join(remaining), encoding="utf-8")

    def probe(self, address: str) -> None:
        """Offer an unbound function to the registered drivers."""
        device = self.devices.get(address)
        if device is None or self._driver(address) is not None:
            return
        directory = self.bus / "devices" / address
        for driver in self._candidates(device, (directory / "driver_override").read_text(encoding="utf-8").strip()):
            if driver == "vfio-pci" and not (directory / "iommu_group").is_symlink():
                continue
            Offspring(self.root, self.machine).bind(device, driver)
            return

    def _candidates(self, device: Device, override: str) -> Iterator[str]:
        for module in self.modules:
            if not module.builtin and not (self.root / "sys/module" / module.name).is_dir():
                continue
            for driver, aliases in module.drivers.items():
                is_asked = override == driver
                if is_asked or (
                    override in ("", "(null)") and any(fnmatch.fnmatchcase(device.modalias, a) for a in aliases)
                ):
                    yield driver


def _written(path: Path) -> list[str]:
    """The lines written to a file of sysfs since the last call."""
    with contextlib.suppress(OSError):
        if path.is_file() and (text := path.read_text(encoding="utf-8")):
            path.write_text("", encoding="utf-8")
            return text.split()
    return []


def modprobe(root: Path, arguments: list[str]) -> str:
    """Play ``modprobe MODULE``: load the module with its dependencies, and register their drivers."""
    machine = Machine.load(root)
    kernel = machine.kernel((root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8").strip())
    wanted = [plain(name) for name in arguments]
    loaded: list[str] = []
    while wanted and kernel is not None:
        module = kernel.module(wanted.pop(0))
        if module is None:
            raise FileNotFoundError(f"modprobe: FATAL: Module {' '.join(arguments)} not found")
        wanted += module.needs
        if not module.builtin and not (root / "sys/module" / module.name).exists():
            (root / "sys/module" / module.name).mkdir(parents=True)
            loaded.append(module.name)
        for driver in module.drivers:
            (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    modules = root / "proc/modules"
    lines = "".join(f"{name} 16384 0 - Live 0x0000000000000000\n" for name in loaded)
    modules.write_text(lines + modules.read_text(encoding="utf-8"), encoding="utf-8")
    return f"loaded {', '.join(loaded) or 'already'}"
