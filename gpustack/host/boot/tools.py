"""The tools of a host's distribution: what makes an initramfs, and how it is called."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpustack.facts.model import BootKernel, Host
from gpustack.operations import RunCommand

_REDHAT = frozenset({"rhel", "fedora", "centos"})
_DEBIAN = frozenset({"debian", "ubuntu"})


def family(host: Host) -> str | None:
    """``debian``, ``redhat``, or None for a distribution of neither family (``os-release(5)``, ``ID_LIKE``)."""
    names = {host.os_release.get("ID", ""), *host.os_release.get("ID_LIKE", "").split()}
    if names & _DEBIAN:
        return "debian"
    return "redhat" if names & _REDHAT else None


def has_entries(host: Host) -> bool:
    """Whether the host boots from entries that are files (Boot Loader Specification), not from a menu of GRUB's."""
    return host.boot.bls


def has_systemd_boot(host: Host) -> bool:
    """Whether systemd-boot starts the host; kernel-install makes its entries."""
    return host.boot.loader == "systemd-boot"


def has_dracut(host: Host) -> bool:
    """Whether dracut makes the host's initramfs images."""
    return host.initramfs_tool == "dracut"


def image_of(host: Host, kernel: BootKernel) -> str:
    """Where a kernel's initramfs is, or has to be: where its distribution looks for it."""
    if kernel.initramfs is not None:
        return kernel.initramfs
    directory = PurePosixPath(kernel.image or "/boot/vmlinuz").parent
    if kernel.image is not None and kernel.image.endswith("/linux"):  # kernel-install(8)
        return str(directory / "initrd")
    names = {"debian": f"initrd.img-{kernel.release}"}
    return str(directory / names.get(family(host) or "", f"initramfs-{kernel.release}.img"))


def rebuild(host: Host, kernel: BootKernel, why: str) -> Iterator[RunCommand]:
    """Make one kernel's initramfs anew.

    dracut removes an image that it can't write to its end (``/boot`` is full), so it writes a new one beside the old,
    which then takes its place in one step. update-initramfs does that by itself. Where systemd-boot starts the host,
    kernel-install puts the image onto the boot partition; dracut's it has made in the same step (50-dracut.install).
    """
    if not has_dracut(host):
        yield RunCommand(argv=("update-initramfs", "-u", "-k", kernel.release), why=why)
    if has_systemd_boot(host):
        yield install_kernel(kernel, why)
    if has_systemd_boot(host) or not has_dracut(host):
        return
    image = image_of(host, kernel)
    yield RunCommand(argv=("dracut", "--force", f"{image}.new", kernel.release), why=why)
    yield RunCommand(argv=("mv", "--force", f"{image}.new", image), why="the new image takes the place of the old")


def by_hand(host: Host, kernel: BootKernel) -> str:
    """What makes one kernel's initramfs anew, as somebody would type it."""
    if host.initramfs_tool == "mkinitcpio":
        return shlex.join(("mkinitcpio", "-k", kernel.release, "-g", image_of(host, kernel)))
    return " && ".join(shlex.join(command.argv) for command in rebuild(host, kernel, ""))


def install_kernel(kernel: BootKernel, why: str) -> RunCommand:
    """Have a kernel's files on the boot partition and its boot entry made anew (kernel-install(8))."""
    return RunCommand(argv=("kernel-install", "add", kernel.release, kernel.source or ""), why=why)
