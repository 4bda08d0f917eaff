"""Identity, processor and memory of a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.hosts.facts import bundle
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.machine import container, count_range
from gpustack.hosts.facts.collector.reader import HostRoot
from support.sysroot import SysRoot, talk_host


def test_who_the_host_is(tmp_path: Path) -> None:
    document = collect(str(talk_host(tmp_path).path))
    assert document["version"] == 1
    assert document["hostname"] == "gpu01"
    assert document["root"] == os.path.realpath(tmp_path)
    assert document["architecture"] == "x86_64"
    assert document["machine"] == {"vendor": "Dell Inc.", "product": "C4130"}
    assert document["os_release"] == {
        "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)",
        "ID": "debian",
        "VERSION_ID": "12",
        "NAME": "Debian",
    }
    assert document["container"] is None
    assert document["cpu"] == {
        "vendor": "GenuineIntel",
        "model_name": "Example CPU @ 2.60GHz",
        "physical_address_bits": 46,
        "virtual_address_bits": 48,
        "logical": 4,
        "flags": ["vmx", "ept"],
    }
    assert document["memory_mib"] == 515072
    assert document["numa_nodes"] == [{"node": 0, "cpus": "0-3", "memory_mib": 515072, "huge_pages": []}]
    assert document["kernel"] == {
        "release": "6.1.0-37-amd64",
        "command_line": "BOOT_IMAGE=/boot/vmlinuz-6.1.0-37-amd64 root=UUID=0a1b ro quiet",
        "booted_at": 1763688000,
        "lockdown": None,
        "secure_boot": False,
        "loaded_modules": ["nouveau", "vfio_pci"],
        "log": None,
        "log_dropped": None,
        "log_since": None,
        "nvidia_driver": None,
    }


@pytest.mark.parametrize(
    ("content", "name"), [("# comment\n\nGPU-7.example.org\n", "GPU-7.example.org"), ("bad name;\n", "gpu01")]
)
def test_the_name_of_another_root(tmp_path: Path, content: str, name: str) -> None:
    root = SysRoot(tmp_path).host("gpu01").write("/etc/hostname", content)
    assert collect(str(root.path))["hostname"] == name


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("/run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/proc/1/environ", "HOME=/\0container=lxc\0", "lxc"),
        ("/proc/1/cgroup", "4:memory:/kubepods/besteffort/pod1\n", "kubernetes"),
        ("/proc/1/environ", "HOME=/\0containerd=1\0", None),
    ],
)
def test_containers_leave_marks(tmp_path: Path, path: str, content: str, kind: str | None) -> None:
    assert collect(str(SysRoot(tmp_path).host().write(path, content).path))["container"] == kind


FIRST = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
PROCESSES = "pid:[4026531836]"


@pytest.mark.parametrize(
    ("processes", "own", "kind"),
    [
        (PROCESSES, FIRST, None),
        (PROCESSES, "22 1 254:0 / /mnt rw - ext4 /dev/vda rw\n310 9 0:41 / / rw - overlay overlay rw\n", "docker"),
        (PROCESSES, "", "docker"),
        ("pid:[4026532201]", FIRST, "docker"),
    ],
)
def test_a_virtual_machine_made_from_a_container_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: str, own: str, kind: str | None
) -> None:
    """Here, the namespaces are files; the next test has a real container."""
    root = SysRoot(tmp_path).write("/.dockerenv", "").write("/run/systemd/container", "docker")
    root.write("/proc/1/mountinfo", FIRST)
    root.write("/proc/self/mountinfo", own).link("/proc/self/ns/pid", processes)
    host = HostRoot(str(root.path))
    assert container(host) == "docker"
    monkeypatch.setattr(host, "running", True)
    monkeypatch.setattr(host, "_real", lambda path, follow=True: os.fsencode(f"{root.path}{path}"))
    assert container(host) == kind


def test_a_container_is_found_although_it_sees_the_host_s_processes() -> None:
    """A real container: bubblewrap with its own root, and the process namespace of this machine."""
    system = [word for name in ("/usr", "/bin", "/lib", "/lib64") for word in ("--ro-bind-try", name, name)]
    program = [sys.executable, "-c", "import sys; exec(sys.stdin.read())"]
    place = ["--ro-bind", sys.base_prefix, sys.base_prefix, "--ro-bind-try", sys.prefix, sys.prefix, "--proc", "/proc"]
    entered = ["bwrap", *system, *place, "--ro-bind", "/dev/null", "/.dockerenv", *program]
    if subprocess.run([*entered[:-3], "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here, as in a chroot without root rights")
    result = subprocess.run(entered, input=bundle.program(), capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["container"] == "docker"


def test_the_architecture_of_a_root_that_runs_nothing(tmp_path: Path) -> None:
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + b"\xb7\x00"
    assert collect(str(SysRoot(tmp_path).write("/usr/bin/env", header).path))["architecture"] == "aarch64"


@pytest.mark.parametrize(
    ("text", "count"), [("0", 1), ("0-31,64-95", 64), ("", None), ("0-", None), ("a", None), ("0,2,4", 3)]
)
def test_ranges_of_the_kernel_are_counted(text: str, count: int | None) -> None:
    assert count_range(text) == count


def test_huge_pages_of_each_numa_node(tmp_path: Path) -> None:
    root = talk_host(tmp_path)
    base = "/sys/devices/system/node/node0/hugepages"
    for size, total, free in ((1048576, 96, 32), (2048, 0, 0)):
        root.write(f"{base}/hugepages-{size}kB/nr_hugepages", f"{total}\n")
        root.write(f"{base}/hugepages-{size}kB/free_hugepages", f"{free}\n")
    root.write(f"{base}/hugepages-16777216kB/nr_hugepages", "many\n")
    root.write(f"{base}/unrelated", "")
    (node,) = collect(str(root.path))["numa_nodes"]
    assert node["huge_pages"] == [
        {"size_kib": 2048, "total": 0, "free": 0},
        {"size_kib": 1048576, "total": 96, "free": 32},
        {"size_kib": 16777216, "total": None, "free": None},
    ]
