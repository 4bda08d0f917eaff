"""Load modules and bind functions: the rules of kmod for ``modprobe.d``, and of the kernel's PCI core.

Sources: modprobe.d(5), modprobe(8), modules-load.d(5); kmod's ``libkmod-module.c`` for the order of soft
dependencies; the kernel's ``drivers/pci/pci-driver.c`` (``driver_override`` first, then dynamic ids, then the
table) and ``drivers/vfio/pci/vfio_pci.c`` (the ``ids`` parameter).
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpustack_demo.examples.machine import Device, InstalledKernel, Machine, Module


def plain(name: str) -> str:
    """A module's name in the kernel's notation."""
    return name.replace("-", "_")


@dataclass
class Configuration:
    """The combined configuration of ``modprobe.d`` and the kernel command line."""

    blacklist: set[str] = field(default_factory=set)
    options: dict[str, list[str]] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    aliases: list[tuple[str, str]] = field(default_factory=list)
    install: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directories: Sequence[Mapping[str, str]], arguments: Sequence[str]) -> Configuration:
        """Read configuration directories (name → text, highest precedence first) and the command line's arguments.

        A file hides those of the same name in later directories; files are read in the order of their names.
        """
        configuration = cls()
        files: dict[str, str] = {}
        for directory in reversed(directories):
            files |= {name: text for name, text in directory.items() if name.endswith(".conf")}
        for _, text in sorted(files.items()):
            for line in text.replace("\\\n", "").splitlines():
                configuration._directive(line.split())
        for argument in arguments:
            name, equals, value = argument.partition("=")
            module, dot, parameter = name.partition(".")
            if name == "modprobe.blacklist":
                configuration.blacklist |= {plain(m) for m in value.split(",")}
            elif dot:
                configuration.options.setdefault(plain(module), []).append(f"{parameter}{equals}{value}")
        return configuration

    def _directive(self, fields: list[str]) -> None:
        if len(fields) < 2 or fields[0].startswith("#"):
            return
        command, name, *operands = fields[0], plain(fields[1]), *fields[2:]
        if command == "blacklist":
            self.blacklist.add(name)
        elif command == "options":
            self.options.setdefault(name, []).extend(operands)
        elif command == "softdep":
            wanted = self.before
            for operand in operands:
                if operand in ("pre:", "post:"):
                    wanted = self.before if operand == "pre:" else self.after
                else:
                    wanted.setdefault(name, []).append(plain(operand))
        elif command == "alias" and operands:
            self.aliases.append((fields[1], plain(operands[0])))
        elif command == "install":
            self.install[name] = " ".join(operands)


class RunningKernel:
    """A running kernel: its loaded modules, and the driver of each function."""

    def __init__(self, machine: Machine, release: InstalledKernel, arguments: Sequence[str], *, iommu: bool) -> None:
        self.release = release
        self.arguments = arguments
        self.iommu = iommu
        self.devices = sorted(machine.devices, key=lambda d: d.address)
        self.loaded: dict[str, dict[str, str]] = {}
        self.drivers: dict[str, str] = {}
        self.overrides: dict[str, str] = {}
        built_in = Configuration.read((), arguments).options
        for module in release.modules:
            if module.builtin:
                self.start(module, built_in.get(module.name, ()))

    def start(self, module: Module, parameters: Iterable[str]) -> None:
        """Insert a module: its drivers bind every matching, unbound function."""
        if module.name in self.loaded:
            return
        split = (p.partition("=") for p in parameters)
        values = {name: value.strip('"') for name, _, value in split}
        self.loaded[module.name] = values
        for driver, aliases in module.drivers.items():
            for device in self.devices:
                if device.address not in self.drivers and self._takes(driver, aliases, values, device):
                    self.drivers[device.address] = driver

    def probe(self, device: Device) -> None:
        """The effect of a write to ``drivers_probe``: offer an unbound function to all registered drivers."""
        for module in self.release.modules:
            values = self.loaded.get(module.name)
            for driver, aliases in module.drivers.items() if values is not None else ():
                if device.address not in self.drivers and self._takes(driver, aliases, values or {}, device):
                    self.drivers[device.address] = driver

    def _takes(self, driver: str, aliases: Iterable[str], values: Mapping[str, str], device: Device) -> bool:
        if driver == "vfio-pci" and (not self.iommu or device.pci_class.startswith("0604")):
            return False  # vfio requires an IOMMU group and ignores bridges
        override = self.overrides.get(device.address)
        if override is not None:
            return override == driver
        return any(fnmatch.fnmatchcase(device.modalias, a) for a in aliases) or any(
            _fits(entry, device) for entry in values.get("ids", "").split(",") if entry
        )


def _fits(entry: str, device: Device) -> bool:
    """Whether an entry of ``ids``, ``vendor:device[:subvendor[:subdevice[:class[:mask]]]]``, matches a device."""
    wanted = [int(part, 16) for part in entry.split(":")]
    sub_vendor, sub_product = device.subsystem or ("0", "0")
    have = [int(x, 16) for x in (device.vendor, device.product, sub_vendor, sub_product)]
    if wanted[: len(have)] != have[: min(len(wanted), len(have))]:
        return False
    if len(wanted) < 5:
        return True
    mask = wanted[5] if len(wanted) > 5 else 0xFFFFFF
    return int(device.pci_class, 16) & mask == wanted[4] & mask


class Userspace:
    """A source of modules, the initramfs or the root file system, with its modules and configuration."""

    def __init__(self, kernel: RunningKernel, modules: Iterable[Module], configuration: Configuration) -> None:
        self.kernel = kernel
        self.modules = {m.name: m for m in modules}
        self.configuration = configuration

    def coldplug(self) -> None:
        """udev's coldplug: request the modules of every function."""
        for device in self.kernel.devices:
            aliases = [
                target
                for pattern, target in self.configuration.aliases
                if fnmatch.fnmatchcase(device.modalias, pattern)
            ]
            matching = [
                m.name
                for m in self.modules.values()
                if any(fnmatch.fnmatchcase(device.modalias, a) for patterns in m.drivers.values() for a in patterns)
            ]
            for name in aliases or matching:
                self.load(name, respect_blacklist=True)

    def load_line(self, line: str, *, respect_blacklist: bool) -> None:
        """Load the module in a line of ``/etc/modules`` or an initramfs's ``conf/modules``: a name and parameters."""
        fields = shlex.split(line, comments=True)
        if fields:
            self.load(fields[0], fields[1:], respect_blacklist=respect_blacklist)

    def load(self, name: str, parameters: Sequence[str] = (), *, respect_blacklist: bool) -> None:
        """Load a module, its dependencies, and the soft dependencies before and after each of them."""
        by_alias = {plain(pattern): target for pattern, target in reversed(self.configuration.aliases)}
        name = by_alias.get(plain(name), plain(name))
        if name not in self.modules or (respect_blacklist and name in self.configuration.blacklist):
            return
        self._insert(name, parameters, ())

    def _insert(self, name: str, parameters: Sequence[str], pending: tuple[str, ...]) -> None:
        module = self.modules.get(name)
        if module is None or name in pending or name in self.kernel.loaded:
            return
        command = self.configuration.install.get(name)
        if command is not None:
            if command in ("/bin/true", "/bin/false", "/usr/bin/true", "/usr/bin/false", "true", "false"):
                return
            raise NotImplementedError(f"the stand-in does not run install commands ({name}: {command})")
        pending = (*pending, name)
        for need in module.needs:
            self._insert(need, (), pending)
        for soft in self.configuration.before.get(name, ()):
            self._insert(soft, (), pending)
        self.kernel.start(module, [*self.configuration.options.get(name, ()), *parameters])
        for soft in self.configuration.after.get(name, ()):
            self._insert(soft, (), pending)
