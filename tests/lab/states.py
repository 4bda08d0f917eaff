"""Running hosts in the cache: a test goes on from one in seconds, instead of minutes for a boot."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from . import topology
from .image import Image
from .machine import Machine

ABANDONED_SECONDS = 3600


def state_directory(image: Image, accelerator: str, shape: topology.Shape, extra_mebibytes: int) -> Path:
    """Where the state of such a host is kept; its name is a hash of everything that decides QEMU's devices."""
    qemu = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(f"{image.directory} {accelerator} {shape} {extra_mebibytes} ".encode() + qemu)
    for module in ("topology.py", "machine.py"):
        digest.update(Path(__file__).with_name(module).read_bytes())
    if accelerator == "kvm":
        digest.update(Path("/proc/cpuinfo").read_bytes().partition(b"\n\n")[0])
    return image.directory.with_name(f"{image.directory.name}-state-{digest.hexdigest()[:16]}")


def save(host: Machine, state: Path) -> None:
    """Keep the host as it is; a state that somebody else kept meanwhile stays."""
    for directory in state.parent.glob("saving-*"):
        if time.time() - directory.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(directory, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix="saving-", dir=state.parent))
    try:
        host.save(unfinished / "state")
        with contextlib.suppress(OSError):  # the state exists
            (unfinished / "state").rename(state)
    finally:
        shutil.rmtree(unfinished)


def used(state: Path) -> bool:
    """Whether the cache has the state; if so, it counts as used now."""
    if state.is_dir():
        os.utime(state)
        return True
    return False
