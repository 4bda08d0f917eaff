"""Builds the lab's disk images and keeps them in a cache outside the repository."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import checksums, opt_nova, recipe
from .errors import LabError

Reporter = Callable[[str], None]

# Images of other recipes (older ones, other checkouts) go when nobody has used them for so long.
UNUSED_SECONDS = 14 * 24 * 3600
GIBIBYTE = 1 << 30
# The packages' files as an archive and as a tree, and the disk.
BUILD_SPACE = 6 * GIBIBYTE


@dataclass(frozen=True, kw_only=True)
class Image:
    """A finished image: files that are only read; machines write on overlays."""

    directory: Path

    @property
    def disk(self) -> Path:
        """The root file system, raw, prepared by one boot."""
        return self.directory / "root.raw"

    @property
    def esp(self) -> Path:
        """The EFI system partition, raw."""
        return self.directory / "esp.raw"

    @property
    def kernel(self) -> Path:
        """The kernel for boots that bypass the boot loader."""
        return self.directory / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        """The packages' own initramfs (MODULES=most), for the first boot."""
        return self.directory / "initrd.img"

    @property
    def guest_initramfs(self) -> Path:
        """An initramfs that prints its PCI functions on the serial port and powers off."""
        return self.directory / "guest.cpio"

    @property
    def login_key(self) -> Path:
        """The private key that root and the operator accept."""
        return self.directory / "login_key"

    @property
    def host_key_public(self) -> str:
        """The host's public key: type and base64, without a comment."""
        return " ".join((self.directory / "host_key.pub").read_text().split()[:2])


def cache_directory() -> Path:
    """Where images are kept: GPUSTACK_LAB_CACHE, or gpustack-lab in the user's cache directory."""
    chosen = os.environ.get("GPUSTACK_LAB_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpustack-lab"


def cache_key(kind: recipe.Kind) -> str:
    """A name for the image that the present recipe and builder make, for one kind of host."""
    digest = hashlib.sha256()
    for module in ("recipe.py", "image.py", "finish.py"):
        digest.update(Path(__file__).with_name(module).read_bytes())
    if kind == "compute":
        digest.update(opt_nova.cache_key())
    return f"{recipe.suite(kind)}-{kind}-{digest.hexdigest()[:16]}"


def ensure_image(first_boot: Callable[[Image], None], report: Reporter, kind: recipe.Kind = "initramfs-tools") -> Image:
    """The image of the present recipe; `first_boot` boots the unfinished one, whose disks it may write."""

    def build(directory: Path) -> None:
        image = Image(directory=directory)
        _build(image, report, kind)
        report("booting it once: boot loader, initramfs")
        first_boot(image)

    return Image(directory=in_cache(cache_key(kind), build, report))


def in_cache(name: str, build: Callable[[Path], None], report: Reporter) -> Path:
    """The directory `name` of the cache: suite, kind and hash. It is built if it is missing or damaged.

    Only a finished one gets its name: a build that is killed leaves a directory that the next one removes.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    finished = cache / name
    kind = name.rpartition("-")[0]
    with _lock(cache / f"lock-{kind}"):
        if checksums.match(finished):
            os.utime(finished)
            return finished
        if finished.exists():
            report(f"{name} is damaged; the image is built again")
            shutil.rmtree(finished)
        for leftover in cache.glob(f"unfinished-{kind}-*"):
            shutil.rmtree(leftover)
        for entry in (entry for suite in recipe.SUITES for entry in cache.glob(f"{suite}-*")):
            if time.time() - entry.stat().st_mtime > UNUSED_SECONDS:
                shutil.rmtree(entry)
        _check_space(cache)
        work = Path(tempfile.mkdtemp(prefix=f"unfinished-{kind}-", dir=cache))
        started = time.monotonic()
        report(f"building the image in {finished} (once; a few minutes)")
        build(work)
        checksums.write(work)
        work.rename(finished)
        report(f"image ready after {time.monotonic() - started:.0f} s")
        return finished


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on `path`: one build of a kind at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_space(cache: Path) -> None:
    free = shutil.disk_usage(cache).free
    if free < BUILD_SPACE:
        raise LabError(
            f"{cache} has {free / GIBIBYTE:.1f} GiB of free disk space; to build an image takes"
            f" {BUILD_SPACE // GIBIBYTE} GiB. Set GPUSTACK_LAB_CACHE to a directory with more."
        )


def _build(image: Image, report: Reporter, kind: recipe.Kind) -> None:
    work = image.directory
    _make_key(image.login_key, "gpustack lab login")
    _make_key(work / "host_key", f"root@{recipe.HOST_NAME}")
    packages = recipe.packages(kind)
    files = recipe.image_files(
        kind=kind,
        host_key=(work / "host_key").read_text(),
        host_key_public=(work / "host_key.pub").read_text(),
        login_key_public=image.login_key.with_suffix(".pub").read_text(),
    )
    _write_tar(work / "files.tar", files)
    archives = [work / "files.tar"]
    if kind == "compute":
        archives.append(work / "nova.tar")
        opt_nova.write_tar(archives[-1])
    suite = recipe.suite(kind)
    report(f"Debian {suite}, {len(packages)} packages and what they need")
    run(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(packages)}",
        *(f"--customize-hook=tar-in {archive} /" for archive in archives),
        '--customize-hook=chroot "$1" sh /srv/lab/in-chroot',
        suite,
        str(work / "root.tar"),
    )
    extract(
        work / "root.tar",
        {
            "./boot/vmlinuz-": image.kernel,
            "./boot/initrd.img-": image.initramfs,
            f".{recipe.GUEST_INITRAMFS}": image.guest_initramfs,
        },
    )
    report("making the file system")
    make_disk(work / "root.tar", image.disk)
    with image.esp.open("wb") as file:
        file.truncate(recipe.ESP_MEBIBYTES << 20)
    for path in (*archives, work / "root.tar", work / "host_key"):
        path.unlink()


def _make_key(path: Path, comment: str) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))


def _write_tar(path: Path, files: tuple[recipe.ImageFile, ...]) -> None:
    with tarfile.open(path, "w") as archive:
        for directory, owner in (("root/.ssh", 0), (f"home/{recipe.OPERATOR}/.ssh", 1000)):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o700, owner, owner
            archive.addfile(entry)
        for file in files:
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.mode, entry.uid, entry.gid = file.mode, file.owner, file.owner
            if file.link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                archive.addfile(entry)
                continue
            data = file.text.encode()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def extract(archive_path: Path, paths: dict[str, Path]) -> None:
    """Copies the first regular file whose name begins with each key to the path beside it."""
    missing = dict(paths)
    with tarfile.open(archive_path) as archive:
        for member in archive:
            prefix = next((prefix for prefix in missing if member.name.startswith(prefix)), None)
            source = archive.extractfile(member) if prefix and member.isreg() else None
            if prefix and source:
                with source, missing.pop(prefix).open("wb") as target:
                    shutil.copyfileobj(source, target)
    if missing:
        raise LabError(f"the root file system has no file named {', '.join(missing)}*")


def make_disk(archive: Path, disk: Path) -> None:
    """An ext4 disk from a tar archive, with no mount, no loop device and, thanks to fakeroot, no root."""
    tree = archive.with_suffix(".tree")
    # GRUB 2.06 cannot read these two features.
    features = "^metadata_csum_seed,^orphan_file"
    script = (
        'mkdir "$2" && tar -x -p --numeric-owner -f "$1" -C "$2"'
        f' && mke2fs -q -t ext4 -O {features} -L {recipe.ROOT_LABEL} -d "$2" "$3" {recipe.ROOT_SIZE}'
        ' && rm -rf "$2"'
    )
    as_root = [] if os.geteuid() == 0 else ["fakeroot"]
    run(*as_root, "sh", "-c", script, "sh", str(archive), str(tree), str(disk))


def run(*argv: str) -> None:
    """Runs a tool that is told to end when this process dies, so that a killed build goes on nowhere."""
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8"}
    process = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    if process.returncode != 0:
        output = "\n".join((process.stdout + process.stderr).splitlines()[-30:])
        raise LabError(f"{argv[0]} ended with code {process.returncode}:\n{output}")
