"""The files that gpustack owns on a host: their paths, and how they are told from others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

RECORD = "/var/lib/gpustack/arguments"
GRUB = "/etc/default/grub.d/90-gpustack.cfg"
MODPROBE = "/etc/modprobe.d/gpustack.conf"
HOOK = "/etc/initramfs-tools/hooks/gpustack"
SCRIPT = "/etc/initramfs-tools/scripts/init-top/gpustack"
DRACUT = "/etc/dracut.conf.d/90-gpustack.conf"
DRACUT_MODULE = "/usr/lib/dracut/modules.d/90gpustack/module-setup.sh"
DRACUT_SCRIPT = "/usr/lib/dracut/modules.d/90gpustack/gpustack.sh"
MODULES_LOAD = "/etc/modules-load.d/gpustack.conf"
TRIAL_UNIT = "/etc/systemd/system/gpustack-trial.service"
TRIAL_ENTRY = "/etc/grub.d/45_gpustack_trial"
OWNED = (
    RECORD,
    GRUB,
    MODPROBE,
    SCRIPT,
    HOOK,
    DRACUT_SCRIPT,
    DRACUT_MODULE,
    DRACUT,
    MODULES_LOAD,
    TRIAL_UNIT,
    TRIAL_ENTRY,
)
"""Every path that gpustack may write, in the order in which it writes them."""
IN_MENU = (GRUB, TRIAL_ENTRY)
"""Those that GRUB's menu is made from."""
IN_INITRAMFS = (MODPROBE, SCRIPT, HOOK, DRACUT_SCRIPT, DRACUT_MODULE, DRACUT)
"""Those that an initramfs is made from."""
SCRIPTS = (SCRIPT, DRACUT_SCRIPT)
"""The script that binds by address: initramfs-tools' or dracut's."""
JOURNAL = "/var/lib/gpustack/undo"
"""There from the beginning of an undo to its end, so that one that was cut short is finished by the next."""
ADOPTED = "/var/lib/gpustack/adopted"
"""The files of which gpustack has taken over what was set up by hand, as they were before."""
AGAIN = "/var/lib/gpustack/rebooted"
"""There since a boot with everything in place was not right, and one more was asked for."""
MARK = "# Written by gpustack."
"""How a file of gpustack's is told from one that somebody else put in its place."""

_SEAL = "# As gpustack wrote it: sha256 "


@dataclass(frozen=True, kw_only=True)
class OwnedFile:
    """A file as it shall be."""

    content: str
    mode: str
    why: str


def is_ours(text: str) -> bool:
    """Whether gpustack wrote a file: its mark is among the first two lines."""
    return any(line.startswith(MARK) for line in text.splitlines()[:2])


def sealed(content: str) -> str:
    """The content of a file with a last line by which :func:`is_untouched` knows it again."""
    return f"{content}{_SEAL}{digest(content)}\n"


def is_untouched(text: str) -> bool:
    """Whether a file is as gpustack wrote it, this version or another, with nothing changed since."""
    content, seal, written = text.rpartition(_SEAL)
    return bool(seal) and written == f"{digest(content)}\n"


def digest(content: str) -> str:
    """By which a file is known to be as it was written or read."""
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()
