"""The host's tools that generate the boot menu and initramfs images; libvirt."""

import re
from typing import Optional

from .reader import HostRoot

_LIBVIRT = re.compile(r"libvirt\.so\.0\.([0-9]{1,3})([0-9]{3})\.([0-9]{1,3})")
GRUBBY = ("/usr/libexec/grubby/grubby-bls", "/usr/sbin/grubby", "/usr/bin/grubby")
KERNEL_HOOKS = ("/etc/kernel/postinst.d", "/usr/share/kernel/postinst.d")  # packages are moving to the second
TOOLS = (
    *("bootctl", "grub2-mkconfig", "grubby", "kernel-install", "update-grub"),
    *("libvirtd", "mdevctl", "virtqemud"),  # libvirt creates mediated devices with mdevctl
)


def any_of(host: HostRoot, *names: str) -> bool:
    """Whether at least one of the programs is installed."""
    return any(host.exists(directory + name) for name in names for directory in ("/usr/sbin/", "/usr/bin/", "/sbin/"))


def libvirt_version(host: HostRoot, machine_type: Optional[str]) -> Optional[str]:
    """The version of libvirt, from the name of its library: ``libvirt.so.0.9000.0`` is 9.0.0 (its ``meson.build``).

    ``None`` without libvirt, or if it is in a container.
    """
    for directory in ("/usr/lib64", "/usr/lib/{}-linux-gnu".format(machine_type)):
        match = _LIBVIRT.fullmatch(host.link(directory + "/libvirt.so.0") or "")
        if match:
            return "{}.{}.{}".format(*map(int, match.groups()))
    return None


def grubby_keeps_defaults(host: HostRoot) -> Optional[bool]:
    """Whether grubby has ``--no-etc-grub-update`` (since 8.40-39, RHEL 8.3), which keeps ``/etc/default/grub``.

    ``None`` if grubby's shell script is not at one of the known paths.
    """
    texts = [text for text in map(host.data, GRUBBY) if text is not None]
    if any(b"no-etc-grub-update" in text for text in texts):
        return True
    return False if host.exists(GRUBBY[0]) else None


def initramfs_tool(host: HostRoot) -> Optional[str]:
    """The tool that builds the initramfs: ``initramfs-tools``, ``dracut`` or ``mkinitcpio``; ``None`` if unknown.

    Debian's dracut package has its own ``update-initramfs``, and initramfs-tools-core may still be installed. The
    kernel hook decides which of them is used.
    """
    hooks = [name for directory in KERNEL_HOOKS for name in host.names(directory)]
    if any_of(host, "update-initramfs") and any_of(host, "mkinitramfs") and "dracut" not in hooks:
        return "initramfs-tools"
    if any_of(host, "dracut"):
        return "dracut"
    if any_of(host, "mkinitcpio"):
        return "mkinitcpio"
    for path, tool in (
        ("/etc/initramfs-tools/initramfs.conf", "initramfs-tools"),
        ("/etc/dracut.conf", "dracut"),
        ("/etc/mkinitcpio.conf", "mkinitcpio"),
    ):
        if host.exists(path):
            return tool
    return None
