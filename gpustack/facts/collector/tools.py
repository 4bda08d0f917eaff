"""The programs of the host that make its boot menu and its initramfs images."""

from typing import Optional

from .reader import Host

BOOT_TOOLS = ("bootctl", "grub2-mkconfig", "grubby", "kernel-install", "update-grub")


def any_of(host: Host, *names: str) -> bool:
    """Whether one of the programs is installed."""
    return any(host.exists(directory + name) for name in names for directory in ("/usr/sbin/", "/usr/bin/", "/sbin/"))


def initramfs_tool(host: Host) -> Optional[str]:
    """What builds the initramfs.

    Debian's dracut package brings an ``update-initramfs`` of its own, and initramfs-tools-core may stay installed
    beside it: the kernel hook tells which one acts.
    """
    hooks = host.names("/etc/kernel/postinst.d")
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
