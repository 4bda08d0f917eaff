"""Hosts whose next boot does not use changed files, or that a plan can't prepare because another kernel boots."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.boot_model import BootKernel, Mount
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine, canonical
from gpustack.prepare.host.next_boot.model import NextBoot

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "rootfs", "squashfs", "erofs", "iso9660", "cramfs"})
_ON_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.glusterfs"})
_UPPER = " (upper directory)"
_MOUNT_LATER = "make these changes in the image or template that this system starts from"
_REMOUNT = "mount it writable (`mount -o remount,rw {point}`, and the options in /etc/fstab), and plan again"
_UNMOUNTED = "mount it (`mount {point}`), and plan again"
_FSTAB = re.compile(r"^\s*[^#\s]\S*\s+(/boot|/efi|/boot/efi)/?\s+(\S+)", re.MULTILINE)


def findings(host: Host, changed: Iterable[str]) -> Iterator[Finding]:
    """The reasons why files at the paths ``changed`` would not reach the next boot."""
    mounts = {mount.path: mount for mount in host.boot.mounts or ()}
    reported = set()
    paths = ("/", "/etc", "/boot", *(("/efi", "/boot/efi") if host.boot.loader == "systemd-boot" else ()))
    for path in (*paths, *(("/usr",) if any(p.startswith("/usr/") for p in changed) else ())):
        mount = mounts.get(path)
        where, remedy = ("", "") if mount is None else _unwritable(mount, mounts.get(path + _UPPER))
        if mount is not None and where and mount.point not in reported:
            reported.add(mount.point)
            place = host.at(mount.point)
            yield finding(Code.CHANGES_DO_NOT_PERSIST, place=place, path=path, where=where, remedy=remedy)
    yield from _unmounted(host)
    yield from _network(host)
    yield from _skipped_loader(host)
    if host.boot.loader == "grub" and (stub := host.boot.efi.stub) is not None:
        images = host.boot.unified or (f"the running kernel was started by {stub}",)
        for image in images:
            yield finding(Code.UNIFIED_KERNEL_IMAGE, place=host.at(image))


def _unwritable(mount: Mount, upper: Mount | None) -> tuple[str, str]:
    """Where a mount's changes get lost, and the remedy; both empty if they persist."""
    system, point = mount.filesystem, mount.point or mount.path
    if system in _IN_MEMORY:
        return f"a {system}, which the next boot does not keep", _MOUNT_LATER
    if system == "overlay":
        is_lost = upper is None or upper.filesystem in (None, "overlay", *_IN_MEMORY)
        # A boot loader reads the lower file system.
        if is_lost or mount.path == "/boot" or (mount.path == "/" and point == "/"):
            return "an overlay, whose changes the boot loader does not read", _MOUNT_LATER
    if "ro" in mount.options:
        return f"a read-only {system}", _REMOUNT.format(point=point)
    return "", ""


def _unmounted(host: Host) -> Iterator[Finding]:
    """Boot partitions that /etc/fstab names, and that are not mounted: files would be written below them."""
    mounts = {mount.point for mount in host.boot.mounts or ()}
    if mounts <= {None} or host.kernel.booted_at is None:
        return
    for point, _ in _FSTAB.findall(host.text("/etc/fstab")):
        if point not in mounts and (point == "/boot" or host.boot.loader == "systemd-boot"):
            place = host.at("/etc/fstab")
            remedy = _UNMOUNTED.format(point=point)
            where = "the root file system instead of its own partition, which is not mounted"
            yield finding(Code.CHANGES_DO_NOT_PERSIST, place=place, path=point, where=where, remedy=remedy)


def _network(host: Host) -> Iterator[Finding]:
    root = next((mount for mount in host.boot.mounts or () if mount.path == "/"), None)
    line = CommandLine(text=host.kernel.command_line or "")
    # An installer copies it from its own network boot into the menu.
    in_menu = {a.text for e in host.boot.entries for a in CommandLine(text=e.arguments).all("BOOTIF")}
    if root is not None and root.filesystem in _ON_NETWORK:
        sign = f"its root is {root.source} ({root.filesystem})"
        yield finding(Code.NETWORK_BOOT, place=host.hostname, sign=sign)
    elif (sent := line.last("BOOTIF")) is not None and sent.text not in in_menu:
        yield finding(Code.NETWORK_BOOT, place=host.at("/proc/cmdline"), sign=sent.text)
    elif host.boot.loader == "grub" and (image := line.last("BOOT_IMAGE")) is not None and image.value:
        name = PurePosixPath(image.value).name
        known = {PurePosixPath(entry.kernel).name for entry in host.boot.entries if entry.kernel}
        known |= {PurePosixPath(kernel.image).name for kernel in host.boot.kernels if kernel.image}
        is_ours = name in known or name.removesuffix(".efi.signed") in known
        if known and line.last("initrd") is not None and not is_ours:
            sign = f"{image.text} is no kernel of this host"
            yield finding(Code.NETWORK_BOOT, place=host.at("/proc/cmdline"), sign=sign)


def _skipped_loader(host: Host) -> Iterator[Finding]:
    boot, kexec = host.boot, "/etc/default/kexec"
    signs = {
        "a kexec kernel is loaded": (boot.kexec_loaded, "unload it with `kexec --unload`"),
        "/run/nextroot exists": (boot.next_root, "remove or unmount /run/nextroot, or complete that soft reboot"),
        f"{kexec} has LOAD_KEXEC=true": (boot.kexec_configured, f"set LOAD_KEXEC=false in {kexec} (or kexec.d)"),
    }
    for what, (is_set, remedy) in signs.items():
        if is_set:
            then = f"{remedy}, and plan again"
            yield finding(Code.REBOOT_SKIPS_LOADER, place=host.hostname, what=what, remedy=then)


def kernel_findings(host: Host, after: NextBoot, needed: Iterable[str]) -> Iterator[Finding]:
    """Another kernel, and the drivers that the next one lacks.

    :param needed: the modules that reserve the GPUs.
    """
    kernel = next((kernel for kernel in host.boot.kernels if kernel.release == after.kernel), None)
    if kernel is None or host.kernel.release is None or kernel.release == host.kernel.release:
        return
    place = host.at(after.place)
    yield finding(Code.OTHER_KERNEL_BOOTS, place=place, next=kernel.release, running=host.kernel.release)
    for module, use in missing(host, kernel):
        what = f"module {module}, the driver of {use}"
        yield finding(Code.OTHER_KERNEL_LACKS_DRIVER, place=place, release=kernel.release, what=what)
    for module in needed:
        if canonical(module) not in kernel.modules and kernel.modules:
            yield finding(Code.OTHER_KERNEL_LACKS_DRIVER, place=place, release=kernel.release, what=f"module {module}")
    if after.initramfs is None and any(k.initramfs is not None for k in host.boot.kernels if k is not kernel):
        yield finding(Code.OTHER_KERNEL_LACKS_DRIVER, place=place, release=kernel.release, what="initramfs")


def missing(host: Host, kernel: BootKernel) -> Iterator[tuple[str, str]]:
    """The modules of network cards and disk controllers in use that a kernel lacks, each with its use."""
    running = next((k for k in host.boot.kernels if k.release == host.kernel.release), None)
    for function in sorted(host.pci, key=lambda f: f.bdf):
        names = [*function.uses.block, *(net.name for net in function.uses.net if net.routes or net.uppers)]
        drivers = (function.driver_module, *function.uses.drivers) if names else ()
        for module in dict.fromkeys(canonical(name) for name in drivers if name):
            if module not in kernel.modules and (running is None or module in running.modules):
                yield module, f"{function.address} ({', '.join(names)})"
