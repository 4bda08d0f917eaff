"""Supported hosts: distribution, boot loader, initramfs tool, complete facts."""

import re
from collections.abc import Iterable, Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Operation, WriteFile
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.foreign_config import UPDATE_INITRAMFS
from gpustack.prepare.host.next_boot import kernel_install, obstacles
from gpustack.prepare.host.own_files import is_exact, is_ours
from gpustack.prepare.host.tools import family, has_systemd_boot, in_image_mode

_XEN = frozenset({"xenfs", "xen_privcmd"})  # loaded under Xen only
_INITRAMFS = ("initramfs-tools", "dracut")
# A plan without these facts could overwrite or contradict existing configuration.
_ESSENTIAL = re.compile(
    r"/(boot|efi|lib/modules|proc/cmdline|etc/(kernel/cmdline|default/grub|dracut\.conf|driverctl\.d|initramfs-tools"
    r"|modprobe\.d|modules-load\.d))([/.].*)?"
)
_NO_LOADER = (
    "none found (no grub.cfg in /boot/grub, /boot/grub2 or /boot/efi/EFI/*, no /etc/default/grub, "
    "no loader/loader.conf in /boot, /efi or /boot/efi)"
)
_NO_TOOL = (
    "none found (neither update-initramfs with mkinitramfs, nor dracut, nor mkinitcpio in /usr/sbin, /usr/bin or /sbin)"
)
_PROXMOX = "/etc/kernel/proxmox-boot-uuids"
_NEVER = re.compile(r"""^\s*update_initramfs=["']?no\b""", re.MULTILINE)


def findings(host: Host, changed: Iterable[str]) -> tuple[Finding, ...]:
    """The reasons why gpustack can't prepare this host, or change the files at the paths ``changed``."""
    if family(host) is None:  # the remedies of the others are those of supported distributions
        return tuple(_machine(host))
    if in_image_mode(host):
        image = finding(Code.IMAGE_MODE, place=host.at("/boot/ostree/"))
        return (*_machine(host), image, *_images(host), *_unknown(host))
    return (
        *_machine(host),
        *_boot_loader(host),
        *_images(host),
        *_boot(host),
        *obstacles.findings(host, changed),
        *_unknown(host),
    )


def inexact(host: Host, operations: Iterable[Operation]) -> Iterator[Finding]:
    """Findings about files of others that can't be written: links, and bytes that are not UTF-8."""
    for write in (operation for operation in operations if isinstance(operation, WriteFile)):
        if write.before is None or is_ours(write.before):
            continue
        if not is_exact(write.before):
            reason = f"{write.path}: not valid UTF-8"
            yield finding(Code.BOOT_CONFIGURATION_UNREADABLE, place=host.hostname, paths=reason)
        if (target := host.files[write.path].link) is not None:
            yield finding(Code.CHANGED_FILE_IS_LINK, place=host.at(write.path), path=write.path, target=target)


def _machine(host: Host) -> Iterator[Finding]:
    if host.container is not None:
        yield finding(Code.FACTS_FROM_CONTAINER, place=host.hostname, container=host.container)
    # The facts of older collectors do not show what an Arm host boots next.
    is_arm = host.architecture == "aarch64" and host.boot.mounts is not None
    if host.architecture not in (None, "x86_64") and not is_arm:
        yield finding(Code.ARCHITECTURE_NOT_SUPPORTED, place=host.hostname, architecture=host.architecture)
    if not _XEN.isdisjoint(host.kernel.loaded_modules):
        yield finding(Code.XEN, place=host.hostname, modules=", ".join(sorted(_XEN & set(host.kernel.loaded_modules))))
    if family(host) is None:
        name, identity, like = (host.os_release.get(key) or "not set" for key in ("PRETTY_NAME", "ID", "ID_LIKE"))
        place = host.at("/etc/os-release")
        yield finding(Code.DISTRIBUTION_NOT_SUPPORTED, place=place, name=name, identity=identity, like=like)


def _boot_loader(host: Host) -> Iterator[Finding]:
    for image in host.boot.unified if host.boot.loader != "grub" else ():
        yield finding(Code.UNIFIED_KERNEL_IMAGE, place=host.at(image))
    if has_systemd_boot(host):
        yield from kernel_install.hindrances(host)
    elif host.boot.loader != "grub":
        if not host.boot.unified:
            yield finding(Code.BOOT_LOADER_NOT_SUPPORTED, place=host.hostname, loader=host.boot.loader or _NO_LOADER)
    elif host.boot.bls and "grubby" not in host.boot.tools:
        yield finding(Code.GRUBBY_MISSING, place=host.hostname)
    elif host.boot.bls and host.boot.grubby_keeps_defaults is False:
        yield finding(Code.GRUBBY_TOO_OLD, place=host.hostname)
    elif not host.boot.bls and family(host) == "redhat":
        yield finding(Code.BOOT_ENTRIES_OFF, place=host.hostname)
    if host.text(_PROXMOX).strip():
        yield finding(Code.PROXMOX_BOOT_TOOL, place=host.at(_PROXMOX))


def _images(host: Host) -> Iterator[Finding]:
    # On Debian, kernel-install always adds the initramfs-tools image to an entry, even if dracut built another one.
    is_debian = has_systemd_boot(host) and family(host) == "debian"
    supported = _INITRAMFS[:1] if is_debian else _INITRAMFS
    if host.initramfs_tool not in supported:
        tool = host.initramfs_tool or _NO_TOOL
        systems = " with systemd-boot on Debian and derivatives" if is_debian else ""
        tools = " and ".join(supported) + systems
        yield finding(Code.INITRAMFS_TOOL_NOT_SUPPORTED, place=host.hostname, tool=tool, supported=tools)


def _boot(host: Host) -> Iterator[Finding]:
    if not host.boot.kernels:
        yield finding(Code.NO_KERNEL, place=host.hostname)
    is_unread = any(entry.path.endswith("/grub.cfg") for entry in host.unread)
    if not is_unread and not host.boot.ordinary:
        yield finding(Code.NO_BOOT_ENTRY, place=host.hostname)
    if host.initramfs_tool == "initramfs-tools" and _NEVER.search(host.text(UPDATE_INITRAMFS)):
        yield finding(Code.UPDATE_INITRAMFS_OFF, place=host.at(UPDATE_INITRAMFS))


def _unknown(host: Host) -> Iterator[Finding]:
    if unread := [entry for entry in host.unread if _ESSENTIAL.fullmatch(entry.path)]:
        errors = sorted(f"{entry.path}: {entry.error}" for entry in unread)
        yield finding(Code.BOOT_CONFIGURATION_UNREADABLE, place=host.hostname, paths="; ".join(errors[:5]))
    if host.kernel.command_line is None and not any(entry.path == "/proc/cmdline" for entry in unread):
        yield finding(Code.RUNNING_ARGUMENTS_UNKNOWN, place=host.hostname)
