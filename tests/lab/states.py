"""Running hosts in the cache: a test goes on from one in seconds, where a boot takes minutes.

A state is a directory whose name is a hash of everything that went in. It has a list of checksums, so a damaged one is
removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from . import checksums, topology
from .image import Image
from .machine import Machine

ABANDONED_SECONDS = 3600
PROJECT = Path(__file__).resolve().parents[2]
PRODUCT = tuple(PROJECT / name for name in ("gpustack", "playbooks"))
"""The code that prepares a host and configures Nova."""


def state_directory(image: Image, accelerator: str, shape: topology.Shape, extra_mebibytes: int) -> Path:
    """Where the state of such a host after its boot is kept; the name is a hash of all that decides QEMU's devices."""
    qemu = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(f"{image.directory} {accelerator} {shape} {extra_mebibytes} ".encode() + qemu)
    for module in ("topology.py", "machine.py"):
        digest.update(Path(__file__).with_name(module).read_bytes())
    if accelerator == "kvm":
        digest.update(Path("/proc/cpuinfo").read_bytes().partition(b"\n\n")[0])
    return image.directory.with_name(f"{image.directory.name}-state-{digest.hexdigest()[:16]}")


def derived_directory(image: Image, state: Path, kind: str, paths: Iterable[Path]) -> Path:
    """Where a state is kept that is made from another one by the files in `paths`, and below them."""
    digest = hashlib.sha256(f"{state.name} ".encode())
    for file in sorted(file for path in paths for file in _sources(path)):
        digest.update(str(file.relative_to(PROJECT)).encode() + b"\0" + file.read_bytes())
    return state.with_name(f"{image.directory.name}-{kind}-{digest.hexdigest()[:16]}")


def _sources(path: Path) -> list[Path]:
    files = path.rglob("*") if path.is_dir() else [path]
    return [file for file in files if file.is_file() and "__pycache__" not in file.parts]


def publish(state: Path, write: Callable[[Path], None]) -> None:
    """Keep what `write` puts into a directory; a state that somebody else kept meanwhile stays."""
    for directory in state.parent.glob("saving-*"):
        if time.time() - directory.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(directory, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix="saving-", dir=state.parent))
    try:
        write(unfinished / "state")
        checksums.write(unfinished / "state")
        with contextlib.suppress(OSError):  # the state exists
            (unfinished / "state").rename(state)
    finally:
        shutil.rmtree(unfinished)


def save(host: Machine, state: Path) -> None:
    """Keep the host as it is."""
    publish(state, host.save)


def used(state: Path, report: Callable[[str], None]) -> bool:
    """Whether the cache has the state, undamaged; if so, it counts as used now."""
    if not state.is_dir():
        return False
    if not checksums.match(state):
        report(f"{state.name} is damaged; the state is removed")
        shutil.rmtree(state)
        return False
    os.utime(state)
    return True
