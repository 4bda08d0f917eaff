"""The images of ``tools/images``, built on a root of Debian 13 without any registry, and commands inside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpustack import __version__

TOP = Path(__file__).parents[2]
NAME = "localhost/gpustack-test"
ENVIRONMENT = f"{NAME}-ee"
ENTRY = ("/opt/builder/bin/entrypoint", "dumb-init")
"""The entry point of the execution environment, which ``buildah run`` skips."""
BASE = f"{NAME}-base"
REVISION = "a" * 40
PACKAGES = "ca-certificates,openssh-client,python3,python3-venv"


def ran(*command: str | Path, code: int = 0) -> str:
    """The output of a command, errors included; buildah runs commands in a chroot and needs no container engine."""
    variables = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs", "PYTHONPATH": str(TOP)}
    process = subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert process.returncode == code, f"{' '.join(map(str, command))}\n{process.stdout}"
    return process.stdout


@contextmanager
def base(work: Path) -> Iterator[str]:
    """A base image whose pip asks no index; other images of this machine stay."""
    root, pip = work / "root.tar", work / "pip.conf"
    ran("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", root)
    pip.write_text("[global]\nno-index = true\n", encoding="utf-8")
    made = ran("buildah", "from", "scratch").strip()
    ran("buildah", "add", "--quiet", made, root, "/")
    ran("buildah", "add", "--quiet", made, pip, "/etc/pip.conf")
    ran("buildah", "commit", "--quiet", "--rm", made, BASE)
    root.unlink()
    try:
        yield BASE
    finally:
        ran("buildah", "rmi", "--force", BASE)


@contextmanager
def images(base: str, directory: Path, name: str = NAME) -> Iterator[Path]:
    """Both images from the bundle in ``dist``; their archives are in the directory."""
    directory.mkdir(exist_ok=True)
    bundle = TOP / "dist" / f"nova-gpustack-{__version__}-offline.tar"
    shutil.copy(bundle, directory)
    ran(sys.executable, TOP / "tools/images", "--base", base, "--name", name, "--revision", REVISION, directory)
    try:
        yield directory
    finally:
        ran("buildah", "rmi", "--force", name, f"{name}-ee")


@contextmanager
def container(image: str) -> Iterator[str]:
    """A container of an image, for ``buildah run``."""
    name = ran("buildah", "from", image).strip()
    try:
        yield name
    finally:
        ran("buildah", "rm", name)
