"""How the collector reads boot loaders, kernels and their modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.grub import expanded, grub_environment, grub_statements
from gpustack.hosts.facts.collector.menu import grub_menu
from gpustack.hosts.facts.collector.reader import HostRoot
from gpustack.hosts.facts.model import Host as HostFacts
from support.grub_menus import DEBIAN
from support.sysroot import SysRoot, talk_host


def test_what_tuned_adds_to_the_menu_is_in_the_entries(tmp_path: Path) -> None:
    menu = (
        'set tuned_params="skew_tick=1 x=\\\\1"\nmenuentry "Debian" {\n'
        "linux /boot/vmlinuz-6.1.0-37-amd64 ro $tuned_params $vt_handoff ${tuned_params}\n}\n"
    )
    (entry,) = entries(SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", menu))
    assert entry["arguments"] == "ro skew_tick=1 x=\\\\1 $vt_handoff skew_tick=1 x=\\\\1"


def test_entries_in_a_function_are_none_of_the_menu(tmp_path: Path) -> None:
    """Ubuntu's 10_linux_zfs defines a function for its history menu, which only a submenu calls."""
    menu = (
        'function zsyshistorymenu {\n  set kernel="${4}"\n'
        "  menuentry 'Revert' ${menuentry_id_option} 'gnulinux-${1}' {\n"
        '    if [ "${grub_platform}" = xen ]; then insmod xzio; fi\n    linux "${kernel}" root=ZFS="${1}" ro\n  }\n}\n'
        "menuentry 'Ubuntu' ${menuentry_id_option} 'gnulinux-rpool/ROOT/u-6.1.0-37-amd64' {\n"
        '  linux "/BOOT/u@/vmlinuz-6.1.0-37-amd64" root=ZFS="rpool/ROOT/u" ro ${vt_handoff}\n}\n'
        "submenu 'History' {\n  zsyshistorymenu a b c d\n}\n"
    )
    (entry,) = entries(SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", menu))
    assert (entry["title"], entry["position"]) == ("Ubuntu", "0")


def entries(root: SysRoot) -> list[dict[str, Any]]:
    return collect(str(root.path))["boot"]["entries"]


def test_the_entries_of_a_debian_menu(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", DEBIAN)
    root.write("/boot/vmlinuz-6.1.0-9-amd64", "").write("/boot/initrd.img-6.1.0-9-amd64", "")
    facts = collect(str(root.path))["boot"]
    source = "/boot/grub/grub.cfg"
    places = [{key: entry.pop(key) for key in ("id", "position", "submenus", "script")} for entry in facts["entries"]]
    advanced = [{"title": "Advanced options for Debian GNU/Linux", "id": "gnulinux-advanced-0a1b"}]
    assert places == [
        {"id": "gnulinux-simple-0a1b", "position": "0", "submenus": [], "script": None},
        {"id": None, "position": "1>0", "submenus": advanced, "script": None},
        {"id": None, "position": "1>1", "submenus": advanced, "script": None},
    ]
    assert [other["position"] for other in facts["menu"]["others"]] == ["2", "3", "4"]
    assert facts["entries"] == [
        {
            "source": source,
            "title": "Debian GNU/Linux",
            "kernel": "/boot/vmlinuz-6.1.0-37-amd64",
            "initrd": "/boot/initrd.img-6.1.0-37-amd64",
            "arguments": 'root=UUID=0a1b ro  quiet amd_iommu=fullflush dyndbg="file a.c +p;" ',
            "recovery": False,
        },
        {
            "source": source,
            "title": "Debian GNU/Linux, with Linux 6.1.0-37-amd64 (recovery mode)",
            "kernel": "/boot/vmlinuz-6.1.0-37-amd64",
            "initrd": "/boot/initrd.img-6.1.0-37-amd64",
            "arguments": "root=UUID=0a1b ro single",
            "recovery": True,
        },
        {
            "source": source,
            "title": 'It\'s "old"',
            "kernel": "/boot/vmlinuz-6.1.0-9-amd64",
            "initrd": "/boot/initrd.img-6.1.0-9-amd64",
            "arguments": "root=/dev/sda1",
            "recovery": False,
        },
    ]
    assert (facts["firmware"], facts["loader"], facts["bls"]) == ("bios", "grub", False)
    assert facts["config_mtime"] == (root.path / "boot/grub/grub.cfg").stat().st_mtime_ns


def test_a_line_goes_on_after_a_backslash() -> None:
    statements = [words for words, _, _ in grub_statements("linux /vmlinuz root=/dev/sda1 \\\n  quiet\n") if words]
    assert statements == [["linux", "/vmlinuz", "root=/dev/sda1", "quiet"]]


def test_a_comment_starts_only_where_a_word_could() -> None:
    statements = [(words, tail) for words, tail, _ in grub_statements("linux /v a=#1 # no\nx") if words]
    assert statements == [(["linux", "/v", "a=#1"], " a=#1 "), (["x"], "")]


RED_HAT_GRUB = """
set default_kernelopts="root=/dev/mapper/rl-root ro "
insmod blscfg
blscfg
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
	fwsetup
}
"""


RED_HAT_ENTRY = """title Rocky Linux (4.18.0-553.el8.x86_64) 8.10 (Green Obsidian)
version 4.18.0-553.el8.x86_64
linux /vmlinuz-4.18.0-553.el8.x86_64
initrd /initramfs-4.18.0-553.el8.x86_64.img $tuned_initrd
options $kernelopts ${tuned_params}
id rocky-20240525
grub_users $grub_users
"""


def red_hat(path: Path) -> SysRoot:
    root = SysRoot(path).host(release="4.18.0-553.el8.x86_64", secure_boot=False)
    root.kernel("4.18.0-553.el8.x86_64", initramfs="/boot/initramfs-{}.img")
    root.write("/boot/vmlinuz-0-rescue-1f2e3d", "").write("/boot/initramfs-0-rescue-1f2e3d.img", "")
    root.write("/boot/initramfs-4.18.0-553.el8.x86_64kdump.img", "")
    root.write("/boot/grub2/grub.cfg", RED_HAT_GRUB)
    root.write("/boot/loader/entries/1f2e3d-4.18.0-553.el8.x86_64.conf", RED_HAT_ENTRY)
    rescue = RED_HAT_ENTRY.replace("-4.18.0-553.el8.x86_64", "-0-rescue-1f2e3d").replace("$kernelopts", "root=/dev/x")
    return root.write("/boot/loader/entries/1f2e3d-0-rescue.conf", rescue)


def test_entries_of_the_boot_loader_specification(tmp_path: Path) -> None:
    block = "# GRUB Environment Block\nkernelopts=root=/dev/mapper/rl-root ro crashkernel=auto a=\\\\b\n"
    root = red_hat(tmp_path).write("/boot/grub2/grubenv", block + "#" * (1024 - len(block)))
    facts = collect(str(root.path))["boot"]
    assert (facts["firmware"], facts["loader"], facts["bls"]) == ("efi", "grub", True)
    assert [entry["recovery"] for entry in facts["entries"]] == [True, False]
    assert facts["entries"][1] == {
        "id": "1f2e3d-4.18.0-553.el8.x86_64",
        "source": "/boot/loader/entries/1f2e3d-4.18.0-553.el8.x86_64.conf",
        "title": "Rocky Linux (4.18.0-553.el8.x86_64) 8.10 (Green Obsidian)",
        "kernel": "/boot/vmlinuz-4.18.0-553.el8.x86_64",
        "initrd": "/boot/initramfs-4.18.0-553.el8.x86_64.img",
        "arguments": "root=/dev/mapper/rl-root ro crashkernel=auto a=\\b ",
        "recovery": False,
    }
    assert [(kernel["release"], kernel["initramfs"]) for kernel in facts["kernels"]] == [
        ("4.18.0-553.el8.x86_64", "/boot/initramfs-4.18.0-553.el8.x86_64.img")
    ]


def test_kernelopts_of_grub_cfg_when_grubenv_has_none(tmp_path: Path) -> None:
    host = HostRoot(str(red_hat(tmp_path).path))
    variables = grub_environment(host, "/boot/grub2/grub.cfg", RED_HAT_GRUB)
    assert expanded("$kernelopts quiet$none ${x", variables) == "root=/dev/mapper/rl-root ro  quiet ${x"


def test_entries_that_no_boot_loader_reads_are_left_alone(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().kernel().write("/boot/grub/grub.cfg", DEBIAN)
    root.write("/boot/loader/entries/stray.conf", "title Stray\nlinux /vmlinuz\noptions a\n")
    facts = collect(str(root.path))["boot"]
    assert not facts["bls"]
    assert {entry["source"] for entry in facts["entries"]} == {"/boot/grub/grub.cfg"}


def test_systemd_boot_by_its_own_word(tmp_path: Path) -> None:
    token = "5b2c1d3e4f5061728394a5b6c7d8e9f0"
    root = SysRoot(tmp_path).host(secure_boot=True).write("/etc/machine-id", token + "\n")
    info = b"\x06\0\0\0" + "systemd-boot 252.38-1".encode("utf-16-le") + b"\0\0"
    root.write("/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", info)
    root.write("/etc/default/grub", "GRUB_TIMEOUT=5\n")  # left over from before
    root.kernel("6.8.12-4-pve", image=f"/efi/{token}/{{}}/linux", initramfs=f"/efi/{token}/{{}}/initrd")
    root.write(
        f"/efi/loader/entries/{token}-6.8.12-4-pve.conf",
        f"# pve\ntitle Proxmox\nversion 6.8.12-4-pve\nlinux /{token}/6.8.12-4-pve/linux\n"
        f"initrd /{token}/6.8.12-4-pve/initrd\noptions root=ZFS=rpool quiet\noptions intel_iommu=on\n",
    )
    facts = collect(str(root.path))["boot"]
    assert (facts["loader"], facts["bls"], facts["config_mtime"]) == ("systemd-boot", True, None)
    assert facts["entries"] == [
        {
            "id": f"{token}-6.8.12-4-pve",
            "source": f"/efi/loader/entries/{token}-6.8.12-4-pve.conf",
            "title": "Proxmox",
            "kernel": f"/efi/{token}/6.8.12-4-pve/linux",
            "initrd": f"/efi/{token}/6.8.12-4-pve/initrd",
            "arguments": "root=ZFS=rpool quiet intel_iommu=on",
            "recovery": False,
        }
    ]
    assert [(kernel["release"], kernel["image"]) for kernel in facts["kernels"]] == [
        ("6.8.12-4-pve", f"/efi/{token}/6.8.12-4-pve/linux")
    ]


def test_systemd_boots_kernels_are_those_on_its_partition(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/etc/kernel/entry-token", "mine\n")
    root.kernel("6.1.0-37-amd64")
    root.kernel("6.1.0-36-amd64")
    root.write("/boot/efi/loader/loader.conf", "").write("/boot/efi/loader/entries.srel", "type1\n")
    root.write("/boot/efi/mine/6.1.0-37-amd64/linux", "").write("/boot/efi/mine/0-rescue/linux", "")
    root.write("/boot/efi/mine/6.1.0-37-amd64/initrd.img-6.1.0-37-amd64", "")
    root.write("/boot/efi/loader/entries/mine-0-rescue.conf", "linux /mine/0-rescue/linux\noptions ro\n")
    root.write("/boot/efi/EFI/Linux/6.1.EFI", "").write("/boot/efi/EFI/Linux/readme.txt", "")
    root.write("/boot/efi/EFI/Linux/debian-6.12.uki", "")
    document = collect(str(root.path))
    assert document["boot"]["loader"] == "systemd-boot"
    assert [(k["release"], k["image"], k["source"], k["initramfs"]) for k in document["boot"]["kernels"]] == [
        (
            "6.1.0-37-amd64",
            "/boot/efi/mine/6.1.0-37-amd64/linux",
            "/boot/vmlinuz-6.1.0-37-amd64",
            "/boot/efi/mine/6.1.0-37-amd64/initrd.img-6.1.0-37-amd64",
        )
    ]
    assert [entry["recovery"] for entry in document["boot"]["entries"]] == [True]
    assert document["boot"]["unified"] == [f"/boot/efi/EFI/Linux/{name}" for name in ("6.1.EFI", "debian-6.12.uki")]
    assert document["files"]["/boot/efi/loader/entries.srel"]["text"] == "type1\n"
    root.write("/lib/modules/6.1.0-37-amd64/vmlinuz", "")  # where Fedora's package has it
    assert collect(str(root.path))["boot"]["kernels"][0]["source"] == "/lib/modules/6.1.0-37-amd64/vmlinuz"


def test_kernels_are_listed_oldest_first_with_what_they_have(tmp_path: Path) -> None:
    root = talk_host(tmp_path)
    root.kernel(
        "6.1.0-9-amd64",
        modules=("vfio/vfio_virqfd", "gpu/drm/xe/xe", "vfio/pci/nvgrace-gpu/nvgrace-gpu-vfio-pci", "net/igb/igb"),
        builtin=("vfio/vfio", "vfio/pci/vfio-pci"),
        initramfs=None,
    )
    root.kernel("6.12.9-amd64", modules=(), image="/boot/vmlinux-{}", initramfs="/boot/initrd-{}")
    for name in ("vmlinuz-6.1.0-37-amd64.old", "vmlinuz-6.1.0-37-amd64.dpkg-tmp", "vmlinuz", "vmlinux-6.4.0.gz"):
        root.write(f"/boot/{name}", "")
    facts = collect(str(root.path))["boot"]["kernels"]
    assert [kernel["release"] for kernel in facts] == ["6.1.0-9-amd64", "6.1.0-37-amd64", "6.12.9-amd64"]
    assert facts[0]["initramfs"] is None
    assert facts[0]["initramfs_mtime_ns"] is None
    assert facts[0]["modules"] == {
        "vfio": "builtin",
        "vfio_pci": "builtin",
        "vfio_virqfd": "module",
        "xe": "module",
        "nvgrace_gpu_vfio_pci": "module",
    }
    assert facts[2]["image"] == "/boot/vmlinux-6.12.9-amd64"
    assert facts[2]["initramfs"] == "/boot/initrd-6.12.9-amd64"
    assert facts[2]["modules"] == {}


def test_the_drivers_of_the_gpus_that_are_there_matter_too(tmp_path: Path) -> None:
    root = talk_host(tmp_path).kernel("6.1.0-9-amd64", modules=("gpu/drm/mgag200/mgag200", "net/igb/igb"))
    facts = collect(str(root.path))["boot"]["kernels"]
    assert facts[0]["modules"] == {"mgag200": "module"}


def test_image_mode_and_package_named_kernels(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.kernel("5.14.0-427.el9.x86_64", image="/boot/ostree/rhel-ab12/vmlinuz-{}", initramfs=None)
    root.write("/boot/ostree/rhel-ab12/initramfs-5.14.0-427.el9.x86_64.img", "")
    root.write("/boot/vmlinuz-linux", "").write("/boot/initramfs-linux.img", "")
    root.write("/lib/modules/6.17.1-arch1-1/pkgbase", "linux\n")
    kernels = {kernel["release"]: kernel for kernel in collect(str(root.path))["boot"]["kernels"]}
    assert kernels["6.17.1-arch1-1"]["initramfs"] == "/boot/initramfs-linux.img"
    assert kernels["5.14.0-427.el9.x86_64"]["initramfs"].startswith("/boot/ostree/rhel-ab12/")


@pytest.mark.parametrize(
    ("present", "tool"),
    [
        (["usr/sbin/update-initramfs", "usr/sbin/mkinitramfs"], "initramfs-tools"),
        (
            ["usr/sbin/update-initramfs", "usr/sbin/mkinitramfs", "etc/kernel/postinst.d/dracut", "usr/bin/dracut"],
            "dracut",
        ),
        (
            [
                "usr/sbin/update-initramfs",
                "usr/sbin/mkinitramfs",
                "usr/share/kernel/postinst.d/dracut",
                "usr/bin/dracut",
            ],
            "dracut",
        ),
        (["usr/bin/dracut"], "dracut"),
        (["usr/bin/mkinitcpio"], "mkinitcpio"),
        (["etc/initramfs-tools/initramfs.conf"], "initramfs-tools"),
        ([], None),
    ],
)
def test_what_builds_the_initramfs(tmp_path: Path, present: list[str], tool: str | None) -> None:
    root = SysRoot(tmp_path).host()
    for path in present:
        root.write(path, "")
    assert collect(str(root.path))["initramfs_tool"] == tool


def test_control_characters_in_the_menu_are_refused_but_the_rest_is_read(tmp_path: Path) -> None:
    text = "menuentry 'a' { linux /vmlinuz-1\x1b[2J quiet\n }\nmenuentry 'b\tc' { linux /vmlinuz-2\tro\tquiet\n }\n"
    root = SysRoot(tmp_path).host(command_line="ro\tquiet").write("/boot/grub/grub.cfg", text)
    document = collect(str(root.path))
    facts = HostFacts.model_validate(document)
    assert facts.kernel.command_line == facts.boot.entries[0].arguments == "ro\tquiet"
    assert [(entry["title"], entry["arguments"]) for entry in document["boot"]["entries"]] == [("b c", "ro\tquiet")]
    assert document["unread"] == [
        {"path": "/boot/grub/grub.cfg", "error": "an entry with control characters was left out"}
    ]


def test_nested_blocks_without_end_take_no_time(tmp_path: Path) -> None:
    host = HostRoot(str(tmp_path))
    assert grub_menu(host, "/g", "{" * 200_000 + "linux /v a\n" * 1000)[0] == []
    assert grub_menu(host, "/g", "menuentry 'a' {\n" * 20_000 + "}" * 20_000)[0] == []
    assert grub_menu(host, "/g", '"\\"' * 100_000 + "'" * 100_001)[0] == []
    assert grub_menu(host, "/g", "submenu 'a' {\n" * 20_000 + "}" * 20_000)[0] == []


WORD = st.text(
    st.characters(codec="utf-8", exclude_characters="\\\n'\"{};&|<>$#", exclude_categories=("Cc", "Z")), min_size=1
)


ARGUMENTS = st.lists(WORD, min_size=1).map(" ".join)


@given(st.lists(st.tuples(WORD, WORD, ARGUMENTS), max_size=4))
def test_arguments_survive_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, menu: list[tuple[str, str, str]]
) -> None:
    host = HostRoot(str(tmp_path_factory.getbasetemp()))
    text = "".join(
        f"submenu 's' {{\nmenuentry '{title}' {{\n\tlinux\t/boot/x-{image} {arguments}\n}}\n}}\n"
        for title, image, arguments in menu
    )
    entries, _ = grub_menu(host, "/boot/grub/grub.cfg", text)
    assert [(entry["title"], entry["kernel"], entry["arguments"]) for entry in entries] == [
        (title, f"/boot/x-{image}", arguments) for title, image, arguments in menu
    ]


@given(st.text(max_size=300) | st.text(st.sampled_from("{}\"'\\$ \n;#linuxmenuentry/"), max_size=300))
def test_any_text_is_read_to_its_end(text: str) -> None:
    for words, tail, end in grub_statements(text):
        assert end in ("{", "}", "\n", "#")
        assert len(words) >= 2 or tail == "" or end == "#"


def test_whether_grubby_can_leave_the_defaults_alone(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/boot/grub2/grub.cfg", "blscfg\n").write("/usr/sbin/grubby", "#!/bin/bash\n")

    def keeps_defaults() -> object:
        return collect(str(root.path))["boot"]["grubby_keeps_defaults"]

    assert keeps_defaults() is None  # only the program that calls the other
    root.write("/usr/libexec/grubby/grubby-bls", "#!/bin/bash\n# --update-kernel\n")
    assert keeps_defaults() is False
    root.write("/usr/libexec/grubby/grubby-bls", "#!/bin/bash\n--no-etc-grub-update) no_etc_update=true ;;\n")
    assert keeps_defaults() is True


def test_a_unified_image_that_the_firmware_starts_is_listed(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).write("/sys/firmware/efi/fw_platform_size", "64\n")
    root.write("/efi/EFI/Linux/arch-linux.efi", b"MZ")
    facts = collect(str(root.path))["boot"]
    assert (facts["loader"], facts["unified"]) == (None, ["/efi/EFI/Linux/arch-linux.efi"])
