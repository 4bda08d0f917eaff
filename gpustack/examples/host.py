"""Writing an example host as a directory that looks like a host's ``/``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpustack.examples import redhat
from gpustack.examples.boot import boot
from gpustack.examples.distribution import write_distribution
from gpustack.examples.dracut import dracut
from gpustack.examples.grub import update_grub, write_environment
from gpustack.examples.initramfs import update_initramfs
from gpustack.examples.machine import Machine

_INSTALLED = 30 * 86_400
_UP_FOR = 86_400


def write_host(root: Path, machine: Machine) -> Path:
    """Write a machine below ``root`` as it is before anybody prepares it: installed a month ago, up for a day.

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
        write_environment(root, {})
        update_grub(root)
    now = int(time.time())
    for directory in ("boot", "etc", "usr"):
        for path in (root / directory).rglob("*"):
            os.utime(path, (now - _INSTALLED, now - _INSTALLED), follow_symlinks=False)
    boot(root, at=now - _UP_FOR)
    return root
