"""A second kernel for the lab's hosts: Debian's for clouds. Its release sorts higher, so that GRUB starts it.

It has no host drivers for the lab's cards.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from . import recipe
from .image import Reporter, in_cache, run
from .machine import Machine

PACKAGE = "linux-image-cloud-amd64"
_HOOK = """--extract-hook=tar -C "$1" --zstd -cf '{}' boot lib/modules"""


def archive(report: Reporter) -> Path:
    """The files of the kernel's package, from Debian or from the cache."""

    def build(directory: Path) -> None:
        argv = ["mmdebstrap", "--quiet", "--variant=extract", "--format=null", f"--include={PACKAGE}"]
        run(*argv, _HOOK.format(directory / "files.tar.zst"), recipe.SUITES[0], "/dev/null")

    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return in_cache(f"{recipe.SUITES[0]}-{PACKAGE}-{digest[:16]}", build, report) / "files.tar.zst"


def unpack(host: Machine, files: Path) -> str:
    """Unpack the kernel on the host, without initramfs and menu; return its release."""
    command = ["ssh", *host.ssh_options(), "root@127.0.0.1", "tar -C / --zstd -xf -"]
    with files.open("rb") as stream:
        subprocess.run(command, stdin=stream, check=True, timeout=600)
    (release,) = {Path(path).name for path in host.ssh(["sh", "-c", "ls -d /lib/modules/*-cloud-*"]).split()}
    return release
