"""Which hosts can be prepared: distribution, boot loader, initramfs tool, and facts that are whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpustack.codes import Code
from gpustack.facts.model import Host
from gpustack.findings import Finding, finding
from gpustack.host.boot import kernel_install
from gpustack.host.boot.tools import family, has_systemd_boot
from gpustack.host.prior_setup.foreign_config import UPDATE_INITRAMFS

_XEN = frozenset({"xenfs", "xen_privcmd"})  # they load under Xen only
_INITRAMFS = ("initramfs-tools", "dracut")
# A plan that has not read these could overwrite or contradict what is there.
_ESSENTIAL = (
    "/boot",
    "/efi",
    "/etc/kernel/cmdline",
    "/etc/default/grub",
    "/etc/dracut.conf",
    "/etc/driverctl.d",
    "/etc/initramfs-tools",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/lib/modules",
    "/proc/cmdline",
)
_PROXMOX = "/etc/kernel/proxmox-boot-uuids"
_NEVER = re.compile(r"""^\s*update_initramfs=["']?no\b""", re.MULTILINE)


def findings(host: Host) -> tuple[Finding, ...]:
    """What stands against preparing this host at all."""
    return (*_kind(host), *_boot(host), *_unknown(host))


def _kind(host: Host) -> Iterator[Finding]:
    if host.container is not None:
        yield finding(Code.FACTS_FROM_CONTAINER, place=host.hostname, container=host.container)
    if host.architecture not in (None, "x86_64"):
        yield finding(Code.ARCHITECTURE_NOT_SUPPORTED, place=host.hostname, architecture=host.architecture)
    if not _XEN.isdisjoint(host.kernel.loaded_modules):
        what = "Linux under Xen, which keeps the IOMMU to itself,"
        yield finding(
            Code.NOT_SUPPORTED, place=host.hostname, what=what, wanted="Linux on the machine itself, with KVM"
        )
    if family(host) is None:
        name = host.os_release.get("PRETTY_NAME") or host.os_release.get("ID") or "an unknown distribution"
        yield finding(
            Code.NOT_SUPPORTED, place=host.hostname, what=name, wanted="Debian, Ubuntu, and RHEL with its kin"
        )
    if has_systemd_boot(host):
        yield from kernel_install.hindrances(host)
    elif host.boot.loader != "grub":
        unified = f"a unified kernel image that the firmware starts ({', '.join(host.boot.unified)})"
        loader = host.boot.loader or (unified if host.boot.unified else "an unknown boot loader")
        yield finding(Code.NOT_SUPPORTED, place=host.hostname, what=loader, wanted="GRUB and systemd-boot")
    elif host.boot.bls and "grubby" not in host.boot.tools:
        what = "GRUB with boot loader entries (BLS) and without grubby"
        yield finding(
            Code.NOT_SUPPORTED, place=host.hostname, what=what, wanted="a menu in grub.cfg, or grubby for the entries"
        )
    elif host.boot.bls and host.boot.grubby_keeps_defaults is False:
        what = "a grubby without --no-etc-grub-update (RHEL 8.0 to 8.2)"
        yield finding(Code.NOT_SUPPORTED, place=host.hostname, what=what, wanted="grubby 8.40-39 and later (RHEL 8.3)")
    elif not host.boot.bls and family(host) == "redhat":
        what = "GRUB without boot loader entries (BLS) on this distribution"
        yield finding(Code.NOT_SUPPORTED, place=host.hostname, what=what, wanted="GRUB_ENABLE_BLSCFG=true, with grubby")
    uuids = host.files.get(_PROXMOX)
    if uuids is not None and uuids.text.strip():
        yield finding(Code.PROXMOX_BOOT_TOOL, place=f"{host.hostname} {_PROXMOX}")
    if any((kernel.image or "").startswith("/boot/ostree/") for kernel in host.boot.kernels):
        what = "image mode (ostree, bootc)"
        yield finding(Code.NOT_SUPPORTED, place=host.hostname, what=what, wanted="a system whose /usr can be written")
    if host.initramfs_tool not in _INITRAMFS:
        tool = host.initramfs_tool or "no initramfs tool that is known"
        yield finding(Code.NOT_SUPPORTED, place=host.hostname, what=tool, wanted=" and ".join(_INITRAMFS))


def _boot(host: Host) -> Iterator[Finding]:
    if not host.boot.kernels:
        yield finding(Code.NO_KERNEL_OR_ENTRY, place=host.hostname, what="kernel in /boot")
    is_unread = any(entry.path.endswith("/grub.cfg") for entry in host.unread)
    if not is_unread and all(entry.recovery for entry in host.boot.entries):
        yield finding(Code.NO_KERNEL_OR_ENTRY, place=host.hostname, what="ordinary boot entry")
    file = host.files.get(UPDATE_INITRAMFS)
    if host.initramfs_tool == "initramfs-tools" and file is not None and _NEVER.search(file.text):
        yield finding(Code.UPDATE_INITRAMFS_OFF, place=f"{host.hostname} {UPDATE_INITRAMFS}")


def _unknown(host: Host) -> Iterator[Finding]:
    unread = [
        entry
        for entry in host.unread
        if any(entry.path == path or entry.path.startswith((f"{path}/", f"{path}.")) for path in _ESSENTIAL)
    ]
    if unread:
        said = sorted(f"{entry.path}: {entry.error}" for entry in unread)
        yield finding(
            Code.PLAN_FACTS_UNREADABLE, place=host.hostname, what="the boot configuration", paths="; ".join(said[:5])
        )
    if host.kernel.command_line is None and not any(entry.path == "/proc/cmdline" for entry in unread):
        yield finding(Code.RUNNING_ARGUMENTS_UNKNOWN, place=host.hostname)
