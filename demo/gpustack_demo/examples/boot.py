"""A stand-in for a boot, as far as binding: GRUB's entry, the kernel, the initramfs and the start of the system.

The order is that of initramfs-tools(7) and systemd: first the scripts of ``init-top``, among them udev, which requests
the modules of every function; then the modules of ``conf/modules``. On the root file system udev requests all modules
again, then those of ``modules-load.d`` are loaded. If two steps are concurrent, the worse one for passthrough is first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpustack_demo.examples import grub, images, redhat, systemd_boot
from gpustack_demo.examples.distribution import object_path
from gpustack_demo.examples.errors import StandInError
from gpustack_demo.examples.kmod import Configuration, RunningKernel, Userspace
from gpustack_demo.examples.machine import InstalledKernel, Machine
from gpustack_demo.examples.script import run_script
from gpustack_demo.examples.sysfs import RunningHost, write_running

_MODPROBE = ("etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d")
_MODULES_LOAD = ("etc/modules-load.d", "run/modules-load.d", "usr/lib/modules-load.d")
_DEFAULT_ON = ("CONFIG_INTEL_IOMMU_DEFAULT_ON", "CONFIG_INTEL_IOMMU_DEFAULT_ON_INTGPU_OFF")


def boot(root: Path, *, at: int | None = None) -> str:
    """Boot an example host; return a description.

    :param at: the time of the boot, in seconds since the epoch. The default is now, after waiting for the next full
        second, so that all files written before are older.
    """
    machine = Machine.load(root)
    once, entry = _chosen(root, machine)
    if once is not None and (bad := set(machine.panics_with) & set(entry.arguments.split())):
        return f"Kernel panic - not syncing: {', '.join(sorted(bad))}; then {boot(root, at=at)}"
    release = machine.kernel(entry.release)
    has_systemd_boot = machine.loader == "systemd-boot"
    image = root / (
        systemd_boot.image_of(entry.release) if has_systemd_boot else redhat.image_of(machine, entry.release)
    )
    if release is None or not image.exists():
        raise StandInError(f"Kernel panic - not syncing: no kernel or initramfs of {entry.release}")
    arguments = entry.arguments.split()
    kernel = RunningKernel(machine, release, arguments, iommu=iommu_on(machine, release, arguments))
    initramfs = images.read_image(image.read_bytes())
    run_files = _initramfs(kernel, initramfs)
    _root_file_system(kernel, root)
    unsafe = kernel.loaded.get("vfio_iommu_type1", {}).get("allow_unsafe_interrupts", "0")
    running = RunningHost(
        release=release.release,
        command_line=entry.arguments,
        booted_at=at if at is not None else _next_second(),
        modules=tuple(name for name in kernel.loaded if not _builtin(release, name)),
        drivers=kernel.drivers,
        overrides=kernel.overrides,
        iommu=kernel.iommu,
        unsafe_interrupts=unsafe in ("1", "Y", "y"),
        run=run_files,
    )
    write_running(root, machine, running)
    return f"Linux {release.release} is up, with {entry.arguments!r}"


def _chosen(root: Path, machine: Machine) -> tuple[str | None, grub.Entry]:
    """The entry to boot, and its id if GRUB boots it only once."""
    if redhat.is_redhat(machine):
        return None, redhat.default_entry(root, machine)
    if machine.loader == "systemd-boot":
        return None, systemd_boot.default_entry(root, machine)
    once = grub.take_once(root)
    return once, grub.default_entry(root, once)


def _builtin(release: InstalledKernel, name: str) -> bool:
    module = release.module(name)
    return module is not None and module.builtin


def _next_second() -> int:
    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(1 - time.time() % 1)
    return int(time.time())


def iommu_on(machine: Machine, release: InstalledKernel, arguments: Sequence[str]) -> bool:
    """Whether the kernel enables the IOMMU (Documentation/admin-guide/kernel-parameters.txt)."""

    def words(name: str) -> list[str]:
        return [value for a in arguments if a.startswith(f"{name}=") for value in a.partition("=")[2].split(",")]

    if "off" in words("iommu"):
        return False
    if "IVRS" in machine.acpi_tables:
        return "off" not in words("amd_iommu")
    if "DMAR" not in machine.acpi_tables or "off" in words("intel_iommu"):
        return False
    return "on" in words("intel_iommu") or any(release.config.get(option) == "y" for option in _DEFAULT_ON)


def _initramfs(kernel: RunningKernel, files: Mapping[str, tuple[int, bytes]]) -> dict[str, str]:
    """Play the initramfs; return the files that it leaves below ``/run``."""
    run: dict[str, str] = {}
    texts = {name: content.decode(errors="replace") for name, (_, content) in files.items()}
    configuration = Configuration.read(
        [
            {n.rpartition("/")[2]: t for n, t in texts.items() if n.rpartition("/")[0] == directory}
            for directory in _MODPROBE
        ],
        kernel.arguments,
    )
    tree = f"usr/lib/modules/{kernel.release.release}"
    present = [m for m in kernel.release.modules if f"{tree}/{object_path(m)}" in files]
    userspace = Userspace(kernel, present, configuration)
    if "usr/lib/initrd-release" in files:
        return _dracut(userspace, texts)
    for line in texts.get("scripts/init-top/ORDER", "").splitlines():
        name = line.split()[0].lstrip("/")
        if name == "scripts/init-top/udev":
            userspace.coldplug()
        else:
            run.update(run_script(name, texts[name], userspace))
    for line in texts.get("conf/modules", "").splitlines():
        userspace.load_line(line, respect_blacklist=False)
    return run


def _dracut(userspace: Userspace, texts: Mapping[str, str]) -> dict[str, str]:
    """Play a dracut image: its pre-udev hooks, the modules of ``rd.driver.pre``, then udev (dracut.bootup(7))."""
    run: dict[str, str] = {}
    for name in sorted(name for name in texts if name.startswith("usr/lib/dracut/hooks/pre-udev/")):
        run.update(run_script(name, texts[name], userspace))
    arguments = [
        argument for name, text in texts.items() if name.startswith("etc/cmdline.d/") for argument in text.split()
    ]
    for argument in (*arguments, *userspace.kernel.arguments):
        name, _, modules = argument.partition("=")
        for module in modules.split(",") if name == "rd.driver.pre" else ():
            userspace.load(module, respect_blacklist=False)
    userspace.coldplug()
    return run


def _root_file_system(kernel: RunningKernel, root: Path) -> None:
    def directory(path: str, pattern: str = "*.conf") -> dict[str, str]:
        return {p.name: p.read_text(encoding="utf-8", errors="replace") for p in (root / path).glob(pattern)}

    configuration = Configuration.read([directory(d) for d in _MODPROBE], kernel.arguments)
    loadable = [m for m in kernel.release.modules if not m.builtin]
    userspace = Userspace(kernel, loadable, configuration)
    userspace.coldplug()
    files: dict[str, str] = {}
    for path in reversed(_MODULES_LOAD):
        files |= directory(path)
    for _, text in sorted(files.items()):
        for line in text.splitlines():
            if not line.lstrip().startswith((";", "#")):
                userspace.load_line(line, respect_blacklist=True)
