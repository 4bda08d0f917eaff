"""The sizes of the wheel and of the image against those of their locked packages, and a start in the image.

Run it as root: it builds the bundle and the images as ``make images`` does. The peer of the start is a virtual
environment of the same bundle on the same base, so only the image's own choices differ. Starts are timed inside:
neither buildah nor a container engine is part of them.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import limits
from packaging.utils import canonicalize_name, parse_wheel_filename

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpustack import __version__
from support import images

ROUNDS = 4
VENV = "/opt/peer"
TIMED = """\
import subprocess, sys, time
for _ in range(6):
    start = time.perf_counter()
    subprocess.run([sys.argv[1], "--version"], check=True, stdout=subprocess.DEVNULL)
    print(time.perf_counter() - start)
"""
LISTED = """\
import importlib.metadata, json
print(json.dumps([(d.metadata["Name"], d.version) for d in importlib.metadata.distributions()]))
"""


def inside(container: str, *command: str) -> str:
    """The output of a command in a container, as its own user."""
    return images.ran("buildah", "run", container, "--", *command)


def wheels(directory: Path, installed: list[tuple[str, str]]) -> tuple[int, int]:
    """The sizes of the installed packages' wheels of Python 3.13: as files, and unpacked."""
    versions = {canonicalize_name(name): version for name, version in installed}
    files = unpacked = 0
    for path in directory.glob("*.whl"):
        name, version, _, tags = parse_wheel_filename(path.name)
        fits = any(tag.abi == "abi3" or tag.interpreter in ("py3", "cp313") for tag in tags)
        if fits and versions.get(name) == str(version) and name != "nova-gpustack":
            files += path.stat().st_size
            with zipfile.ZipFile(path) as archive:
                unpacked += sum(entry.file_size for entry in archive.infolist())
    return files, unpacked


def main() -> None:
    """Compare the ratios with their limits."""
    images.ran("make", "-s", "-C", images.TOP, "image-parts")
    with (
        tempfile.TemporaryDirectory(prefix="gpustack-bench-") as directory,
        images.base(Path(directory)) as base,
        images.images(base, Path(directory, "built")) as built,
        images.container(base) as peer,
        images.container(images.NAME) as image,
    ):
        own = int(images.ran("buildah", "run", "--user", "0", image, "--", "du", "-sxb", "/").split()[0])
        own -= int(inside(peer, "du", "-sxb", "/").split()[0])
        with tarfile.open(built / f"nova-gpustack-{__version__}-offline.tar") as tar:
            tar.extractall(directory, filter="data")
        bundle = Path(directory, f"nova-gpustack-{__version__}-offline")
        images.ran("buildah", "add", "--quiet", peer, bundle, "/bundle")
        inside(peer, "sh", "/bundle/install.sh", VENV)
        files, unpacked = wheels(bundle / "wheels", json.loads(inside(peer, f"{VENV}/bin/python", "-c", LISTED)))
        shutil.rmtree(bundle)
        times: dict[str, list[float]] = {"image": [], "peer": []}
        for _ in range(ROUNDS):
            for name, container, program in (("image", image, "gpustack"), ("peer", peer, f"{VENV}/bin/gpustack")):
                lines = inside(container, "/usr/bin/python3", "-c", TIMED, program).split()
                times[name] += map(float, lines[1:])  # the first is a warm-up
    medians = {name: statistics.median(found) for name, found in times.items()}
    wheel = images.TOP / "dist" / f"nova_gpustack-{__version__}-py3-none-any.whl"
    limits.end(
        limits.check("image.start", medians["image"] / medians["peer"]),
        limits.check("image.size", own / unpacked),
        limits.check("image.wheel", wheel.stat().st_size / files),
    )


if __name__ == "__main__":
    main()
