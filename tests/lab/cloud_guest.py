"""A guest with cloud-init: a disk of Debian's packages, kept beside the images of hosts; and its first boot in QEMU."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support import cloud_init

from .errors import LabError
from .image import Reporter, extract, in_cache, make_disk, run
from .recipe import SUITES

PACKAGES = ("cloud-init", "linux-image-cloud-amd64", "systemd-sysv", "udev")
# As an image for clouds has it, and two for emulation (see recipe.py).
ARGUMENTS = "root=/dev/vda rw console=ttyS0,115200n8 mitigations=off no_timer_check"
SECONDS = 1800.0
_DRIVE_MEBIBYTES = 8


@dataclass(frozen=True, kw_only=True)
class GuestImage:
    """A disk that is only read, and the kernel and initramfs that QEMU starts without a boot loader."""

    directory: Path

    @property
    def disk(self) -> Path:
        return self.directory / "root.raw"

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        return self.directory / "initrd.img"


def ensure_guest_image(report: Reporter) -> GuestImage:
    """The image with these packages, from the cache if it has it."""
    digest = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:16]

    def build(directory: Path) -> None:
        _build(GuestImage(directory=directory))

    return GuestImage(directory=in_cache(f"{SUITES[0]}-cloud-init-{digest}", build, report))


def _build(image: GuestImage) -> None:
    root = image.directory / "root.tar"
    packages = f"--include={','.join(PACKAGES)}"
    run("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", packages, SUITES[0], str(root))
    extract(root, {"./boot/vmlinuz-": image.kernel, "./boot/initrd.img-": image.initramfs})
    make_disk(root, image.disk)
    root.unlink()


def first_boot(
    image: GuestImage, directory: Path, *, vendor_data: object, user_data: object, flavor: str, devices: Sequence[str]
) -> str:
    """What a guest prints on its serial console until it powers off, which its user data must do.

    :param devices: QEMU's names of the devices that it has beside its disks.
    """
    directory.mkdir()
    drive = _drive(directory, vendor_data, user_data, flavor)
    argv = [
        # The kernel ends QEMU when this process dies, however it dies.
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
        *("-machine", "q35,accel=tcg", "-cpu", "max", "-m", "1024"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", ARGUMENTS),
        *("-drive", f"if=virtio,format=raw,snapshot=on,cache=unsafe,file={image.disk}"),
        *("-drive", f"if=virtio,format=raw,readonly=on,file={drive}"),
        *(word for device in devices for word in ("-device", device)),
    ]
    console = directory / "console.log"
    with console.open("wb") as log:
        try:
            ran = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"the guest did not power off within {SECONDS:.0f} s; see {console}") from None
    if ran.returncode:
        raise LabError(f"QEMU ended with code {ran.returncode}: {ran.stderr.decode(errors='replace')}")
    return console.read_text(errors="replace")


def _drive(directory: Path, vendor_data: object, user_data: object, flavor: str) -> Path:
    """A file system with the label that cloud-init looks for, as Nova makes it with `config_drive_format = vfat`."""
    tree, drive = directory / "config-drive", directory / "config-drive.raw"
    cloud_init.config_drive(tree, vendor_data, user_data, flavor)
    with drive.open("wb") as file:
        file.truncate(_DRIVE_MEBIBYTES << 20)
    run("mformat", "-i", str(drive), "-v", "config-2", "::")
    run("mcopy", "-i", str(drive), "-s", *map(str, sorted(tree.iterdir())), "::/")
    shutil.rmtree(tree)
    return drive
