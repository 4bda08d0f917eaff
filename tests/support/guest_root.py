"""A directory as the root of a guest: sysfs, the kernel's messages and modules, cloud-init's metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

RELEASE = "6.12.107+deb13-amd64"
_BOOT = "5,0,0,-;Linux version 6.12.107+deb13-amd64 (debian-kernel@lists.debian.org)\n"
_PLACED = "0x0000380000000000 0x00003800ffffffff 0x000000000014220c\n"
_UNPLACED = "0x0000000000000000 0x0000001fffffffff 0x000000000014220c\n"


def guest_root(
    root: Path,
    *,
    gpus: Sequence[str],
    driver: str | None = None,
    modules: Sequence[str] = ("nvidia",),
    unplaced: bool = False,
    drm: str = "",
    log: str = "",
    flavor: str = "g1.a100.2",
) -> Path:
    """Make the root of a guest.

    :param gpus: the ids of its GPUs, in slots from 5 on; a virtual display is in slot 2.
    :param driver: the driver that is bound to the GPUs.
    :param modules: the installed modules that match them.
    :param unplaced: whether their BARs have no address.
    :param drm: ``boot`` or ``modules``, if the kernel's configuration or modules show that it has no DRM.
    :param log: a message of the kernel.
    """
    for number, ids in enumerate(["1af4:1050", *gpus]):
        address = f"0000:00:{4 + number if number else 2:02x}.0"
        vendor, product = ids.split(":")
        function = root / "sys/bus/pci/devices" / address
        function.mkdir(parents=True)
        values = {"vendor": f"0x{vendor}", "device": f"0x{product}", "class": "0x030200" if number else "0x030000"}
        values["modalias"] = _modalias(vendor, product)
        for name, value in values.items():
            (function / name).write_text(f"{value}\n")
        (function / "resource").write_text(_UNPLACED if unplaced and number else _PLACED)
        if driver and number:
            (function / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    lib = root / "lib/modules" / RELEASE
    drivers = lib / "kernel/drivers/gpu" / ("drm" if not drm else "host1x")
    for directory in (drivers, root / "proc/sys/kernel", root / "boot", root / "dev", root / "run/cloud-init"):
        directory.mkdir(parents=True)
    (drivers / "some.ko").touch()
    aliases = [f"alias {_modalias(*ids.split(':'))} {module}\n" for ids in gpus for module in modules]
    (lib / "modules.alias").write_text("".join(aliases))
    (root / "proc/sys/kernel/osrelease").write_text(f"{RELEASE}\n")
    if drm != "modules":
        config = "# CONFIG_DRM is not set\n" if drm else "CONFIG_DRM=m\n"
        (root / f"boot/config-{RELEASE}").write_text(f"CONFIG_64BIT=y\n{config}")
    (root / "dev/kmsg").write_text(f"{_BOOT}4,900,5,-;{log}\n")
    metadata = {"ds": {"ec2_metadata": {"instance-type": flavor}}}
    (root / "run/cloud-init/instance-data-sensitive.json").write_text(json.dumps(metadata, indent=1))
    if driver == "nvidia":
        (root / "sys/module/nvidia").mkdir(parents=True)
        (root / "sys/module/nvidia/version").write_text("580.95.05\n")
    return root


def _modalias(vendor: str, product: str) -> str:
    return f"pci:v0000{vendor.upper()}d0000{product.upper()}sv*sd*bc*sc*i*"
