"""Files that can't be read, links that lead out of the root, and paths that no system has."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.reader import HostRoot, version_key
from support.sysroot import SysRoot, talk_host


def test_special_files_are_never_opened(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().directory("/etc/modprobe.d").directory("/etc/default/grub")
    os.mkfifo(root.at("/etc/modprobe.d/pipe.conf"))
    os.mkfifo(root.at("/etc/rc.local"))
    root.at("/proc/cmdline").unlink()
    os.mknod(root.at("/proc/cmdline"), 0o600 | 0o010000)
    document = collect(str(root.path))
    assert document["kernel"]["command_line"] is None
    assert {entry["path"]: entry["error"] for entry in document["unread"]} == {
        "/proc/cmdline": "not a regular file",
        "/etc/modprobe.d/pipe.conf": "not a regular file",
        "/etc/rc.local": "not a regular file",
    }


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EIO, errno.ENODEV, errno.ENXIO])
def test_every_other_failure_than_absence_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    root = talk_host(tmp_path).write("/etc/default/grub", "x\n")
    denied = (b"/etc/default/grub", b"/proc/modules", b"/proc/interrupts", b"osrelease")
    real_open = os.open

    def failing(path: bytes, flags: int, *mode: int) -> int:
        if path.endswith(denied):
            raise OSError(code, os.strerror(code))
        return real_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", failing)
    document = collect(str(root.path))
    assert document["kernel"]["release"] is None
    assert document["iommu"]["interrupt_remapping"] is None
    assert {entry["path"] for entry in document["unread"]} == {
        "/etc/default/grub",
        "/proc/modules",
        "/proc/interrupts",
        "/proc/sys/kernel/osrelease",
    }
    assert {entry["error"] for entry in document["unread"]} == {os.strerror(code)}


def test_directories_that_can_not_be_listed_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = talk_host(tmp_path)
    real_listdir = os.listdir

    def failing(path: bytes) -> list[bytes]:
        if path.endswith((b"/sys/kernel/iommu_groups", b"/sys/class/net")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_listdir(path)

    monkeypatch.setattr(os, "listdir", failing)
    document = collect(str(root.path))
    assert document["iommu"]["group_count"] == 0
    assert document["unread"] == [
        {"path": "/sys/class/net", "error": "Permission denied"},
        {"path": "/sys/kernel/iommu_groups", "error": "Permission denied"},
    ]


@pytest.mark.parametrize(
    "target",
    ["{secret}", "../../../../../../../../../../..{secret}", "../up{secret}", "/a/../..{secret}", "abs{secret}"],
)
def test_links_never_lead_out_of_the_root(tmp_path: Path, target: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("blacklist SECRET\n")
    root = SysRoot(tmp_path / "root").host().directory("/etc/modprobe.d")
    root.link("/etc/up", "../../../../../../../../../..").link("/etc/modprobe.d/abs", "/")
    root.link("/etc/modprobe.d/evil.conf", target.format(secret=secret))
    root.link("/etc/dracut.conf.d", str(tmp_path)).link("/proc/self", "/proc/self")
    document = collect(str(root.path))
    assert "SECRET" not in json.dumps(document)
    assert document["files"] == {}


def test_links_inside_the_root_are_followed_as_the_host_would(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.write("/usr/share/conf/real.conf", "blacklist nouveau\n").link("/opt", "usr/share")
    root.link("/etc/modprobe.d", "/opt/conf").link(
        "/usr/share/conf/second.conf", "../../../../../../opt/conf/real.conf"
    )
    facts = collect(str(root.path))["files"]
    assert sorted(facts) == ["/etc/modprobe.d/real.conf", "/etc/modprobe.d/second.conf"]
    assert {entry["text"] for entry in facts.values()} == {"blacklist nouveau\n"}


def test_loops_of_links_end(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().link("/etc/default/grub", "grub").link("/etc/modprobe.d", "/etc/b/x")
    root.link("/etc/b", "/etc/modprobe.d/../b").link("/boot", ".").link("/etc/rc.local", "a/" * 1500)
    document = collect(str(root.path))
    assert {"path": "/etc/default/grub", "error": "Too many levels of symbolic links"} in document["unread"]
    assert {"path": "/etc/modprobe.d", "error": "Too many levels of symbolic links"} in document["unread"]


def test_a_link_put_in_place_of_a_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    root = SysRoot(tmp_path / "root").host().write("/etc/default/grub", "x\n")
    real_open = os.open

    def racing(path: bytes, flags: int, *mode: int) -> int:
        if path.endswith(b"/etc/default/grub"):
            root.at("/etc/default/grub").unlink()
            root.at("/etc/default/grub").symlink_to(secret)
        return real_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", racing)
    document = collect(str(root.path))
    assert "SECRET" not in json.dumps(document)
    assert [entry["path"] for entry in document["unread"]] == ["/etc/default/grub"]


def test_releases_sort_as_people_do() -> None:
    releases = ["6.1.0-37-amd64", "5.10.0-8-amd64", "6.1.0-9-amd64", "6.12.9+bpo-amd64", "6.1.0-rc1"]
    assert sorted(releases, key=version_key) == [
        "5.10.0-8-amd64",
        "6.1.0-rc1",
        "6.1.0-9-amd64",
        "6.1.0-37-amd64",
        "6.12.9+bpo-amd64",
    ]


def test_paths_that_no_system_has_are_absent(tmp_path: Path) -> None:
    host = HostRoot(str(tmp_path))
    assert host.text("/a\0b") is None
    assert host.names("/" + "x" * 300) == []
    assert [entry["error"] for entry in host.unread] == ["File name too long"]
