"""Which accelerator QEMU can really use here.

On a nested machine /dev/kvm may open and still not run this host: the only proof is to run something.
"""

from __future__ import annotations

import os
import subprocess

from . import topology
from .image import Image
from .recipe import GUEST_IS_DONE

TRIAL_SECONDS = 60.0


def choose_accelerator(image: Image) -> str:
    """ "kvm" if a small guest boots with it, else "tcg"; GPUSTACK_LAB_ACCEL decides when it is set."""
    chosen = os.environ.get("GPUSTACK_LAB_ACCEL")
    if chosen:
        return chosen
    return "kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) and _boots_with_kvm(image) else "tcg"


def _boots_with_kvm(image: Image) -> bool:
    argv = [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
        *topology.arguments(topology.Shape(), "kvm", ssh_port=0),
        *("-kernel", str(image.kernel), "-initrd", str(image.guest_initramfs)),
        *("-append", "console=ttyS0 panic=-1 quiet", "-no-reboot", "-serial", "stdio"),
    ]
    try:
        process = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return GUEST_IS_DONE.encode() in process.stdout
