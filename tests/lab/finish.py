"""The single boot that finishes an image: GRUB, ESP and initramfs are made by the host itself."""

from __future__ import annotations

from .image import Image
from .machine import DirectBoot, Machine
from .recipe import KERNEL_ARGUMENTS, ROOT_LABEL

FIRST_BOOT_TIMEOUT = 900.0


def first_boot(image: Image, accelerator: str) -> None:
    """Boots the image without a boot loader, lets it install its own, and shuts it down."""
    boot = DirectBoot(
        kernel=image.kernel,
        initramfs=image.initramfs,
        arguments=f"root=LABEL={ROOT_LABEL} ro {KERNEL_ARGUMENTS}",
    )
    log_directory = image.directory / "first-boot"
    with Machine(image=image, directory=log_directory, accelerator=accelerator, direct_boot=boot) as machine:
        machine.wait_ssh()
        machine.ssh(["sh", "/srv/lab/on-first-boot"], timeout=FIRST_BOOT_TIMEOUT)
        machine.power_off()
