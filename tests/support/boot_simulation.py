"""Hosts for tests: snapshots with changes, and the result of applying a plan to them.

The simulation covers the behaviour that plans rely on: update-grub copies GRUB's defaults into the menu's ordinary
entries, update-initramfs builds an image from the current files, and a boot starts the first entry and binds according
to the image.
"""

from __future__ import annotations

import copy
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping

from gpustack.base.operations import Operation, Reboot, RemoveFile, RunCommand, TrialReboot, WriteFile
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.next_boot.trial import TITLE
from gpustack.prepare.host.own_files import (
    DRACUT,
    DRACUT_SCRIPT,
    SCRIPTS,
    TRIAL_ENTRY,
    VFS_AT_BOOT,
    VFS_NETWORK_UNIT,
    VFS_SCRIPT,
    VFS_UNIT,
)
from gpustack.prepare.host.plan import HostPlan
from gpustack.prepare.host.record import KERNEL_CMDLINE
from support.host_samples import Raw

START = 1_763_700_000
"""Unix time, later than all times in the snapshots."""


def grub_arguments(texts: Mapping[str, str]) -> str:
    """The arguments of ordinary entries, evaluated by a shell as in ``grub-mkconfig``."""
    paths = sorted(path for path in texts if path.startswith("/etc/default/grub.d/") and path.endswith(".cfg"))
    scripts = [texts[path] for path in ("/etc/default/grub", *paths) if path in texts]
    scripts.append('printf %s "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"')
    shell = ["sh", "-c", "\n".join(scripts)]
    return subprocess.run(shell, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}).stdout


def module_options(texts: Mapping[str, str], module: str, option: str) -> Iterator[str]:
    """The values of a module's option in modprobe.d; a file in /etc hides one of the same name elsewhere."""
    directories = ("/usr/lib/modprobe.d/", "/lib/modprobe.d/", "/run/modprobe.d/", "/etc/modprobe.d/")
    files = {
        path.removeprefix(directory): text
        for directory in directories
        for path, text in texts.items()
        if path.startswith(directory) and path.endswith(".conf")
    }
    for _, text in sorted(files.items()):
        for fields in (line.split() for line in text.replace("\\\n", " ").splitlines()):
            if fields[:1] == ["options"] and fields[1].replace("_", "-") == module:
                yield from (setting.partition("=")[2] for setting in fields[2:] if setting.startswith(f"{option}="))


class Machine:
    """A host to which plans are applied."""

    def __init__(self, raw: Raw) -> None:
        self.raw = copy.deepcopy(raw)
        self.now = START
        self.images: dict[str, Raw] = {}
        self.made: dict[str, tuple[str, Raw]] = {}

    @property
    def host(self) -> Host:
        """The current facts."""
        return parse_host(copy.deepcopy(self.raw), "test")

    def texts(self) -> dict[str, str]:
        """The configuration files."""
        return {path: file["text"] for path, file in self.raw["files"].items()}

    def carry_out(self, plan: HostPlan, *, reboot: bool = True) -> None:
        """Apply a plan."""
        for operation in plan.operations:
            self.do(operation, reboot=reboot)

    def do(self, operation: Operation, *, reboot: bool = True) -> None:
        """Apply one operation; each takes ten seconds."""
        self.now += 10
        match operation:
            case WriteFile():
                entry = {"text": operation.content, "mode": operation.mode, "mtime_ns": self.now * 10**9}
                self.raw["files"][operation.path] = entry
            case RemoveFile():
                del self.raw["files"][operation.path]
            case RunCommand(argv=("update-initramfs", "-u", "-k", release)):
                self._update_initramfs(release)
            case RunCommand(argv=("dracut", "--force", image, release)) if image.endswith(".new"):
                self.made[image] = self._dracut(release)
            case RunCommand(argv=("mv", "--force", new, image)):
                self._put(image, self.made.pop(new))
            case RunCommand(argv=("grubby", "--update-kernel=ALL", words, "--no-etc-grub-update")):
                self._grubby(*words.split("=", 1))
            case RunCommand(argv=("kernel-install", "add", release, source)):
                self._kernel_install(release, source)
            case RunCommand(argv=("update-grub",)):
                self._update_grub()
            case TrialReboot():
                if reboot:
                    self.boot(TITLE)
            case Reboot():
                if reboot:
                    self.boot()
            case _:
                raise AssertionError(operation)

    def _update_initramfs(self, release: str) -> None:
        kernel = next(k for k in self.raw["boot"]["kernels"] if k["release"] == release)
        hook = self.texts().get("/etc/initramfs-tools/hooks/gpustack", "")
        loop = next((line for line in hook.splitlines() if line.startswith("for module in ")), "")
        modules = loop.removeprefix("for module in ").removesuffix("; do").split()
        early = [name for name in modules if kernel["modules"].get(name) == "module"]
        files = {path: {"text": text} for path, text in self.texts().items() if path.startswith("/etc/modprobe.d/")}
        script = self.texts().get("/etc/initramfs-tools/scripts/init-top/gpustack")
        if script is not None:
            files["/scripts/init-top/gpustack"] = {"text": script}
        names = [*(["gpustack"] if script is not None else []), "udev"]
        files["/scripts/init-top/ORDER"] = {"text": "".join(f'/scripts/init-top/{name} "$@"\n' for name in names)}
        files["/conf/modules"] = {"text": "".join(f"{name}\n" for name in early)}
        image = {"releases": [release], "modules": sorted(early), "files": files, "links": {}}
        if self.raw["boot"]["loader"] == "systemd-boot":  # only kernel-install copies it to the boot partition
            self.made[f"/boot/initrd.img-{release}"] = release, image
        else:
            self._put(f"/boot/initrd.img-{release}", (release, image))

    def _kernel_install(self, release: str, source: str) -> None:
        """Simulate kernel-install(8): copy the initramfs to the boot partition, and the command line into the entry."""
        kernel = next(k for k in self.raw["boot"]["kernels"] if k["release"] == release)
        assert source == kernel["source"]
        if self.raw["initramfs_tool"] == "dracut":
            self._put(kernel["initramfs"], self._dracut(release))
        elif (image := self.made.pop(f"/boot/initrd.img-{release}", None)) is not None:
            self._put(kernel["initramfs"], image)
        line = self.texts().get("/etc/kernel/cmdline", self.raw["kernel"]["command_line"])
        entry = next(e for e in self.raw["boot"]["entries"] if e["kernel"] == kernel["image"])
        entry["arguments"] = " ".join([*line.split(), f"systemd.machine_id={kernel['image'].split('/')[-3]}"])

    def _dracut(self, release: str) -> tuple[str, Raw]:
        """An image built by dracut from its configuration, with ``hostonly=no``."""
        kernel = next(k for k in self.raw["boot"]["kernels"] if k["release"] == release)
        texts = self.texts()
        settings: dict[str, list[str]] = {}
        for line in texts.get(DRACUT, "").splitlines():
            name, plus, value = line.partition("+=")
            if plus:
                settings[name] = value.strip('"').split()
        files = {path: {"text": texts[path]} for path in settings.get("install_items", ())}
        if "gpustack" in settings.get("add_dracutmodules", ()):
            files["/usr/lib/dracut/hooks/pre-udev/10-gpustack.sh"] = {"text": texts[DRACUT_SCRIPT]}
        forced = settings.get("force_drivers", [])
        assert set(forced) <= set(kernel["modules"]), "dracut fails where a kernel has not got a forced driver"
        loaded = "".join(f"rd.driver.pre={name}\n" for name in forced)
        files["/etc/cmdline.d/20-force_drivers.conf"] = {"text": loaded}
        modules = sorted(name for name in forced if kernel["modules"][name] == "module")
        return release, {"releases": [release], "modules": modules, "files": files, "links": {}}

    def _put(self, path: str, build: tuple[str, Raw]) -> None:
        release, image = build
        kernel = next(k for k in self.raw["boot"]["kernels"] if k["release"] == release)
        kernel.update(initramfs=path, initramfs_mtime_ns=self.now * 10**9)
        self.images[release] = image

    def _grubby(self, option: str, arguments: str) -> None:
        """Simulate grubby(8): ``--args`` replaces arguments of the same name, ``--remove-args`` removes arguments.

        Of ``/etc/kernel/cmdline``, the first line is changed too. If it is missing, the last entry's arguments are
        its content.
        """

        def changed(text: str) -> str:
            line = text.split()
            if option == "--args":
                names = [argument.partition("=")[0] for argument in arguments.split()]
                return " ".join(
                    [argument for argument in line if argument.partition("=")[0] not in names] + arguments.split()
                )
            assert option == "--remove-args"
            return " ".join(argument for argument in line if argument not in arguments.split())

        entries = [entry for entry in self.raw["boot"]["entries"] if entry["source"].endswith(".conf")]
        for entry in entries:
            entry["arguments"] = changed(entry["arguments"])
        file = self.raw["files"].setdefault(KERNEL_CMDLINE, {"text": entries[-1]["arguments"], "mode": "0644"})
        file.update(text=f"{changed(file['text'].partition(chr(10))[0])}\n", mtime_ns=self.now * 10**9)

    def _update_grub(self) -> None:
        self.raw["boot"]["config_mtime"] = self.now * 10**9
        line = grub_arguments(self.texts())
        entries = [entry for entry in self.raw["boot"]["entries"] if entry["title"] != TITLE]
        for entry in entries:
            if not entry["recovery"]:
                base = entry["arguments"].partition(" ro")[0]
                entry["arguments"] = " ".join([base, "ro", *line.split()])
        if (script := self.texts().get(TRIAL_ENTRY)) is not None:
            set_by = dict(re.findall(r"^(GRUB_CMDLINE_LINUX\w*)=(.*)$", script, re.MULTILINE))
            arguments = [argument for value in set_by.values() for argument in shlex.split(value)]
            entries.append({**entries[0], "title": TITLE, "arguments": " ".join([base, "ro", *arguments])})
        self.raw["boot"]["entries"] = entries

    def boot(self, title: str | None = None) -> None:
        """Boot the entry with the given title, or the first."""
        self.now += 60
        raw = self.raw
        chosen = next(entry for entry in raw["boot"]["entries"] if title in (None, entry["title"]))
        raw["kernel"]["booted_at"] = self.now
        raw["kernel"]["command_line"] = f"BOOT_IMAGE=/boot/vmlinuz {chosen['arguments']}"
        raw["iommu"].update(units=["dmar0"], group_count=20, interrupt_remapping=True)
        groups: dict[str, int] = {}
        for entry in sorted(raw["pci"], key=lambda e: str(e["address"])):
            slot = entry["address"].rpartition(".")[0]
            if entry.get("iommu_group") is None:
                entry["iommu_group"] = groups.setdefault(slot, 100 + len(groups))
        self._forget_addresses()
        bound = {
            ids: driver
            for driver in ("vfio-pci", "pci-stub")
            for value in module_options(self.texts(), driver, "ids")
            for ids in value.split(",")
        }
        for argument in raw["kernel"]["command_line"].split():
            name, _, value = argument.partition("=")
            if name in ("vfio-pci.ids", "pci-stub.ids"):
                bound |= dict.fromkeys(value.split(","), name.removesuffix(".ids"))
        addresses = self._bind_addresses()
        for entry in raw["pci"]:
            driver = bound.get(f"{entry['vendor']}:{entry['product']}")
            if driver is not None and entry["address"] not in addresses:
                entry.update(driver=driver, uses={})
            elif entry["driver"] in ("vfio-pci", "pci-stub") and not entry.get("driver_override"):
                entry.update(driver=(entry.get("modules") or [None])[0])
        self._share()
        self.now += 60

    def _share(self) -> None:
        """Simulate the unit of virtual functions: each line of its script names a physical function."""
        texts = self.texts()
        self.raw["files"].pop(RECORD, None)
        self.raw["pci"] = [entry for entry in self.raw["pci"] if entry.get("physical_function") is None]
        for entry in self.raw["pci"]:
            if entry.get("sriov_numvfs"):
                entry.update(sriov_numvfs=0, virtual_functions=[])
        is_run = VFS_AT_BOOT in texts and {VFS_UNIT, VFS_NETWORK_UNIT} & texts.keys()
        lines = texts.get(VFS_SCRIPT, "").splitlines() if is_run else []
        log = ""
        for address, _, _, count, _ in (line.split()[1:] for line in lines if line.startswith("share ")):
            card = next(entry for entry in self.raw["pci"] if entry["address"] == address)
            parts = [f"{address.rpartition(':')[0]}:10.{number}" for number in range(int(count))]
            card.update(sriov_numvfs=int(count), virtual_functions=parts)
            self.raw["pci"] += [
                {**card, "address": part, "driver": None, "modules": [], "iommu_group": 200 + number, "uses": {}}
                | {"physical_function": address, "virtual_functions": [], "sriov_numvfs": None, "sriov_totalvfs": None}
                for number, part in enumerate(parts)
            ]
            log += f"{address} has {count} virtual functions\n"
        if log:
            self.raw["files"][RECORD] = {"text": log, "mode": "0644", "mtime_ns": self.now * 10**9}

    def _forget_addresses(self) -> None:
        """Reset all bindings by address of the previous boot."""
        record = self.raw["files"].pop("/run/gpustack/devices", {"text": ""})["text"]
        retained = {line.split()[0] for line in record.splitlines() if " is kept for " in line}
        for entry in self.raw["pci"]:
            if entry["address"] in retained:
                modules = entry.get("modules") or [None]
                entry.update(driver_override=None, driver=modules[0])

    def _bind_addresses(self) -> set[str]:
        """Simulate the script: each of its lines names a device with its expected identity."""
        texts = self.texts()
        lines = [line for path in SCRIPTS for line in texts.get(path, "").splitlines()]
        functions = {entry["address"]: entry for entry in self.raw["pci"]}
        record, bound = "", set()
        for _, address, driver, *expected in (line.split() for line in lines if line.startswith("keep ")):
            entry = functions.get(address, {})
            keys = ("vendor", "product", "subsystem_vendor", "subsystem_product", "class")
            is_taken = expected[len(keys) :] == ["take"]
            expected = expected[: len(keys)]
            # A built-in driver (a function with a driver and no module) was bound before.
            is_held = bool(entry.get("driver")) and not entry.get("modules") and not entry.get("driver_override")
            if is_held and not is_taken:
                record += f"{address} is left alone: a host driver has it already\n"
            elif entry and all(w in ("-", entry.get(key)) for key, w in zip(keys, expected, strict=True)):
                entry.update(driver=driver, driver_override=driver, uses={})
                record += f"{address} is kept for {driver}\n"
                bound.add(address)
            else:
                record += f"{address} is left alone: it is another device\n"
        if lines:
            self.raw["files"]["/run/gpustack/devices"] = {"text": record, "mode": "0644", "mtime_ns": self.now * 10**9}
        return bound
