"""The files that gpustack owns on a host: their paths, and how they are told from others."""

from __future__ import annotations

from dataclasses import dataclass

GRUB = "/etc/default/grub.d/90-gpustack.cfg"
MODPROBE = "/etc/modprobe.d/gpustack.conf"
HOOK = "/etc/initramfs-tools/hooks/gpustack"
SCRIPT = "/etc/initramfs-tools/scripts/init-top/gpustack"
MODULES_LOAD = "/etc/modules-load.d/gpustack.conf"
OWNED = (GRUB, MODPROBE, SCRIPT, HOOK, MODULES_LOAD)
"""Every path that gpustack may write, in the order in which it writes them."""
IN_INITRAMFS = (MODPROBE, SCRIPT, HOOK)
"""Those that an initramfs is made from."""
MARK = "# Written by gpustack."
"""How a file of gpustack's is told from one that somebody else put in its place."""


@dataclass(frozen=True, kw_only=True)
class OwnedFile:
    """A file as it shall be."""

    content: str
    mode: str
    why: str


def is_ours(text: str) -> bool:
    """Whether gpustack wrote a file: its mark is among the first two lines."""
    return any(line.startswith(MARK) for line in text.splitlines()[:2])
