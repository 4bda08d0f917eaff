"""The files that gpustack owns on a host: their paths, and the tests for whether gpustack wrote them."""

import hashlib
from dataclasses import dataclass

from gpustack.hosts.facts.model import Host
from gpustack.linux.modprobe import parse

RECORD = "/var/lib/gpustack/arguments"
GRUB = "/etc/default/grub.d/90-gpustack.cfg"
MODPROBE = "/etc/modprobe.d/gpustack.conf"
HOOK = "/etc/initramfs-tools/hooks/gpustack"
SCRIPT = "/etc/initramfs-tools/scripts/init-top/gpustack"
DRACUT = "/etc/dracut.conf.d/90-gpustack.conf"
DRACUT_MODULE = "/usr/lib/dracut/modules.d/90gpustack/module-setup.sh"
DRACUT_SCRIPT = "/usr/lib/dracut/modules.d/90gpustack/gpustack.sh"
MODULES_LOAD = "/etc/modules-load.d/gpustack.conf"
VFS_SCRIPT = "/usr/local/sbin/gpustack-virtual-functions"
VFS_UNIT = "/etc/systemd/system/gpustack-virtual-functions.service"
VFS_NETWORK_UNIT = "/etc/systemd/system/gpustack-network-functions.service"
VFS_AT_BOOT = "/etc/systemd/system/multi-user.target.d/gpustack.conf"
VFS = (VFS_SCRIPT, VFS_UNIT, VFS_NETWORK_UNIT, VFS_AT_BOOT)
"""The files that create virtual functions at boot: a script, which one unit or two run, and what starts these."""
TRIAL_UNIT = "/etc/systemd/system/gpustack-trial.service"
TRIAL_ENTRY = "/etc/grub.d/45_gpustack_trial"
KARGS = "/usr/lib/bootc/kargs.d/90-gpustack.toml"
"""Kernel arguments of an image, which bootc adds to the boot entries."""
OWNED = (
    *(RECORD, GRUB, MODPROBE, SCRIPT, HOOK, DRACUT_SCRIPT, DRACUT_MODULE, DRACUT, MODULES_LOAD, *VFS),
    *(TRIAL_UNIT, TRIAL_ENTRY),
)
"""All files that gpustack may write for a plan, in the order of writing."""
IN_MENU = (GRUB, TRIAL_ENTRY)
"""The owned files that are inputs of GRUB's menu."""
IN_INITRAMFS = (MODPROBE, SCRIPT, HOOK, DRACUT_SCRIPT, DRACUT_MODULE, DRACUT)
"""The owned files that are inputs of an initramfs."""
SCRIPTS = (SCRIPT, DRACUT_SCRIPT)
"""The scripts that bind by address, for initramfs-tools and for dracut."""
JOURNAL = "/var/lib/gpustack/undo"
"""Exists from the start to the end of an undo, so that the next undo completes an interrupted one."""
ADOPTED = "/var/lib/gpustack/adopted"
"""The original content of files from which gpustack adopted hand-made configuration."""
AGAIN = "/var/lib/gpustack/rebooted"
"""Exists if a boot with complete configuration failed verification, and gpustack requested one more boot."""
MARK = "# Written by gpustack."
"""The start of a line that identifies files that gpustack wrote."""

_SEAL = "# As gpustack wrote it: sha256 "


@dataclass(frozen=True, kw_only=True)
class OwnedFile:
    """The desired content and mode of an owned file; ``why`` is for messages."""

    content: str
    mode: str
    why: str


def is_ours(text: str) -> bool:
    """Whether gpustack wrote a file: one of its first two lines starts with ``MARK``."""
    return any(line.startswith(MARK) for line in text.splitlines()[:2])


def sealed(content: str) -> str:
    """Append the checksum line that :func:`is_untouched` checks."""
    return f"{content}{_SEAL}{digest(content)}\n"


def is_untouched(text: str) -> bool:
    """Whether a file has not been modified since any version of gpustack wrote it."""
    content, seal, written = text.rpartition(_SEAL)
    return bool(seal) and written == f"{digest(content)}\n"


def is_exact(text: str) -> bool:
    """Whether a text in the facts is the file's exact content: bytes that are not UTF-8 were read as U+FFFD."""
    return "\ufffd" not in text


def digest(content: str) -> str:
    """The SHA-256 digest of a file's content, in hexadecimal."""
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()


def ids_of(host: Host) -> set[str]:
    """The ids in the options of gpustack's modprobe.d file; empty without it."""
    return {
        device_id
        for statement in parse(host.text(MODPROBE), MODPROBE)
        if statement.command == "options"
        for option in statement.words
        for device_id in option.removeprefix("ids=").split(",")
    }
