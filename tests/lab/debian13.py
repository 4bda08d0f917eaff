"""The image of a host of Debian 13 with nova-compute from its packages: built by the parts of image.py."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from . import image, recipe
from .image import Image, Reporter

SUITE = "trixie"
PACKAGES = (*recipe.packages("initramfs-tools"), "nova-compute-kvm")
# The package enables nova-compute. Without a configuration the service would fail and restart all the time.
_DISABLE = 'chroot "$1" systemctl disable --quiet nova-compute.service'


def cache_key() -> str:
    """A name for the image that the present recipe and builder make."""
    digest = hashlib.sha256(image.cache_key("initramfs-tools").encode() + Path(__file__).read_bytes())
    return f"{SUITE}-{digest.hexdigest()[:16]}"


def ensure_image(first_boot: Callable[[Image], None], report: Reporter) -> Image:
    """The image, built when the cache has not got all of it; `first_boot` finishes it."""
    cache = image.cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    finished = Image(directory=cache / cache_key())
    with (cache / f"{SUITE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if finished.complete:
            os.utime(finished.directory)
            return finished
        shutil.rmtree(finished.directory, ignore_errors=True)
        for entry in cache.glob(f"{SUITE}-*"):
            if time.time() - entry.stat().st_mtime > image.UNUSED_SECONDS:
                shutil.rmtree(entry)
        unfinished = cache / f"building-{SUITE}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        started = time.monotonic()
        report(f"building the image in {finished.directory} (once; a few minutes)")
        built = Image(directory=unfinished)
        _build(built, report)
        report("booting it once: boot loader, initramfs")
        first_boot(built)
        unfinished.rename(finished.directory)
        report(f"image ready after {time.monotonic() - started:.0f} s")
        return finished


def _build(built: Image, report: Reporter) -> None:
    work = built.directory
    image._make_key(built.login_key, "gpustack lab login")
    image._make_key(work / "host_key", f"root@{recipe.HOST_NAME}")
    files = recipe.image_files(
        kind="initramfs-tools",
        host_key=(work / "host_key").read_text(),
        host_key_public=(work / "host_key.pub").read_text(),
        login_key_public=built.login_key.with_suffix(".pub").read_text(),
    )
    archive, root = work / "files.tar", work / "root.tar"
    image._write_tar(archive, files)
    report(f"Debian {SUITE}, {len(PACKAGES)} packages and what they need")
    image._run(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(PACKAGES)}",
        f"--customize-hook=tar-in {archive} /",
        '--customize-hook=chroot "$1" sh /srv/lab/in-chroot',
        f"--customize-hook={_DISABLE}",
        SUITE,
        str(root),
    )
    image._extract(
        root,
        {
            "./boot/vmlinuz-": built.kernel,
            "./boot/initrd.img-": built.initramfs,
            f".{recipe.GUEST_INITRAMFS}": built.guest_initramfs,
        },
    )
    report("making the file system")
    image._make_disk(root, built.disk)
    with built.esp.open("wb") as file:
        file.truncate(recipe.ESP_MEBIBYTES << 20)
    for path in (archive, root, work / "host_key"):
        path.unlink()
