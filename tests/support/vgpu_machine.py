"""A host with stand-ins for vGPU drivers to which plans are applied; at each boot, the real script of the unit runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.prepare.host.own_files import VFS_AT_BOOT, VFS_SCRIPT, VFS_UNIT
from support.boot_simulation import Machine
from support.host_samples import snapshot
from support.sysroot import SysRoot
from support.vgpu_hosts import Programs, VgpuHost


class VgpuMachine(Machine):
    """The talk's host with further cards.

    :ivar given: the cards; another value is in force after the next boot.
    :ivar resets: whether a new MIG mode is in force at once; without, it is after the next boot.
    """

    def __init__(self, path: Path, given: VgpuHost, *, resets: bool = True) -> None:
        super().__init__(snapshot("k4200"))
        self.path, self.given, self.resets = path, given, resets
        self.own = self.raw["pci"]
        self.boots = 0
        self.modes = "Disabled, Disabled"
        self.root: SysRoot
        self.start(None)

    def start(self, script: str | None) -> None:
        """Make the cards again, as after a boot, run the script, and read the facts."""
        self.boots += 1
        root = self.root = self.given.make(self.path / f"boot{self.boots}")
        programs = Programs(root, modes=self.modes, resets=self.resets)
        if script is not None:
            programs.run(script)
        mode = (root.path / "modes").read_text(encoding="ascii").strip()
        self.modes = "Enabled, Enabled" if mode.endswith("Enabled") else mode
        self.read()

    def read(self) -> None:
        """Read the facts again."""
        numbers = (self.root.path / "instances").read_text(encoding="ascii").splitlines()
        if self.given.instances is not None:
            for line in numbers:
                mig = "/proc/driver/nvidia/capabilities/gpu0/mig"
                self.root.write(f"{mig}/gi{line.split()[5]}/access", "")
        document = collect(str(self.root.path))
        self.raw["pci"] = [*self.own, *document["pci"]]
        self.raw["domains"] = document["domains"]
        self.raw["kernel"]["loaded_modules"] = document["kernel"]["loaded_modules"]
        self.raw["files"].pop(RECORD, None)
        if RECORD in document["files"]:
            self.raw["files"][RECORD] = document["files"][RECORD]

    def changed(self, change: Callable[[SysRoot], object]) -> None:
        """Change files of the cards, and read the facts again."""
        change(self.root)
        self.read()

    def _share(self) -> None:
        texts = self.texts()
        self.own = [entry for entry in self.raw["pci"] if not entry["address"].startswith(("0000:41:", "0000:81:"))]
        self.start(texts.get(VFS_SCRIPT) if {VFS_AT_BOOT, VFS_UNIT} <= texts.keys() else None)
