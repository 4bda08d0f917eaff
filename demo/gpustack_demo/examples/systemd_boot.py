"""The files of systemd-boot on a host's boot partition, and a stand-in for kernel-install, which writes them.

It follows kernel-install(8) and the Boot Loader Specification, and was compared with systemd 252 and 257 of Debian:
their 90-loaderentry.install and 55-initrd.install do the same with an image of initramfs-tools.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from gpustack_demo.examples.errors import StandInError
from gpustack_demo.examples.grub import Entry
from gpustack_demo.examples.machine import Machine

_TOKEN = "9d4a6f0b1c2e4f58a7b3c4d5e6f70819"  # noqa: S105  (kernel-install's word for the name of a directory)
_BOOT = Path("boot/efi")
_ENTRIES = _BOOT / "loader/entries"
DIRECTORIES = (str(_ENTRIES), str(_BOOT / _TOKEN), "etc/kernel/install.d")
TOOLS = ("bootctl", "kernel-install")


def files(machine: Machine) -> dict[str, str]:
    """The boot-related files of the distribution; as in Debian, without ``/etc/kernel/cmdline``."""
    return {
        "/etc/machine-id": f"{_TOKEN}\n",
        f"/{_BOOT}/loader/loader.conf": f"#timeout 3\ndefault {_TOKEN}-*\n",
        f"/{_BOOT}/loader/entries.srel": "type1\n",
    }


def image_of(release: str) -> Path:
    """The path of the kernel's initramfs that the boot loader starts, below the root."""
    return _BOOT / _TOKEN / release / f"initrd.img-{release}"


def kernel_install(root: Path, arguments: list[str]) -> str:
    """Play ``kernel-install add RELEASE IMAGE``; return a description."""
    if len(arguments) != 3 or arguments[0] != "add":
        raise StandInError("the stand-in for kernel-install only plays add RELEASE IMAGE")
    _, release, image = arguments
    machine = Machine.load(root)
    source, initramfs = root / image.lstrip("/"), root / f"boot/initrd.img-{release}"
    if not source.is_file():
        raise StandInError(f"Error: kernel image argument {image} not a file")
    directory = root / _BOOT / _TOKEN / release
    directory.mkdir(exist_ok=True)
    shutil.copyfile(source, directory / "linux")
    shutil.copyfile(initramfs, root / image_of(release))
    line = _line(root, machine)
    base = f"/{_TOKEN}/{release}"
    (root / _ENTRIES / f"{_TOKEN}-{release}.conf").write_text(
        f"title      {machine.os_release['PRETTY_NAME']}\nversion    {release}\nmachine-id {_TOKEN}\n"
        f"sort-key   {machine.os_release['ID']}\noptions    {line} systemd.machine_id={_TOKEN}\n"
        f"linux      {base}/linux\ninitrd     {base}/{image_of(release).name}\n",
        encoding="utf-8",
    )
    return f"{release} is on the boot partition, with {line!r}"


def _line(root: Path, machine: Machine) -> str:
    """The kernels' arguments: those of ``/etc/kernel/cmdline``, else those of the running kernel."""
    cmdline, running = root / "etc/kernel/cmdline", root / "proc/cmdline"
    if cmdline.exists():
        return " ".join(cmdline.read_text(encoding="utf-8").split())
    if running.exists():
        added = ("BOOT_IMAGE=", "initrd=", "systemd.machine_id=")
        return " ".join(w for w in running.read_text(encoding="utf-8").split() if not w.startswith(added))
    return f"root=UUID={machine.root_uuid} ro quiet"


def default_entry(root: Path, machine: Machine) -> Entry:
    """The entry that systemd-boot starts by default: that of the newest kernel."""
    release = machine.kernels[0].release
    text = (root / _ENTRIES / f"{_TOKEN}-{release}.conf").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^(\S+)[ \t]+(.*)$", text, re.MULTILINE))
    initrd = fields["initrd"].replace("/", "\\")
    return Entry(title=fields["title"], release=release, arguments=f"initrd={initrd} {fields['options']}")
