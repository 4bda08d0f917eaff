"""How the host boots: firmware, boot loader, entries and kernels."""

import re
from typing import Any, Dict, Iterable, List, Optional

from .bls import grub_entries, loader_entries
from .grub import GRUB_LIMIT, grub_configuration, grub_environment, grub_environment_block
from .images import initramfs_of, kernel_images, kernel_modules, vfio_aliases
from .installed import kernel_source, unified_images
from .kernel import EFIVARS, LOADER_INFO
from .limits import VALUE_LIMIT
from .mounts import BOOT_PARTITIONS
from .names import NAMED_MODULES
from .reader import HostRoot, version_key
from .tools import BOOT_TOOLS, any_of, grubby_keeps_defaults


def boot_loader(host: HostRoot, grub: bool) -> Optional[str]:
    """The boot loader by the EFI variable ``LoaderInfo``, else by the configuration files that exist.

    ``LoaderInfo`` (systemd.io/BOOT_LOADER_INTERFACE) holds UTF-16 after four bytes of attributes.
    """
    loader_info = host.data(f"{EFIVARS}/{LOADER_INFO}", VALUE_LIMIT) or b""
    if loader_info[4:].decode("utf-16-le", "replace").startswith("systemd-boot"):
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
    if machine_type in ("x86_64", "i686", "i386") and host.exists("/sys/firmware"):
        return "bios"
    return None


def boot(host: HostRoot, machine_type: Optional[str], gpu_modules: Iterable[str]) -> Dict[str, Any]:
    """Firmware, boot loader, its entries and the kernels that can boot.

    :param gpu_modules: additional modules to look for in each kernel: the host drivers of the GPUs.
    """
    configuration = grub_configuration(host)
    text = (host.text(configuration, GRUB_LIMIT) or "") if configuration else ""
    status = host.status(configuration) if configuration else None
    loader = boot_loader(host, configuration is not None)
    # Where grub.cfg has the command blscfg, GRUB reads the entries itself.
    reads_entries = loader == "systemd-boot" or re.search(r"^\s*blscfg\b", text, re.MULTILINE) is not None
    in_menu = grub_entries(host, configuration, text) if configuration and loader == "grub" else []
    listed = loader_entries(host, grub_environment(host, configuration or "", text)) if reads_entries else []
    return {
        "firmware": firmware(host, machine_type),
        "loader": loader,
        "bls": reads_entries,
        "unified": unified_images(host) if loader != "grub" else [],
        "entries": [*in_menu, *listed],
        "config_mtime": status.st_mtime_ns if status is not None else None,
        "grubby_keeps_defaults": grubby_keeps_defaults(host) if reads_entries and loader == "grub" else None,
        "tools": [name for name in BOOT_TOOLS if any_of(host, name)],
        "environment": grub_environment_block(host, configuration, text)
        if configuration and loader == "grub"
        else None,
        "kernels": kernels(host, loader, sorted(set(NAMED_MODULES).union(gpu_modules))),
    }


def kernels(host: HostRoot, loader: Optional[str], wanted: List[str]) -> List[Dict[str, Any]]:
    """The bootable kernels, oldest first, each with the modules of ``wanted`` that it has."""
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
                "modules": kernel_modules(host, release, wanted),
                "vfio_aliases": vfio_aliases(host, release),
            }
        )
    return sorted(found, key=lambda kernel: version_key(kernel["release"]))
