"""The configuration files that matter to passthrough."""

from __future__ import annotations

import json
import os
from pathlib import Path

from gpustack.hosts.facts.collector import collect
from support.sysroot import SysRoot


def test_the_files_that_matter_with_text_mode_and_time(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    relevant = {
        "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n',
        "/etc/default/grub.d/50-gpustack.cfg": "x\n",
        "/etc/modprobe.d/anything.conf": "options snd x=1\n",
        "/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n",
        "/run/modprobe.d/vfio.conf": "options vfio-pci ids=10de:11b4\n",
        "/usr/lib/modules-load.d/vfio.conf": "vfio-pci\n",
        "/etc/initramfs-tools/modules": "",
        "/etc/initramfs-tools/hooks/gpustack-vfio": "#!/bin/sh\n",
        "/etc/initramfs-tools/scripts/init-top/gpustack-bind": "#!/bin/sh\n",
        "/etc/dracut.conf.d/gpustack.conf": 'force_drivers+=" vfio-pci "\n',
        "/etc/driverctl.d/pci-0000:88:00.0": "vfio-pci\n",
        "/etc/udev/rules.d/70-gpustack.rules": "\n",
    }
    irrelevant = {
        "/etc/default/grub.d/notes.txt": "x\n",
        "/etc/modprobe.d/anything.bak": "x\n",
        "/usr/lib/modprobe.d/systemd.conf": "options bonding max_bonds=0\n",
        "/etc/initramfs-tools/hooks/zz-other": "#!/bin/sh\n",
        "/etc/udev/rules.d/60-other.rules": "\n",
        "/etc/shadow": "root:*:1:0:99999:7:::\n",
    }
    for path, text in {**relevant, **irrelevant}.items():
        root.write(path, text)
    root.at("/etc/initramfs-tools/hooks/gpustack-vfio").chmod(0o755)
    facts = collect(str(root.path))["files"]
    assert {path: entry["text"] for path, entry in facts.items()} == relevant
    assert facts["/etc/initramfs-tools/hooks/gpustack-vfio"]["mode"] == "0755"
    assert facts["/etc/default/grub"]["mtime_ns"] == root.at("/etc/default/grub").stat().st_mtime_ns


def test_a_vendors_directory_with_two_names_is_read_once(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/usr/lib/modprobe.d/a.conf", "blacklist nouveau\n").link("/lib", "usr/lib")
    assert list(collect(str(root.path))["files"]) == ["/usr/lib/modprobe.d/a.conf"]


def test_of_scripts_only_those_that_bind_devices_are_read(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    binding = "w /sys/bus/pci/drivers/vfio-pci/new_id - - - - 10de 11b4\n"
    root.write("/etc/tmpfiles.d/gpu.conf", binding).write("/usr/lib/tmpfiles.d/gpu.conf", binding)
    root.write("/usr/lib/tmpfiles.d/tmp.conf", "q /tmp 1777 root root 10d\n")
    rule = 'SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{remove}="1"\n'
    root.write("/usr/lib/udev/rules.d/80-gpu.rules", rule).write("/usr/lib/udev/rules.d/81-gpu.rules", rule)
    root.link("/etc/udev/rules.d/81-gpu.rules", "/dev/null")
    root.write("/usr/lib/udev/rules.d/50-udev-default.rules", 'KERNEL=="vfio/vfio", OPTIONS+="static_node=vfio/vfio"\n')
    root.write("/etc/systemd/system/gpu.service", "[Service]\nExecStart=/opt/gpu/bind 65:00.0\n")
    root.write("/etc/systemd/system/vgpu.service", "[Service]\nExecStart=/usr/lib/nvidia/sriov-manage -e ALL\n")
    root.write("/etc/systemd/system/other.service", "[Service]\nExecStart=/opt/gpu/all\nExecStop=/opt/gpu/none\n")
    root.write("/etc/systemd/system/rebind@.service", "[Service]\nExecStart=/opt/gpu/none %i\n")
    wants = "/etc/systemd/system/multi-user.target.wants"
    for instance in ("0000:65:00.0", "other"):
        root.link(f"{wants}/rebind@{instance}.service", "/etc/systemd/system/rebind@.service")
    root.write("/var/spool/cron/crontabs/root", "@reboot /usr/local/sbin/bind >/dev/null\n@daily /opt/gpu/binary\n")
    for name, text in (("bind", "#!/bin/sh\necho hi\n"), ("all", "#!/bin/sh\nlspci -d 10de: | driver_override\n")):
        root.write(f"/opt/gpu/{name}", text)
    root.write("/opt/gpu/binary", "\x7fELF vfio").write("/usr/local/sbin/bind", "#!/bin/sh\nmodprobe vfio-pci\n")
    assert sorted(collect(str(root.path))["files"]) == [
        "/etc/systemd/system/gpu.service",
        "/etc/systemd/system/multi-user.target.wants/rebind@0000:65:00.0.service",
        "/etc/systemd/system/vgpu.service",
        "/etc/tmpfiles.d/gpu.conf",
        "/opt/gpu/all",
        "/usr/lib/udev/rules.d/80-gpu.rules",
        "/usr/local/sbin/bind",
    ]


def test_a_masked_file_is_an_empty_one(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\n")
    document = collect(str(root.link("/etc/modprobe.d/nvidia.conf", "/dev/null").path))
    assert document["files"]["/etc/modprobe.d/nvidia.conf"]["text"] == ""
    assert document["unread"] == []


def test_a_linked_file_has_the_target_of_its_link(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/srv/grub", "GRUB_TIMEOUT=5\n").write("/etc/default/grub.d/a.cfg", "")
    files = collect(str(root.link("/etc/default/grub", "../../srv/grub").path))["files"]
    assert (files["/etc/default/grub"]["text"], files["/etc/default/grub"]["link"]) == (
        "GRUB_TIMEOUT=5\n",
        "../../srv/grub",
    )
    assert "link" not in files["/etc/default/grub.d/a.cfg"]


def test_text_that_is_not_utf8_and_text_that_does_not_end(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/etc/modprobe.d/latin.conf", b"# caf\xe9\nblacklist \x00nouveau\n")
    root.write("/etc/default/grub", b"#" * 300_000)
    document = collect(str(root.path))
    assert document["files"]["/etc/modprobe.d/latin.conf"]["text"] == "# caf\ufffd\nblacklist \0nouveau\n"
    assert len(document["files"]["/etc/default/grub"]["text"]) == 256 * 1024
    assert document["unread"] == [
        {"path": "/etc/default/grub", "error": "larger than 262144 bytes; the rest was not read"}
    ]
    json.dumps(document).encode("ascii")


def test_names_that_are_not_text_are_noted(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/etc/modprobe.d/good.conf", "x\n")
    for name in (b"bad\xff.conf", b"line\nbreak.conf"):
        (root.path / "etc/modprobe.d" / os.fsdecode(name)).write_text("x\n")
    document = collect(str(root.path))
    assert list(document["files"]) == ["/etc/modprobe.d/good.conf"]
    assert document["unread"] == [{"path": "/etc/modprobe.d", "error": "holds a name that is not plain text"}]
