"""Write an example host as a directory that looks like a host's ``/``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpustack_demo.examples import redhat
from gpustack_demo.examples.boot import boot
from gpustack_demo.examples.distribution import write_distribution
from gpustack_demo.examples.dracut import dracut
from gpustack_demo.examples.grub import update_grub, write_environment
from gpustack_demo.examples.initramfs import update_initramfs
from gpustack_demo.examples.machine import Machine
from gpustack_demo.examples.systemd_boot import kernel_install

_INSTALLED = 30 * 86_400
_UP_FOR = 86_400


def write_host(root: Path, machine: Machine) -> Path:
    """Write an unprepared machine below ``root``: installed a month ago, up for a day.

    :param root: a directory that does not exist yet; its parent does.
    :returns: ``root``.
    """
    root.mkdir()
    machine.save(root)
    write_distribution(root, machine)
    if redhat.is_redhat(machine):
        for kernel in machine.kernels:
            dracut(root, ["--force", f"/{redhat.image_of(machine, kernel.release)}", kernel.release])
    else:
        update_initramfs(root, ["-u", "-k", "all"])
        _write_entries(root, machine)
    now = int(time.time())
    for directory in ("boot", "etc", "usr"):
        for path in (root / directory).rglob("*"):
            os.utime(path, (now - _INSTALLED, now - _INSTALLED), follow_symlinks=False)
    boot(root, at=now - _UP_FOR)
    return root


def _write_entries(root: Path, machine: Machine) -> None:
    """Write the boot loader's entries as the packages leave them."""
    if machine.loader == "systemd-boot":
        for kernel in machine.kernels:
            kernel_install(root, ["add", kernel.release, f"/boot/vmlinuz-{kernel.release}"])
    else:
        write_environment(root, {})
        update_grub(root)
