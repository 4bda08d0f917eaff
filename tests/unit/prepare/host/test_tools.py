"""The tools of distributions that build an initramfs, and their command lines."""

from typing import Any

import pytest

from gpustack.hosts.facts.boot_model import BootKernel
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.tools import by_hand, family, image_of, install_kernel, rebuild, update_grub
from support.host_samples import host


def machine(*, like: str = "", tool: str = "initramfs-tools", loader: str = "grub", **release: str) -> Host:
    boot: dict[str, Any] = {"loader": loader}
    return host(os_release={**release, "ID_LIKE": like}, initramfs_tool=tool, boot=boot)


@pytest.mark.parametrize(
    ("name", "like", "expected"),
    [
        ("debian", "", "debian"),
        ("mint", "ubuntu debian", "debian"),
        ("rocky", "rhel centos fedora", "redhat"),
        ("fedora", "", "redhat"),
        ("sles", "suse", None),
        ("", "", None),
    ],
)
def test_a_derivative_is_of_its_family(name: str, like: str, expected: str | None) -> None:
    assert family(machine(ID=name, like=like)) == expected


@pytest.mark.parametrize(
    ("distribution", "kernel", "path"),
    [
        ("debian", {"initramfs": "/boot/own.img"}, "/boot/own.img"),
        ("debian", {}, "/boot/initrd.img-6.1.0"),
        ("rhel", {}, "/boot/initramfs-6.1.0.img"),
        ("sles", {"image": "/srv/vmlinuz"}, "/srv/initramfs-6.1.0.img"),
        ("debian", {"image": "/efi/1234/6.1.0/linux"}, "/efi/1234/6.1.0/initrd"),
    ],
)
def test_a_missing_image_has_the_path_of_the_distribution(distribution: str, kernel: dict[str, str], path: str) -> None:
    assert image_of(machine(ID=distribution), BootKernel(release="6.1.0", **kernel)) == path  # type: ignore[arg-type]


KERNEL = BootKernel(release="6.1.0", source="/lib/modules/6.1.0/vmlinuz")
IMAGE = "/boot/initramfs-6.1.0.img"
INSTALL = "kernel-install add 6.1.0 /lib/modules/6.1.0/vmlinuz"


@pytest.mark.parametrize(
    ("tool", "loader", "command"),
    [
        ("initramfs-tools", "grub", "update-initramfs -u -k 6.1.0"),
        ("initramfs-tools", "systemd-boot", f"update-initramfs -u -k 6.1.0 && {INSTALL}"),
        ("dracut", "systemd-boot", INSTALL),
        ("dracut", "grub", f"dracut --force {IMAGE}.new 6.1.0 && mv --force {IMAGE}.new {IMAGE}"),
        ("mkinitcpio", "grub", f"mkinitcpio -k 6.1.0 -g {IMAGE}"),
    ],
)
def test_each_tool_rebuilds_an_image_with_its_own_command(tool: str, loader: str, command: str) -> None:
    assert by_hand(machine(ID="rhel", tool=tool, loader=loader), KERNEL) == command


def test_commands_have_the_reason_of_the_plan() -> None:
    (command,) = rebuild(machine(ID="debian"), KERNEL, "new ids")
    assert (command.why, update_grub("menu").describe()) == ("new ids", "run update-grub")
    assert install_kernel(KERNEL, "entry").describe() == f"run {INSTALL}"
