"""The tools of a host's distribution that build an initramfs, and their command lines."""

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpustack.base.operations import RunCommand
from gpustack.hosts.facts.boot_model import BootKernel
from gpustack.hosts.facts.model import Host

_REDHAT = frozenset({"rhel", "fedora", "centos"})
_DEBIAN = frozenset({"debian", "ubuntu"})


def family(host: Host) -> str | None:
    """``debian``, ``redhat``, or None for other distributions (``os-release(5)``, ``ID`` and ``ID_LIKE``)."""
    names = {host.os_release.get("ID", ""), *host.os_release.get("ID_LIKE", "").split()}
    if names & _DEBIAN:
        return "debian"
    return "redhat" if names & _REDHAT else None


def has_systemd_boot(host: Host) -> bool:
    """Whether the boot loader is systemd-boot, whose entries kernel-install writes."""
    return host.boot.loader == "systemd-boot"


def in_image_mode(host: Host) -> bool:
    """Whether the kernels, and with them /usr and the initramfs, belong to an image (ostree, bootc)."""
    return any((kernel.image or "").startswith("/boot/ostree/") for kernel in host.boot.kernels)


def has_dracut(host: Host) -> bool:
    """Whether dracut builds the host's initramfs images."""
    return host.initramfs_tool == "dracut"


def image_of(host: Host, kernel: BootKernel) -> str:
    """The path of a kernel's initramfs; if there is none, the path that the distribution expects."""
    if kernel.initramfs is not None:
        return kernel.initramfs
    directory = PurePosixPath(kernel.image or "/boot/vmlinuz").parent
    if kernel.image is not None and kernel.image.endswith("/linux"):  # kernel-install(8)
        return str(directory / "initrd")
    names = {"debian": f"initrd.img-{kernel.release}"}
    return str(directory / names.get(family(host) or "", f"initramfs-{kernel.release}.img"))


def rebuild(host: Host, kernel: BootKernel, why: str) -> Iterator[RunCommand]:
    """The commands that rebuild one kernel's initramfs.

    If dracut can't complete an image (``/boot`` is full), it removes the file. So it writes a new file, which then
    replaces the old one atomically; update-initramfs does the same itself. With systemd-boot, kernel-install copies
    the image to the boot partition, and runs dracut to build it (50-dracut.install).
    """
    if not has_dracut(host):
        yield RunCommand(argv=("update-initramfs", "-u", "-k", kernel.release), why=why)
    if has_systemd_boot(host):
        yield install_kernel(kernel, why)
    elif has_dracut(host):
        image = image_of(host, kernel)
        yield RunCommand(argv=("dracut", "--force", f"{image}.new", kernel.release), why=why)
        yield RunCommand(argv=("mv", "--force", f"{image}.new", image), why="the new image takes the place of the old")


def by_hand(host: Host, kernel: BootKernel) -> str:
    """The shell command line that rebuilds one kernel's initramfs, for remedies."""
    if host.initramfs_tool == "mkinitcpio":
        return shlex.join(("mkinitcpio", "-k", kernel.release, "-g", image_of(host, kernel)))
    return " && ".join(shlex.join(command.argv) for command in rebuild(host, kernel, ""))


def update_grub(why: str) -> RunCommand:
    """The command that generates GRUB's menu (update-grub(8))."""
    return RunCommand(argv=("update-grub",), why=why)


def install_kernel(kernel: BootKernel, why: str) -> RunCommand:
    """The command that regenerates a kernel's files on the boot partition and its boot entry (kernel-install(8))."""
    return RunCommand(argv=("kernel-install", "add", kernel.release, kernel.source or ""), why=why)
