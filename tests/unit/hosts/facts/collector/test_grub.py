"""GRUB's environment: where it is, and whether GRUB can write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.facts.collector import collect
from support.grub_menus import DEBIAN
from support.sysroot import SysRoot

GRUBENV = "# GRUB Environment Block\nsaved_entry=gnulinux-simple\nnext_entry=\n".ljust(1024, "#")


MOUNTS = "24 1 8:2 / / rw shared:1 - ext4 /dev/sda2 rw\n"


def environment(root: SysRoot) -> dict[str, Any]:
    return collect(str(root.path))["boot"]["environment"]


def test_the_environment_of_grub(tmp_path: Path) -> None:
    menu = DEBIAN.replace("load_env\nfi", 'load_env\nfi\nif [ "${next_entry}" ] ; then\n  save_env next_entry\nfi')
    root = SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", menu).write("/boot/grub/grubenv", GRUBENV)
    root.write("/proc/self/mountinfo", MOUNTS).write("/sys/dev/block/8:2/size", "1\n")
    assert environment(root) == {
        "path": "/boot/grub/grubenv",
        "exists": True,
        "read": True,
        "saved_entry": "gnulinux-simple",
        "next_entry": None,
        "filesystem": "ext4",
        "device": "disk",
    }


def test_without_its_file_grub_has_no_environment(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", DEBIAN)
    grubenv = environment(root)
    assert (grubenv["exists"], grubenv["read"], grubenv["filesystem"], grubenv["device"]) == (False, False, None, None)
    assert collect(str(SysRoot(tmp_path / "b").host().kernel().path))["boot"]["environment"] is None


@pytest.mark.parametrize(
    ("files", "device"),
    [
        ({"dm/uuid": "LVM-abc\n"}, "lvm"),
        ({"dm/uuid": "CRYPT-LUKS2-abc\n"}, "crypt"),
        ({"dm/uuid": "part1-mpath-3600\n"}, "disk"),
        ({"dm/uuid": "DMRAID-x\n"}, "mapped"),
        ({"md/level": "raid1\n"}, "raid"),
        ({}, None),
    ],
)
def test_what_the_boot_file_system_is_on(tmp_path: Path, files: dict[str, str], device: str | None) -> None:
    root = SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", DEBIAN).write("/boot/grub/grubenv", GRUBENV)
    root.write(
        "/proc/self/mountinfo",
        f"{MOUNTS}30 24 253:1 / /boot rw - xfs /dev/mapper/x rw\n31 24 0:5 / /boo rw - btrfs x rw\n",
    )
    for name, text in files.items():
        root.write(f"/sys/dev/block/253:1/{name}", text)
    grubenv = environment(root)
    assert (grubenv["filesystem"], grubenv["device"]) == ("xfs", device)


def test_an_environment_on_the_efi_system_partition(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", DEBIAN)
    root.write("/boot/efi/EFI/redhat/grubenv", GRUBENV).link("/boot/grub/grubenv", "../efi/EFI/redhat/grubenv")
    root.write("/proc/self/mountinfo", f"{MOUNTS}30 24 8:1 / /boot/efi rw - vfat /dev/sda1 rw\n")
    root.write("/sys/dev/block/8:1/size", "1\n")
    assert environment(root)["filesystem"] == "vfat"


@pytest.mark.parametrize(
    ("booted", "linked", "vendor"),
    [
        ("\\EFI\\rocky\\shimx64.efi", "centos", "rocky"),
        ("\\EFI\\CENTOS\\SHIMX64.EFI", "rocky", "centos"),
        ("\\EFI\\BOOT\\BOOTX64.EFI", "rocky", "rocky"),
        (None, "rocky", "rocky"),
        (None, None, "centos"),
    ],
)
def test_the_menu_after_a_migration(tmp_path: Path, booted: str | None, linked: str | None, vendor: str) -> None:
    """migrate2rocky and almalinux-deploy leave the directory of CentOS on the EFI system partition."""
    root = SysRoot(tmp_path).host(secure_boot=True).kernel().write("/boot/efi/EFI/BOOT/BOOTX64.EFI", b"MZ")
    for name in ("centos", "rocky"):
        root.write(f"/boot/efi/EFI/{name}/grub.cfg", "blscfg\n")
        root.write(f"/boot/efi/EFI/{name}/grubenv", f"kernelopts=root=/dev/{name} ro\n")
    root.write("/boot/loader/entries/4a-5.conf", "title Rocky\nlinux /vmlinuz-5\noptions $kernelopts\n")
    if linked:
        root.link("/boot/grub2/grubenv", f"../efi/EFI/{linked}/grubenv")
    if booted:
        variables = "/sys/firmware/efi/efivars/Boot{}-8be4df61-93ca-11d2-aa0d-00e098032b8c"
        root.write(variables.format("Current"), b"\x06\0\0\0\x0b\0")
        description = "Linux\0".encode("utf-16-le")
        path = f"{booted}\0".encode("utf-16-le")
        node = b"\x04\x04" + (4 + len(path)).to_bytes(2, "little") + path
        root.write(variables.format("000B"), b"\7\0\0\0\1\0\0\0\1\0" + description + node)
    facts = collect(str(root.path))["boot"]
    assert facts["environment"]["path"] == f"/boot/efi/EFI/{vendor}/grubenv"
    assert [entry["arguments"] for entry in facts["entries"]] == [f"root=/dev/{vendor} ro"]
