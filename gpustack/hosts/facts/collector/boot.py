"""How the host boots: firmware, boot loader, entries and kernels."""

import re
from typing import Any, Dict, List, Optional

from .bls import loader_entries
from .grub import GRUB_LIMIT, grub_configuration, grub_environment, grub_environment_block
from .images import initramfs_of, kernel_images
from .installed import kernel_source, unified_images
from .menu import grub_menu, scripts
from .mounts import BOOT_PARTITIONS, mounts
from .reader import HostRoot, version_key
from .start import loads_kexec, next_start, variables
from .tools import TOOLS, any_of, grubby_keeps_defaults


def boot_loader(host: HostRoot, grub: bool, loader_info: Optional[str]) -> Optional[str]:
    """The boot loader by the EFI variable ``LoaderInfo``, else by the configuration files that exist."""
    if (loader_info or "").startswith("systemd-boot"):
        return "systemd-boot"
    if grub or host.exists("/etc/default/grub"):
        return "grub"
    if any(host.exists(partition + "/loader/loader.conf") for partition in BOOT_PARTITIONS):
        return "systemd-boot"
    return None


def firmware(host: HostRoot, machine_type: Optional[str]) -> Optional[str]:
    """``efi`` or ``bios``; ``None`` if unknown."""
    if host.exists("/sys/firmware/efi"):
        return "efi"
    return "bios" if machine_type in ("x86_64", "i686", "i386") and host.exists("/sys/firmware") else None


def boot(host: HostRoot, machine_type: Optional[str]) -> Dict[str, Any]:
    """Firmware, boot loader, its entries and the kernels that can boot."""
    configuration = grub_configuration(host)
    text = (host.text(configuration, GRUB_LIMIT) or "") if configuration else ""
    status = host.status(configuration) if configuration else None
    efi = variables(host)
    loader = boot_loader(host, configuration is not None, efi["loader"])
    # Where grub.cfg has the command blscfg, GRUB reads the entries itself.
    reads_entries = loader == "systemd-boot" or re.search(r"^\s*blscfg\b", text, re.MULTILINE) is not None
    has_menu = configuration is not None and loader == "grub"
    in_menu, menu = grub_menu(host, configuration or "", text) if has_menu else ([], None)
    listed = loader_entries(host, grub_environment(host, configuration or "", text)) if reads_entries else []
    return {
        "firmware": firmware(host, machine_type),
        "loader": loader,
        "bls": reads_entries,
        "efi": efi,
        "unified": unified_images(host) if loader != "grub" or efi["stub"] else [],
        "entries": [*in_menu, *listed],
        "menu": menu,
        "scripts": scripts(host) if has_menu else [],
        "mounts": mounts(host),
        **next_start(host),
        "kexec_configured": loads_kexec(host),
        "config_mtime": status.st_mtime_ns if status is not None else None,
        "grubby_keeps_defaults": grubby_keeps_defaults(host) if reads_entries and loader == "grub" else None,
        "tools": [name for name in TOOLS if any_of(host, name)],
        "environment": grub_environment_block(host, configuration or "", text) if has_menu else None,
        "kernels": kernels(host, loader),
    }


def kernels(host: HostRoot, loader: Optional[str]) -> List[Dict[str, Any]]:
    """The bootable kernels, oldest first, without their modules."""
    found = []
    for release, (image, candidates) in kernel_images(host, loader).items():
        initramfs, written = initramfs_of(host, candidates)
        found.append(
            {
                "release": release,
                "image": image,
                "source": kernel_source(host, release),
                "initramfs": initramfs,
                "initramfs_mtime_ns": written,
            }
        )
    return sorted(found, key=lambda kernel: version_key(kernel["release"]))
